"""Checks answers against the published API descriptions of OpenAI and of Open Responses.

usage: conformance.py SUITES URL; SUITES is a folder with both descriptions.
"""
import gzip
import json
import pathlib
import sys
import urllib.request

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match


class Description:
    """An OpenAPI description as JSON Schemas."""

    def __init__(self, path):
        read = gzip.open if path.suffix == ".gz" else open
        with read(path, "rt") as file:
            schemas = json.load(file)["components"]["schemas"]
        self.name = path.name.split("-")[0]
        self.schemas = {name: plain(schema) for name, schema in schemas.items()}
        self.checks = {}

    def check(self, schema, value, what):
        """A line for what is wrong with a value, or None."""
        if schema not in self.checks:
            root = {"components": {"schemas": self.schemas}}
            reference = {"$ref": f"#/components/schemas/{schema}"}
            self.checks[schema] = Draft202012Validator(root | reference)
        error = best_match(self.checks[schema].iter_errors(value))
        if error is None:
            return None
        at = "/".join(map(str, error.absolute_path))
        return f"{self.name} {schema} ({what}) {at}: {error.message[:200]}"

    def events(self):
        """The schema of each type of event of a Responses stream."""
        found = {}
        for name, schema in self.schemas.items():
            if name.startswith(("Beta", "Realtime")):
                continue
            kind = schema.get("properties", {}).get("type", {})
            values = kind.get("enum") or [kind.get("const")]
            if isinstance(values[0], str) and values[0].startswith("response."):
                found.setdefault(values[0], name)
        return found


def plain(node):
    """OpenAPI's own words turned into those of JSON Schema."""
    if isinstance(node, list):
        return [plain(item) for item in node]
    if not isinstance(node, dict):
        return node
    dropped = {"discriminator", "format", "default"}
    schema = {key: plain(value) for key, value in node.items() if key not in dropped}
    if "oneOf" in schema:
        # Alternatives overlap once their discriminator is gone.
        schema["anyOf"] = schema.pop("oneOf")
    if schema.pop("nullable", False):
        return {"anyOf": [schema, {"type": "null"}]}
    for bound in ["exclusiveMinimum", "exclusiveMaximum"]:
        if isinstance(schema.get(bound), bool):
            del schema[bound]
    return schema


def post(url, path, body):
    request = urllib.request.Request(url + path, json.dumps(body).encode())
    request.add_header("content-type", "application/json")
    return urllib.request.urlopen(request, timeout=60)


def streamed(url, path, body):
    """Each event's name and data."""
    name = None
    for line in post(url, path, body | {"stream": True}):
        key, _, value = line.decode().rstrip("\n").partition(": ")
        if key == "event":
            name = value
        elif key == "data" and value != "[DONE]":
            yield name, json.loads(value)
            name = None


schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
function = {"name": "get_weather", "description": "The weather", "parameters": schema}
CHAT_TOOLS = {"tools": [{"type": "function", "function": function}]}
TOOLS = {"tools": [{"type": "function", "strict": False} | function]}
SEALED = {"include": ["reasoning.encrypted_content"], "store": False}
CHATS = [
    {"messages": [{"role": "user", "content": "ASK-WEATHER"}]} | CHAT_TOOLS,
    {"messages": [{"role": "user", "content": "RESULT-RAIN"}], "max_tokens": 2},
    {"messages": [{"role": "user", "content": "RESULT-RAIN"}], "n": 1, "stop": ["umb"]},
    {"messages": [{"role": "user", "content": "hello"}], "response_format": {"type": "json_object"}},
]
RESPONSES = [
    {"input": "ASK-WEATHER"} | TOOLS,
    {"input": "ASK-WEATHER", "metadata": {"a": "b"}, "instructions": "Be brief."} | TOOLS | SEALED,
    {"input": "RESULT-RAIN", "max_output_tokens": 2, "temperature": 0.5, "top_p": 0.9},
    {"input": [{"role": "user", "content": "RESULT-RAIN"}], "tool_choice": "none"} | TOOLS,
    {"input": "hello", "max_output_tokens": 5, "reasoning": {"effort": "low"}},
]
FORM = {"format": {"type": "json_schema", "name": "weather", "strict": True, "schema": schema | {"additionalProperties": False}}}


def main():
    suites, url = pathlib.Path(sys.argv[1]), sys.argv[2]
    openai = Description(next(suites.glob("openai-*.openapi.json*")))
    openresponses = Description(next(suites.glob("openresponses-*.openapi.json*")))
    problems, checked = [], 0

    def check(description, schema, value, what):
        nonlocal checked
        checked += 1
        problem = description.check(schema, value, what)
        if problem:
            problems.append(problem)

    for body in CHATS:
        whole = json.load(post(url, "/v1/chat/completions", body))
        check(openai, "CreateChatCompletionResponse", whole, "chat")
        usage = {"stream_options": {"include_usage": True}}
        for _, chunk in streamed(url, "/v1/chat/completions", body | usage):
            check(openai, "CreateChatCompletionStreamResponse", chunk, "chat chunk")
    completion = {"model": "builtin", "prompt": "Once upon a time", "max_tokens": 5}
    whole = json.load(post(url, "/v1/completions", completion))
    check(openai, "CreateCompletionResponse", whole, "completion")
    for _, chunk in streamed(url, "/v1/completions", completion):
        # The description has no null here, but the vendor sends it until the end, as all SDKs know.
        for choice in chunk["choices"]:
            choice["finish_reason"] = choice["finish_reason"] or "stop"
        check(openai, "CreateCompletionResponse", chunk, "completion chunk")
    with urllib.request.urlopen(url + "/v1/models") as models:
        check(openai, "ListModelsResponse", json.load(models), "models")
    for body in RESPONSES:
        whole = json.load(post(url, "/v1/responses", body))
        check(openai, "Response", whole, "response")
        check(openresponses, "ResponseResource", whole, "response")
        for description in [openai, openresponses]:
            kinds = description.events()
            for name, event in streamed(url, "/v1/responses", body):
                if name != event["type"] or name not in kinds:
                    problems.append(f"{description.name} does not know the event {name}")
                    continue
                check(description, kinds[name], event, "event")
    kept = json.load(post(url, "/v1/responses", {"input": "hello", "max_output_tokens": 5}))
    with urllib.request.urlopen(f"{url}/v1/responses/{kept['id']}") as found:
        found = json.load(found)
    check(openai, "Response", found, "kept response")
    check(openresponses, "ResponseResource", found, "kept response")
    with urllib.request.urlopen(f"{url}/v1/responses/{kept['id']}/input_items") as items:
        check(openai, "ResponseItemList", json.load(items), "input items")
    on = {"input": "on", "previous_response_id": kept["id"], "max_output_tokens": 5, "text": FORM}
    # Open Responses demands null for the schema that OpenAI demands to be told.
    check(openai, "Response", json.load(post(url, "/v1/responses", on)), "response with a form")
    for problem in dict.fromkeys(problems):
        print(problem)
    print(f"{checked} objects checked, {len(problems)} violations")
    sys.exit(1 if problems else 0)


main()
