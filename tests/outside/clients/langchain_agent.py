"""LangChain over both vendors' packages: a tool round trip, whole and streamed."""
import sys

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def get_weather(city: str) -> str:
    """The weather"""
    return "RESULT-RAIN"


def models(url):
    for responses in [False, True]:
        yield ChatOpenAI(
            base_url=url + "/v1",
            api_key="none",
            model="builtin",
            use_responses_api=responses,
            stream_usage=True,
        )
    yield ChatAnthropic(base_url=url, api_key="none", model="builtin", max_tokens=1000)


for model in models(sys.argv[1]):
    bound = model.bind_tools([get_weather])
    for stream in [False, True]:

        def ask(messages):
            if not stream:
                return bound.invoke(messages)
            whole = None
            for chunk in bound.stream(messages):
                whole = chunk if whole is None else whole + chunk
            return whole

        messages = [HumanMessage("ASK-WEATHER")]
        answer = ask(messages)
        assert [call["args"] for call in answer.tool_calls] == [{"city": "Oslo"}, {"city": "Rom"}]
        messages.append(answer)
        for call in answer.tool_calls:
            messages.append(ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"]))
        answer = ask(messages)
        text = answer.text if isinstance(answer.text, str) else answer.text()
        assert text == "Take an umbrella. 🦀", answer
        assert answer.usage_metadata["input_token_details"]["cache_read"] > 0, answer
