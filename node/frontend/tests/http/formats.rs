//! Models that do not write as Hermes does: all dialects, streams and whole answers alike.

use crate::cluster::{CHAT, MESSAGES, RESPONSES, Script, post_to};
use crate::sse::{chat_body, message_body, response_body};
use frontend::Format;
use protocol::hash::Token;
use protocol::prompt::FinishReason;
use serde_json::{Value, json};

/// One answer, as each format writes it: reasoning where it has a place for it, text where it may
/// stand before calls, and two calls.
const ANSWERS: [(Format, &str); 11] = [
    (
        Format::QwenCoder,
        "<think>\nhm\n</think>\n\nLet me see.\n<tool_call>\n<function=w>\n<parameter=city>\n007\n\
         </parameter>\n<parameter=n>\n3\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n\
         <function=now>\n</function>\n</tool_call>",
    ),
    (
        Format::Llama,
        "{\"name\": \"w\", \"parameters\": {\"city\": \"007\", \"n\": 3}}; \
         {\"name\": \"now\", \"parameters\": {}}",
    ),
    (Format::Llama, "[w(city='007', n=3), now()]"),
    (
        Format::Mistral,
        "[THINK]hm[/THINK]Let me see.[TOOL_CALLS]w[ARGS]{\"city\": \"007\", \"n\": 3}\
         [TOOL_CALLS]now[ARGS]{}",
    ),
    (
        Format::DeepSeek,
        "<think>hm</think>Let me see.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>w<｜tool▁sep｜>\
         {\"city\": \"007\", \"n\": 3}<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}\
         <｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    (
        Format::Harmony,
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary<|message|>\
         Let me see.<|end|><|start|>assistant<|channel|>commentary to=functions.w <|constrain|>json\
         <|message|>{\"city\": \"007\", \"n\": 3}<|call|><|start|>assistant<|channel|>commentary \
         to=functions.now <|constrain|>json<|message|>{}<|call|>",
    ),
    (
        Format::Kimi,
        "<think>hm</think>Let me see.<|tool_calls_section_begin|><|tool_call_begin|>functions.w:0\
         <|tool_call_argument_begin|>{\"city\": \"007\", \"n\": 3}<|tool_call_end|>\
         <|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}<|tool_call_end|>\
         <|tool_calls_section_end|>",
    ),
    (
        Format::Glm,
        "<think>hm</think>\nLet me see.\n<tool_call>w\n<arg_key>city</arg_key>\n\
         <arg_value>007</arg_value>\n<arg_key>n</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n\
         <tool_call>now\n</tool_call>",
    ),
    (
        Format::MiniMax,
        "<think>\nhm\n</think>\n\nLet me see.\n<minimax:tool_call>\n<invoke name=\"w\">\n\
         <parameter name=\"city\">007</parameter>\n<parameter name=\"n\">3</parameter>\n</invoke>\n\
         <invoke name=\"now\">\n</invoke>\n</minimax:tool_call>",
    ),
    (
        Format::Granite,
        "Here is my thought process: hm\n\nHere is my response: Let me see.<|tool_call|>[\
         {\"name\": \"w\", \"arguments\": {\"city\": \"007\", \"n\": 3}}, \
         {\"name\": \"now\", \"arguments\": {}}]",
    ),
    (
        Format::Hermes,
        "<think>\nhm\n</think>\n\nLet me see.\n<tool_call>\n{\"name\": \"w\", \"arguments\": \
         {\"city\": \"007\", \"n\": 3}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\"}\n</tool_call>",
    ),
];

fn schemas() -> [(&'static str, Value); 2] {
    let properties = json!({"city": {"type": "string"}, "n": {"type": "integer"}});
    [
        ("w", json!({"type": "object", "properties": properties})),
        ("now", json!({"type": "object", "properties": {}})),
    ]
}

fn chat(stream: bool, parallel: bool) -> Value {
    let tool = |(name, schema)| json!({"type": "function", "function": {"name": name, "parameters": schema}});
    let mut body = json!({
        "model": "tiny", "messages": [{"role": "user", "content": "hi"}], "stream": stream,
        "tools": schemas().map(tool), "parallel_tool_calls": parallel,
    });
    if stream {
        body["stream_options"] = json!({"include_usage": true});
    }
    body
}

fn messages(stream: bool) -> Value {
    json!({
        "model": "tiny", "messages": [{"role": "user", "content": "hi"}], "stream": stream,
        "max_tokens": 999,
        "tools": schemas().map(|(name, schema)| json!({"name": name, "input_schema": schema})),
    })
}

fn responses(stream: bool) -> Value {
    let tool = |(name, schema)| json!({"type": "function", "name": name, "parameters": schema});
    json!({"model": "tiny", "input": "hi", "stream": stream, "tools": schemas().map(tool)})
}

fn say(text: &str, batch: usize, reason: FinishReason) -> Script {
    Script::Say { text: text.into(), batch, reason }
}

const STOP: FinishReason = FinishReason::Stop(Token(2));

#[tokio::test]
async fn every_format_gives_the_same_answer_in_every_dialect() {
    for (format, text) in ANSWERS {
        let words = if text.contains("hm") { ("hm", "Let me see.") } else { ("", "") };
        for batch in [1, 5, 1000] {
            let script = || say(text, batch, STOP);
            // Chat Completions.
            let unary = post_to(format, script(), CHAT, &chat(false, true)).await.json();
            let message = &unary["choices"][0]["message"];
            assert_eq!(unary["choices"][0]["finish_reason"], "tool_calls", "{format:?}");
            assert_eq!(message["content"].as_str().unwrap_or_default(), words.1, "{format:?}");
            let thought = message["reasoning_content"].as_str().unwrap_or_default();
            assert_eq!(thought, words.0, "{format:?}");
            let calls: Vec<Value> = message["tool_calls"].as_array().cloned().unwrap();
            let called: Vec<_> = calls.iter().map(|call| call["function"].clone()).collect();
            assert_eq!(
                called,
                [
                    json!({"name": "w", "arguments": r#"{"city":"007","n":3}"#}),
                    json!({"name": "now", "arguments": "{}"}),
                ],
                "{format:?}"
            );
            let stream = post_to(format, script(), CHAT, &chat(true, true)).await;
            let streamed = chat_body(&stream.text);
            assert_eq!(streamed["message"]["tool_calls"], message["tool_calls"], "{format:?}");
            assert_eq!(streamed["message"]["content"].as_str().unwrap_or_default(), words.1);
            assert_eq!(streamed["finish_reason"], "tool_calls");
            assert_eq!(streamed["usage"], unary["usage"], "{format:?}");
            // Messages.
            let unary = post_to(format, script(), MESSAGES, &messages(false)).await.json();
            let stream = post_to(format, script(), MESSAGES, &messages(true)).await;
            assert_eq!(message_body(&stream.text), unary, "{format:?}");
            assert_eq!(unary["stop_reason"], "tool_use", "{format:?}");
            let blocks = unary["content"].as_array().unwrap();
            let inputs: Vec<_> =
                blocks.iter().filter(|b| b["type"] == "tool_use").map(|b| &b["input"]).collect();
            assert_eq!(inputs, [&json!({"city": "007", "n": 3}), &json!({})], "{format:?}");
            // Responses.
            let unary = post_to(format, script(), RESPONSES, &responses(false)).await.json();
            let stream = post_to(format, script(), RESPONSES, &responses(true)).await;
            assert_eq!(response_body(&stream.text), unary, "{format:?}");
            let items = unary["output"].as_array().unwrap();
            let names: Vec<_> =
                items.iter().filter(|i| i["type"] == "function_call").map(|i| &i["name"]).collect();
            assert_eq!(names, ["w", "now"], "{format:?}");
        }
    }
}

#[tokio::test]
async fn one_call_is_enough_where_calls_are_not_parallel() {
    for (format, text) in ANSWERS {
        let reply = post_to(format, say(text, 2, STOP), CHAT, &chat(false, false)).await.json();
        let choice = &reply["choices"][0];
        assert_eq!(choice["message"]["tool_calls"].as_array().unwrap().len(), 1, "{format:?}");
        assert_eq!(choice["finish_reason"], "tool_calls");
    }
}

#[tokio::test]
async fn an_answer_cut_within_a_call_says_so_and_shows_what_there_is() {
    for (format, text) in ANSWERS {
        let cut = &text[..text.find("007").unwrap() + 3];
        let script = say(cut, 2, FinishReason::Length);
        let reply = post_to(format, script.clone(), CHAT, &chat(false, true)).await.json();
        let choice = &reply["choices"][0];
        assert_eq!(choice["finish_reason"], "length", "{format:?}");
        assert!(choice["message"]["tool_calls"].is_null(), "{format:?}");
        let shown = choice["message"]["content"].as_str().unwrap();
        assert!(shown.contains("007"), "{format:?}: {shown}");
        let stream = post_to(format, script, CHAT, &chat(true, true)).await;
        assert_eq!(chat_body(&stream.text)["message"]["content"], shown, "{format:?}");
    }
}
