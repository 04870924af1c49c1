// OpenAI's Agents SDK for JavaScript, whose model speaks Responses.
import { Agent, OpenAIProvider, Runner, setTracingDisabled, tool } from "@openai/agents";
import OpenAI from "openai";
import { z } from "zod";
import { run, url, key } from "./cases.mjs";

setTracingDisabled(true);
const openAIClient = new OpenAI({ baseURL: url, apiKey: key, maxRetries: 0 });
const runner = new Runner({ modelProvider: new OpenAIProvider({ openAIClient }), tracingDisabled: true });
const weather = tool({ name: "weather", description: "Says the weather.", parameters: z.object({ city: z.string() }), execute: async ({ city }) => `sunny in ${city}` });
const agent = new Agent({ name: "forecaster", instructions: "Use the tool.", model: "model", tools: [weather] });

const once = 'call weather {"city":"Oslo"} || say It is sunny.';
const usage = (r) => [r.runContext.usage.requests, r.runContext.usage.inputTokens, r.runContext.usage.outputTokens];

await run({
  tool: async () => {
    const r = await runner.run(agent, once);
    return { output: r.finalOutput, usage: usage(r) };
  },
  stream: async () => {
    const r = await runner.run(agent, once, { stream: true });
    let text = "";
    for await (const chunk of r.toTextStream()) text += chunk;
    await r.completed;
    return { output: r.finalOutput, text, usage: usage(r) };
  },
  typed: async () => {
    const typed = new Agent({ name: "typed", model: "model", outputType: z.object({ city: z.string() }) });
    return (await runner.run(typed, 'say {"city":"Oslo"}')).finalOutput;
  },
});
