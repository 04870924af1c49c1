// The AI SDK with its provider for OpenAI, which speaks Responses if nothing else is
// said, and refers to earlier texts and thoughts by their id unless "store" is false.
import { generateObject, generateText, stepCountIs, streamText, tool } from "ai";
import { createOpenAI } from "@ai-sdk/openai";
import { z } from "zod";
import { run, url, key } from "./cases.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;
const model = createOpenAI({ baseURL: url, apiKey: key })("model");
const weather = tool({ inputSchema: z.object({ city: z.string() }), execute: async ({ city }) => `sunny in ${city}` });
const options = { model, maxRetries: 0, tools: { weather }, stopWhen: stepCountIs(5) };
const stateless = { openai: { store: false } };
const twice = 'call weather {"city":"Oslo"} || call weather {"city":"Rome"} || say Both are sunny.';

const steps = (all) => all.map((s) => [s.finishReason, s.toolResults.map((r) => r.output).join() || s.text]);

async function stream(prompt, more) {
  let error;
  const r = streamText({ ...options, prompt, onError: (e) => (error = e.error), ...more });
  let reasoning = "";
  for await (const part of r.stream) if (part.type === "reasoning-delta") reasoning += part.text;
  if (error) throw error;
  const usage = await r.totalUsage;
  return { reasoning, steps: steps(await r.steps), usage: [usage.inputTokens, usage.outputTokens] };
}

await run({
  steps: async () => steps((await generateText({ ...options, prompt: twice, providerOptions: stateless })).steps),
  stored: async () => steps((await generateText({ ...options, prompt: 'say Let me see. | call weather {"city":"Oslo"} || say It is sunny.' })).steps),
  stream: () => stream(twice, { providerOptions: stateless }),
  resumed: () => stream('say One. | call weather {"city":"Oslo"} || say Two.', { providerOptions: stateless }),
  thoughts: () => stream("think Let me see. | say Hello there.", { providerOptions: { openai: { store: false, reasoningSummary: "auto", forceReasoning: true } } }),
  object: async () => (await generateObject({ model, maxRetries: 0, schema: z.object({ city: z.string(), degrees: z.number() }), prompt: 'say {"city":"Oslo","degrees":7}' })).object,
  failed: () => stream("say Not yet | fail"),
  cut: () => stream("say Not yet | cut"),
});
