// Cohere's SDK for JavaScript, and the AI SDK: node cohere.mjs URL KEY MODEL [CASE...]
import { rerank } from "ai";
import { createCohere } from "@ai-sdk/cohere";
import { CohereClient, CohereClientV2 } from "cohere-ai";

globalThis.AI_SDK_LOG_WARNINGS = false;
const [url, key, model, ...chosen] = process.argv.slice(2);
const v1 = new CohereClient({ token: key, environment: url });
const v2 = new CohereClientV2({ token: key, environment: url });
const ai = createCohere({ baseURL: `${url}/v2`, apiKey: key }).reranking(model);
const query = "Which is best?";
const documents = ["low 0.10", "high 0.90", "middle 0.50"];
const once = { maxRetries: 1 };

const scores = (r) => r.results.map((i) => [i.index, i.relevanceScore]);
const ranked = (r) => r.ranking.map((i) => [i.originalIndex, i.score]);

const cases = {
  whole: async () => scores(await v2.rerank({ model, query, documents })),
  top: async () => scores(await v2.rerank({ model, query, documents, topN: 2, maxTokensPerDoc: 512 })),
  units: async () => (await v2.rerank({ model, query, documents })).meta.billedUnits.searchUnits,
  first: async () => scores(await v1.rerank({ model, query, documents, topN: 2 })),
  documents: async () => (await v1.rerank({ model, query, documents, returnDocuments: true })).results.map((i) => i.document.text),
  objects: async () => scores(await v1.rerank({ model, query, documents: documents.map((body) => ({ title: "t", body })), rankFields: ["title", "body"] })),
  ai: async () => ranked(await rerank({ model: ai, query, documents, topN: 2, maxRetries: 0 })),
  aiObjects: async () => (await rerank({ model: ai, query, documents: documents.map((text) => ({ text })), maxRetries: 0 })).rerankedDocuments.map((d) => d.text),
  flaky: async () => scores(await v2.rerank({ model, query: "flaky", documents }, once)),
  failing: async () => scores(await v2.rerank({ model, query: "failing", documents }, once)),
  broken: async () => scores(await v2.rerank({ model, query: "broken", documents }, { maxRetries: 0 })),
  refused: async () => scores(await v2.rerank({ model, query: "refused", documents })),
  aiRefused: async () => ranked(await rerank({ model: ai, query: "refused", documents })),
  wrongKey: async () => scores(await new CohereClientV2({ token: "sk-wrong", environment: url }).rerank({ model, query, documents })),
  unknownModel: async () => scores(await v2.rerank({ model: "unknown", query, documents })),
  noDocuments: async () => scores(await v2.rerank({ model, query, documents: [] })),
  noMoney: async () => scores(await v2.rerank({ model, query, documents })),
};

const saw = {};
for (const [name, f] of Object.entries(cases)) {
  if (chosen.length > 0 && !chosen.includes(name)) continue;
  try {
    saw[name] = await f();
  } catch (e) {
    e = e.lastError ?? e;
    saw[name] = { status: e.statusCode ?? null, message: e.body?.message ?? e.message };
  }
}
console.log(JSON.stringify(saw));
