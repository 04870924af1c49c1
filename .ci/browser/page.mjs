// A page in a browser that calls the gateway from another origin: by fetch and with the
// SDKs that are made for it. It posts what it saw to its own server, by the name of each
// case.
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const { gateway, key, refused } = await (await fetch("/case.json")).json();
const model = "sim-chat";
const messages = [{ role: "user", content: "Tell me of the sea, of its ships and of all that swims in it." }];
const chats = `${gateway}/v1/chat/completions`;

// post is a chat by fetch.
const post = (body, headers, more) =>
  fetch(chats, { method: "POST", headers: { authorization: `Bearer ${key}`, "content-type": "application/json", ...headers }, body: JSON.stringify({ model, messages, ...body }), ...more });

const cases = {
  whole: async () => {
    const r = await post({});
    const has = (name) => (r.headers.get(name) ? name : `no ${name}`);
    return [r.status, (await r.json()).choices[0].message.content.length > 0, has("x-request-id"), has("x-gateway-charge"), has("x-ratelimit-remaining-requests")].join(", ");
  },
  streamed: async () => {
    const r = await post({ stream: true, model: "delta-k3" }); // whose vendor goes on when the page has the beginning
    const reader = r.body.pipeThrough(new TextDecoderStream()).getReader();
    let { done, value: text } = await reader.read();
    await fetch("/next", { method: "POST" });
    for (let value; !done; ({ done, value } = await reader.read())) text += value ?? "";
    return [r.status, r.headers.get("content-type"), text.includes("begins") && text.includes("ends"), text.endsWith("data: [DONE]\n\n")].join(", ");
  },
  "another key": async () => {
    const r = await post({}, { authorization: "Bearer sk-no-such-key-0123456789" });
    return [r.status, (await r.json()).error.code].join(", ");
  },
  "no such path": async () => (await fetch(`${gateway}/v1/other`)).status,
  "a header of a proxy": async () => (await post({}, { "x-forwarded-user": "root" })).status,
  "the browser's credentials": async () => (await post({}, {}, { credentials: "include" })).status,
  "openai, whole": async () => {
    const { data, request_id } = await openai.chat.completions.create({ model, messages }).withResponse();
    return [data.choices[0].message.content.length > 0, request_id.startsWith("req_")].join(", ");
  },
  "openai, streamed": async () => {
    let chunks = 0;
    for await (const chunk of await openai.chat.completions.create({ model, messages, stream: true })) chunks += chunk.choices.length;
    return chunks > 1;
  },
  "openai, another key": () => new OpenAI({ ...options, apiKey: "sk-no-such-key-0123456789" }).models.list().then(String, (e) => `${e.constructor.name}, ${e.status}, ${e.code}`),
  "anthropic, whole": async () => {
    const m = await anthropic.messages.create({ model, messages, max_tokens: 50 });
    return [m.content[0].text.length > 0, m._request_id.startsWith("req_")].join(", ");
  },
  "anthropic, streamed": async () => {
    let texts = 0;
    await anthropic.messages.stream({ model, messages, max_tokens: 50 }).on("text", () => texts++).finalMessage();
    return texts > 1;
  },
};
const options = { baseURL: `${gateway}/v1`, apiKey: key, dangerouslyAllowBrowser: true, maxRetries: 0 };
const openai = new OpenAI(options);
const anthropic = new Anthropic({ ...options, baseURL: gateway });

const saw = {};
for (const name of refused ? ["whole", "openai, whole"] : Object.keys(cases)) {
  try {
    saw[name] = String(await cases[name]());
  } catch (e) {
    saw[name] = e.constructor.name; // a browser tells a page no more of what it may not read
  }
}
await fetch("/saw", { method: "POST", body: JSON.stringify(saw) });
