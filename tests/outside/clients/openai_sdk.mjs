// The OpenAI SDK: Chat Completions and Responses, a tool round trip each, whole and streamed.
import assert from "node:assert/strict";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2] + "/v1", apiKey: "none" });
const model = (await client.models.list()).data[0].id;
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tool = { name: "get_weather", description: "The weather", parameters };

for (const stream of [false, true]) {
  const messages = [{ role: "user", content: "ASK-WEATHER" }];
  const chat = async () => {
    const options = { model, messages, tools: [{ type: "function", function: tool }] };
    if (!stream) return (await client.chat.completions.create(options)).choices[0];
    return (await client.chat.completions.stream(options).finalChatCompletion()).choices[0];
  };
  let choice = await chat();
  assert.equal(choice.finish_reason, "tool_calls");
  const calls = choice.message.tool_calls;
  assert.deepEqual(calls.map((call) => JSON.parse(call.function.arguments).city), ["Oslo", "Rom"]);
  messages.push(choice.message);
  for (const call of calls) {
    messages.push({ role: "tool", tool_call_id: call.id, content: "RESULT-RAIN" });
  }
  choice = await chat();
  assert.equal(choice.message.content, "Take an umbrella. 🦀");

  const input = [{ role: "user", content: "ASK-WEATHER" }];
  const respond = async () => {
    const options = { model, input, tools: [{ type: "function", strict: false, ...tool }], store: false };
    if (!stream) return client.responses.create(options);
    return client.responses.stream(options).finalResponse();
  };
  let response = await respond();
  const made = response.output.filter((item) => item.type === "function_call");
  assert.deepEqual(made.map((item) => JSON.parse(item.arguments).city), ["Oslo", "Rom"]);
  input.push(...response.output.map(({ parsed_arguments, ...item }) => item));
  for (const item of made) {
    input.push({ type: "function_call_output", call_id: item.call_id, output: "RESULT-RAIN" });
  }
  response = await respond();
  assert.equal(response.output_text, "Take an umbrella. 🦀");
}
