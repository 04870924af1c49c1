// OpenAI's SDK for JavaScript, whose stream helper checks every event.
import OpenAI from "openai";
import { zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import { run, url, key, weather } from "./cases.mjs";

const client = new OpenAI({ baseURL: url, apiKey: key, maxRetries: 0 });
const model = "model";
const tools = [{ type: "function", name: "weather", parameters: weather, strict: true }];
const exec = [{ type: "custom", name: "exec", description: "Runs a command." }];
const command = 'custom exec echo "a\\b\u00e9\ud83d\ude00"\nls';

// items are an output without its ids.
const items = (output) =>
  output.map((i) => {
    switch (i.type) {
      case "message":
        return i.content.map((p) => `${p.type}: ${p.text ?? p.refusal}`).join();
      case "reasoning":
        return `reasoning: ${[...i.summary, ...(i.content ?? [])].map((p) => p.text).join()}`;
      case "function_call":
        return `${i.name}(${i.arguments})`;
      case "custom_tool_call":
        return `${i.name}[${i.input}]`;
    }
    return i.type;
  });

// seen is what a program sees of a response.
const seen = (r, more) => {
  const u = r.usage;
  return { status: r.status, output: items(r.output), usage: u && [u.input_tokens, u.input_tokens_details.cached_tokens, u.output_tokens, u.output_tokens_details.reasoning_tokens], ...more };
};

const whole = async (input, more) => seen(await client.responses.create({ model, input, ...more }));

// streamed is the plain stream, as the wire has it.
const streamed = async (input, more) => {
  let deltas = "";
  let last;
  for await (const e of await client.responses.create({ model, input, stream: true, ...more })) {
    if (e.type.endsWith(".delta")) deltas += e.delta;
    last = e;
  }
  return seen(last.response, { deltas, last: last.type });
};

// helper is the stream that collects its own answer.
const helper = async (input, more) => {
  const stream = client.responses.stream({ model, input, ...more });
  let deltas = "";
  for await (const e of stream) if (e.type.endsWith(".delta")) deltas += e.delta;
  return seen(await stream.finalResponse(), { deltas });
};

// loop answers calls of tools until there are none, with the whole conversation.
const loop = async (prompt, tools, next) => {
  const input = [{ role: "user", content: prompt }];
  const saw = [];
  for (let turn = 0; turn < 5; turn++) {
    const r = await next({ model, input, tools, store: false, include: ["reasoning.encrypted_content"] });
    saw.push(items(r.output));
    input.push(...r.output);
    const calls = r.output.filter((i) => i.type.endsWith("_call"));
    if (calls.length === 0) return saw;
    for (const i of calls) {
      const output = i.type === "function_call" ? `sunny in ${JSON.parse(i.arguments).city}` : `ran ${i.input}`;
      input.push({ type: i.type + "_output", call_id: i.call_id, output });
    }
  }
  throw new Error("the tools are called for ever");
};
const byHelper = (params) => client.responses.stream(params).finalResponse();
const byCreate = (params) => client.responses.create(params);

// chained is a conversation that the server keeps, until it is asked to forget it.
const chained = async (prompt) => {
  const first = await client.responses.create({ model, input: prompt, tools });
  const input = first.output.map((i) => ({ type: "function_call_output", call_id: i.call_id, output: "sunny" }));
  const second = await client.responses.create({ model, input, tools, previous_response_id: first.id });
  const kept = await client.responses.retrieve(second.id);
  const before = [];
  for await (const i of client.responses.inputItems.list(second.id, { order: "asc" })) before.push(i.type);
  await client.responses.delete(second.id);
  const after = await client.responses.retrieve(second.id).then(items, (e) => e.status);
  return { second: items(second.output), kept: items(kept.output), before, after };
};

const hello = "think Let me see. | say Hello there.";
const both = 'call weather {"city":"Oslo"} | call weather {"city":"Rome"}';
const city = 'say {"city":"Oslo","degrees":7}';
const format = { text: { format: zodTextFormat(z.object({ city: z.string(), degrees: z.number() }), "city") } };

await run({
  whole: () => whole(hello),
  streamed: () => streamed(hello),
  helper: () => helper(hello),
  summary: () => helper(hello, { reasoning: { summary: "auto" } }),
  resumed: () => helper('say One. | call weather {"city":"Oslo"} | say Two.', { tools }),
  refusal: () => helper("refuse I will not."),
  length: () => streamed("say Too long | length"),
  parsed: async () => (await client.responses.parse({ model, input: city, ...format })).output_parsed,
  parsedHelper: async () => (await byHelper({ model, input: city, ...format })).output_parsed,
  loop: () => loop(both + ' || think More. | call weather {"city":"Bern"}', tools, byCreate),
  loopHelper: () => loop(both + ' || think More. | call weather {"city":"Bern"}', tools, byHelper),
  custom: () => loop(command, exec, byCreate),
  customHelper: () => loop(command, exec, byHelper),
  failed: () => streamed("say Not yet | fail"),
  failedHelper: () => helper("say Not yet | fail"),
  cut: () => streamed("say Not yet | cut"),
  wholeCut: () => whole("say Not yet | cut"),
  session: async () => [await whole(hello, { prompt_cache_key: "one" }), await whole(hello, { prompt_cache_key: "one" })].map((r) => r.status),
  badField: () => whole(hello, { temperature: 3 }),
  wrongKey: async () => seen(await client.withOptions({ apiKey: "sk-wrong" }).responses.create({ model, input: hello })),
  unknownModel: () => whole(hello, { model: "unknown" }),
  chained: () => chained(both + " || say Both are sunny."),
  previous: () => whole(hello, { previous_response_id: "resp_1" }),
});
