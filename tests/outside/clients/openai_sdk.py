"""The OpenAI SDK: models, Chat Completions, Completions and Responses, whole and streamed."""
import json
import sys

from openai import BadRequestError, NotFoundError, OpenAI

client = OpenAI(base_url=sys.argv[1] + "/v1", api_key="none")
model = client.models.list().data[0].id
assert client.models.retrieve(model).id == model
schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
function = {"name": "get_weather", "description": "The weather", "parameters": schema}

for stream in [False, True]:
    # Chat Completions: a tool round trip.
    messages = [{"role": "user", "content": "ASK-WEATHER"}]
    options = {"model": model, "tools": [{"type": "function", "function": function}]}

    def chat():
        if not stream:
            whole = client.chat.completions.create(messages=messages, **options)
            return whole.choices[0].message, whole.choices[0].finish_reason, whole.usage
        with client.chat.completions.stream(
            messages=messages, stream_options={"include_usage": True}, **options
        ) as events:
            for _ in events:
                pass
            whole = events.get_final_completion()
        return whole.choices[0].message, whole.choices[0].finish_reason, whole.usage

    message, finish, usage = chat()
    assert finish == "tool_calls", finish
    calls = message.tool_calls
    assert [json.loads(call.function.arguments) for call in calls] == [{"city": "Oslo"}, {"city": "Rom"}]
    assert len({call.id for call in calls}) == 2
    assert message.reasoning_content == "Two towns.", message
    messages.append(message.model_dump(exclude_none=True))
    for call in calls:
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "RESULT-RAIN"})
    message, finish, usage = chat()
    assert (message.content, finish) == ("Take an umbrella. 🦀", "stop"), message
    assert usage.prompt_tokens_details.cached_tokens > 0, usage

    # Responses: the same.
    history = [{"role": "user", "content": "ASK-WEATHER"}]
    options = {
        "model": model,
        "tools": [{"type": "function", "strict": False, **function}],
        "include": ["reasoning.encrypted_content"],
        "store": False,
    }

    def respond():
        if not stream:
            return client.responses.create(input=history, **options)
        with client.responses.stream(input=history, **options) as events:
            for _ in events:
                pass
            return events.get_final_response()

    response = respond()
    assert response.status == "completed", response
    kinds = [item.type for item in response.output]
    assert kinds == ["reasoning", "function_call", "function_call"], kinds
    for item in response.output:
        item = item.model_dump(exclude_none=True)
        item.pop("parsed_arguments", None)
        history.append(item)
    for item in response.output[1:]:
        output = {"call_id": item.call_id, "output": "RESULT-RAIN"}
        history.append({"type": "function_call_output", **output})
    response = respond()
    assert response.output_text == "Take an umbrella. 🦀", response
    assert response.usage.input_tokens_details.cached_tokens > 0

    # The same, kept on the node: only what is new is sent.
    options = {"model": model, "tools": options["tools"]}
    first = client.responses.create(input="ASK-WEATHER", **options)
    assert first.store is True, first
    assert client.responses.retrieve(first.id).output == first.output
    assert [item.content[0].text for item in client.responses.input_items.list(first.id)] == ["ASK-WEATHER"]
    results = [
        {"type": "function_call_output", "call_id": item.call_id, "output": "RESULT-RAIN"}
        for item in first.output[1:]
    ]
    second = client.responses.create(input=results, previous_response_id=first.id, **options)
    assert second.output_text == "Take an umbrella. 🦀", second
    assert second.previous_response_id == first.id
    client.responses.delete(first.id)
    try:
        client.responses.retrieve(first.id)
        raise AssertionError("a deleted response was found")
    except NotFoundError:
        pass
    try:
        client.responses.create(input="x", previous_response_id=first.id, **options)
        raise AssertionError("a deleted response was gone on from")
    except BadRequestError as error:
        assert error.code == "previous_response_not_found", error

    # Structure: what is demanded is echoed, and what cannot be enforced is refused.
    form = {"type": "json_schema", "name": "weather", "schema": schema}
    told = client.responses.create(model=model, input="ASK-WEATHER", text={"format": form}, store=False)
    assert told.text.format.name == "weather", told.text
    try:
        bad = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": {"type": "odd"}}}
        client.chat.completions.create(model=model, messages=messages, response_format=bad)
        raise AssertionError("a wrong schema was taken")
    except BadRequestError as error:
        assert error.param == "response_format.json_schema.schema", error

    # Completions.
    options = {"model": model, "prompt": "Once upon a time", "max_tokens": 5}
    if stream:
        chunks = list(client.completions.create(stream=True, **options))
        assert chunks[-1].choices[0].finish_reason == "length", chunks[-1]
        assert "".join(chunk.choices[0].text for chunk in chunks)
    else:
        assert client.completions.create(**options).usage.completion_tokens == 5

try:
    client.chat.completions.create(model=model, messages=[{"role": "king", "content": ""}])
    raise AssertionError("a wrong role was taken")
except BadRequestError as error:
    assert error.param == "messages[0].role", error
