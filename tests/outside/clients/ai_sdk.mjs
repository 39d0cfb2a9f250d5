// The AI SDK over four providers: a tool round trip by its own loop, whole and streamed.
import assert from "node:assert/strict";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";

const url = process.argv[2] + "/v1";
const openai = createOpenAI({ baseURL: url, apiKey: "none" });
const models = {
  compatible: createOpenAICompatible({ name: "node", baseURL: url, apiKey: "none" })("builtin"),
  chat: openai.chat("builtin"),
  responses: openai.responses("builtin"),
  anthropic: createAnthropic({ baseURL: url, apiKey: "none" })("builtin"),
};
const inputSchema = jsonSchema({
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
});

for (const [name, model] of Object.entries(models)) {
  for (const stream of [false, true]) {
    const asked = [];
    const execute = ({ city }) => {
      asked.push(city);
      return "RESULT-RAIN";
    };
    const options = {
      model,
      prompt: "ASK-WEATHER",
      tools: { get_weather: tool({ description: "The weather", inputSchema, execute }) },
      stopWhen: stepCountIs(3),
      maxRetries: 0,
    };
    const result = stream ? streamText(options) : await generateText(options);
    assert.equal(await result.text, "Take an umbrella. 🦀", `${name} ${stream}`);
    assert.deepEqual(asked, ["Oslo", "Rom"], `${name} ${stream}`);
  }
}
