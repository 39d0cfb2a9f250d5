"""The Anthropic SDK: models, counting, Messages whole and streamed."""
import sys

from anthropic import Anthropic, BadRequestError

client = Anthropic(base_url=sys.argv[1], api_key="none")
model = client.models.list().data[0].id
assert client.models.retrieve(model).id == model
schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
tools = [{"name": "get_weather", "description": "The weather", "input_schema": schema}]

for stream in [False, True]:
    messages = [{"role": "user", "content": "ASK-WEATHER"}]

    def ask():
        options = {"model": model, "max_tokens": 1000, "messages": messages, "tools": tools}
        if not stream:
            return client.messages.create(**options)
        with client.messages.stream(**options) as events:
            return events.get_final_message()

    counted = client.messages.count_tokens(model=model, messages=messages, tools=tools)
    message = ask()
    assert message.stop_reason == "tool_use", message
    assert [block.type for block in message.content] == ["thinking", "tool_use", "tool_use"]
    assert [block.input for block in message.content[1:]] == [{"city": "Oslo"}, {"city": "Rom"}]
    usage = message.usage
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens, usage
    messages.append({"role": "assistant", "content": message.content})
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": "RESULT-RAIN"}
        for block in message.content[1:]
    ]
    messages.append({"role": "user", "content": results})
    message = ask()
    assert message.stop_reason == "end_turn", message
    assert message.content[-1].text == "Take an umbrella. 🦀", message
    assert message.usage.cache_read_input_tokens > 0, message

try:
    client.messages.create(model=model, max_tokens=5, messages=[{"role": "king", "content": "x"}])
    raise AssertionError("a wrong role was taken")
except BadRequestError as error:
    assert "messages[0].role" in str(error), error
