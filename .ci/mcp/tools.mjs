// Drives every tool with the official TypeScript client: node tools.mjs URL KEY,
// or node tools.mjs COMMAND... for a server that speaks over stdin and stdout.
// The client checks each structured result against the tool's output schema.
import assert from "node:assert/strict";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";

const [target, ...rest] = process.argv.slice(2);
const overHTTP = target.startsWith("http");
const transport = overHTTP
  ? new StreamableHTTPClientTransport(new URL(target), { requestInit: { headers: { Authorization: `Bearer ${rest[0]}` } } })
  : new StdioClientTransport({ command: target, args: rest, stderr: "inherit" });

const client = new Client({ name: "checks", version: "1" });
await client.connect(transport);

const dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const { tools } = await client.listTools();
const driven = new Set();

async function use(name, args, options) {
  driven.add(name);
  const result = await client.callTool({ name, arguments: args }, undefined, options);
  assert.ok(!result.isError, `${name}: ${JSON.stringify(result.content)}`);
  assert.ok(result.structuredContent, `${name} has no structured result`);
  return result;
}

const balance = async () => (await use("get_balance", {})).structuredContent.available;

const answer = await use("chat", { model: "sim-chat", prompt: "Hello", max_tokens: 40 });
assert.equal(answer.content[0].text, answer.structuredContent.text);
assert.match(answer.structuredContent.request_id, /^req_/);

let told = 0;
await use("chat", { model: "delta-k3", prompt: "Hello again" }, { onprogress: () => told++ });
assert.ok(told > 0, "no progress was told");

const picture = await use("generate_image", { model: "imagegen-2", prompt: "A boat", quality: "low" });
assert.equal(picture.content[0].type, "image");
const edited = await use("edit_image", { model: "imagegen-2", prompt: "Night", images: [`data:image/png;base64,${dot}`] });
assert.equal(edited.content[0].mimeType, "image/png");

const video = await use("generate_video", { model: "beta2.6-t2v", prompt: "Rain", duration: 2 });
const done = await use("get_video", { id: video.structuredContent.id, wait: true });
assert.equal(done.structuredContent.status, "succeeded");
assert.equal(done.content[0].type, "resource_link");

const vectors = await use("create_embeddings", { model: "text-embedding-v4", input: ["one", "two"], dimensions: 64 });
assert.equal(vectors.structuredContent.embeddings[1].length, 64);
const ranking = await use("rerank", { model: "rerank-v3.5", query: "two", documents: ["one", "two"] });
assert.equal(ranking.structuredContent.results[0].index, 1);
const speech = await use("text_to_speech", { model: "alpha3-tts-flash", text: "Hello", format: "wav" });
assert.deepEqual([speech.content[0].type, speech.content[0].mimeType], ["audio", "audio/wav"]);

assert.ok((await use("list_models", {})).structuredContent.models.length > 0);
const estimate = (await use("estimate_cost", { tool: "generate_image", arguments: { model: "alpha-image-2.0", prompt: "x" } })).structuredContent;
assert.ok(estimate.exact);

const before = await balance();
const once = await use("generate_image", { model: "alpha-image-2.0", prompt: "x", task_label: "once" });
assert.equal(once.structuredContent.charge, estimate.most);
const after = await balance();
const again = await use("generate_image", { model: "alpha-image-2.0", prompt: "x", task_label: "once" });
assert.ok(again.structuredContent.replayed);
assert.notEqual(before, after);
assert.equal(await balance(), after, "the repeated call was charged");

const failed = await client.callTool({ name: "chat", arguments: { model: "nothing", prompt: "x" } });
assert.ok(failed.isError);
assert.match(failed.content[0].text, /model_not_found.*list_models/);
await assert.rejects(client.callTool({ name: "nothing", arguments: {} }), /-32602/);

const leaving = new AbortController();
const left = client.callTool({ name: "chat", arguments: { model: "sim-chat", prompt: "Long" } }, undefined, { signal: leaving.signal });
leaving.abort();
await assert.rejects(left);

assert.deepEqual([...driven].sort(), tools.map((t) => t.name).sort(), "not every tool was driven");
await client.close();
console.log(`${driven.size} tools ${overHTTP ? "over HTTP" : "over stdin and stdout"}`);
