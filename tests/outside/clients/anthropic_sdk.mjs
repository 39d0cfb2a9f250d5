// The Anthropic SDK: a tool round trip, whole and streamed.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({ baseURL: process.argv[2], apiKey: "none" });
const schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tools = [{ name: "get_weather", description: "The weather", input_schema: schema }];

for (const stream of [false, true]) {
  const messages = [{ role: "user", content: "ASK-WEATHER" }];
  const ask = () => {
    const options = { model: "builtin", max_tokens: 1000, messages, tools };
    return stream ? client.messages.stream(options).finalMessage() : client.messages.create(options);
  };
  let message = await ask();
  assert.equal(message.stop_reason, "tool_use");
  const calls = message.content.filter((block) => block.type === "tool_use");
  assert.deepEqual(calls.map((call) => call.input.city), ["Oslo", "Rom"]);
  messages.push({ role: "assistant", content: message.content });
  const result = (call) => ({ type: "tool_result", tool_use_id: call.id, content: "RESULT-RAIN" });
  messages.push({ role: "user", content: calls.map(result) });
  message = await ask();
  assert.equal(message.stop_reason, "end_turn");
  assert.equal(message.content.at(-1).text, "Take an umbrella. 🦀");
  assert.ok(message.usage.cache_read_input_tokens > 0);
}
