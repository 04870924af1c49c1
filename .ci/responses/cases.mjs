// What the programs in JavaScript share: `node PROGRAM URL KEY [CASE...]` runs its
// cases and prints what each saw, as one JSON object.
export const [url, key, ...chosen] = process.argv.slice(2);

export const weather = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};

// failure is what a program sees of an error: its class, and what the server said.
function failure(e) {
  e = e.lastError ?? e;
  const body = e.error ?? e.data?.error ?? {};
  return { error: e.constructor.name, status: e.status ?? e.statusCode ?? null, code: e.code ?? body.code ?? null, param: e.param ?? body.param ?? null };
}

export async function run(cases) {
  const saw = {};
  for (const [name, f] of Object.entries(cases)) {
    if (chosen.length > 0 && !chosen.includes(name)) continue;
    try {
      saw[name] = await f();
    } catch (e) {
      saw[name] = failure(e);
      if (saw[name].status === null && saw[name].code === null) saw[name].message = String(e.message).slice(0, 200);
    }
  }
  console.log(JSON.stringify(saw));
}
