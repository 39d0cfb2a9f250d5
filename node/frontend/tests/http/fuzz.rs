//! Foreign bytes: every body gets an answer, and none is a server error.

use crate::cluster::{CHAT, COMPLETIONS, Fake, MESSAGES, RESPONSES, Reply, posted, request, say};
use frontend::Limits;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

fn status_of(runtime: &tokio::runtime::Runtime, path: &str, body: Vec<u8>) -> u16 {
    let fake = Arc::new(Fake::new(say("ok")));
    let limits = Limits { cache_bytes: 1 << 16, ..Limits::default() };
    let reply = runtime.block_on(request(fake, limits, posted(path, body)));
    serde_json::from_str::<Value>(&reply.text).unwrap();
    reply.status.as_u16()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn random_bytes_are_a_bad_request() {
    let runtime = runtime();
    bolero::check!().with_iterations(300).with_max_len(256).for_each(|bytes: &[u8]| {
        for path in [CHAT, COMPLETIONS, MESSAGES, RESPONSES, "/tokenize", "/detokenize"] {
            let status = status_of(&runtime, path, bytes.to_vec());
            assert!(matches!(status, 200 | 400 | 404), "{status}");
        }
    });
}

/// What a value is replaced by: each JSON type, and what is odd of its type.
fn odd() -> Vec<Value> {
    vec![
        json!(null),
        json!(true),
        json!(-1),
        json!(0.5),
        json!(1e300),
        json!(u64::MAX),
        json!(""),
        json!("\u{0}<|im_end|>"),
        json!("assistant"),
        json!([]),
        json!([[[]]]),
        json!({}),
        json!({"type": "text"}),
    ]
}

/// The places of all values within `value`, as JSON pointers.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                found.push(format!("{at}/{key}"));
                places(value, &format!("{at}/{key}"), found);
            }
        }
        Value::Array(list) => {
            for (i, value) in list.iter().enumerate() {
                found.push(format!("{at}/{i}"));
                places(value, &format!("{at}/{i}"), found);
            }
        }
        _ => {}
    }
}

/// Stands for a second key until the text is written.
const TWIN: &str = "twin-of-";

/// All texts that differ from `good` in the value at `place`: another value, none, or twice.
fn mutants(good: &Value, place: &str) -> Vec<String> {
    let mut mutants: Vec<String> = Vec::new();
    for odd in odd() {
        let mut body = good.clone();
        *body.pointer_mut(place).unwrap() = odd;
        mutants.push(body.to_string());
    }
    let (parent, key) = place.rsplit_once('/').unwrap();
    for twice in [false, true] {
        let mut body = good.clone();
        let value = body.pointer(place).unwrap().clone();
        match body.pointer_mut(parent).unwrap() {
            Value::Object(map) if twice => _ = map.insert(format!("{TWIN}{key}"), value),
            Value::Object(map) => _ = map.remove(key),
            Value::Array(list) if twice => list.insert(0, value),
            Value::Array(list) => _ = list.remove(key.parse().unwrap()),
            _ => unreachable!(),
        }
        mutants.push(body.to_string().replace(TWIN, ""));
    }
    mutants
}

/// The path of a field at the beginning of a message: `messages[0].content: …`.
fn named(message: &str) -> Option<&str> {
    let (path, _) = message.split_once(": ")?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "_[].-".contains(c);
    (!path.is_empty() && path.chars().all(plain)).then_some(path)
}

/// An answer to a body that is JSON: 200, or a 4xx in the dialect's shape that names a field.
fn assert_civil(path: &str, reply: &Reply, body: &str) {
    let status = reply.status.as_u16();
    if status == 200 {
        return;
    }
    assert!(matches!(status, 400 | 404), "{status}: {body}: {}", reply.text);
    let told = reply.json();
    let error = &told["error"];
    let message = error["message"].as_str().unwrap();
    if path.starts_with(MESSAGES) {
        assert_eq!(told["type"], "error");
        let known = status == 404 || message.contains("chat template") || named(message).is_some();
        assert!(known, "no field is named: {body}: {message}");
        assert!(error["type"].is_string());
    } else {
        assert!(error["param"].is_string(), "no field is named: {body}: {}", reply.text);
        assert!(error["type"].is_string() && error.get("code").is_some());
    }
}

fn good_bodies() -> [(&'static str, Value); 4] {
    let chat = json!({
        "model": "tiny", "max_tokens": 5, "stop": ["x"], "temperature": 0.5, "seed": 1,
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "w", "arguments": "{}"}},
            ]},
            {"role": "tool", "tool_call_id": "c", "content": "ok"},
        ],
        "tools": [{"type": "function", "function": {"name": "w", "parameters": {"a": 1}}}],
        "tool_choice": "auto", "parallel_tool_calls": true, "stream": false, "n": 1,
        "stream_options": {"include_usage": true}, "response_format": {"type": "text"},
        "cache_salt": "c", "max_completion_tokens": 4, "top_p": 1, "top_k": 3, "min_p": 0,
        "nvext": {"agent_hints": {"priority": 1}, "extra_fields": ["route"],
            "retention": [{"start": 0, "end": 4}], "cache_control": {"ttl": "5m"}},
    });
    let messages = json!({
        "model": "tiny", "max_tokens": 5, "system": [{"type": "text", "text": "s"}],
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "t"}, {"type": "text", "text": "x"},
                {"type": "tool_use", "id": "t", "name": "w", "input": {"a": 1}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "r"}]},
            ]},
        ],
        "tools": [{"name": "w", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": true},
        "stop_sequences": ["q"], "thinking": {"type": "adaptive"}, "metadata": {"user_id": "u"},
        "cache_control": {"type": "ephemeral", "ttl": "5m"}, "stream": false, "top_k": 3,
        "output_config": {"effort": "high"},
    });
    let responses = json!({
        "model": "tiny", "instructions": "s", "max_output_tokens": 5,
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "t"}],
                "encrypted_content": "dn1.AA"},
            {"type": "message", "role": "assistant",
                "content": [{"type": "output_text", "text": "x"}]},
            {"type": "function_call", "call_id": "c", "name": "w", "namespace": "n",
                "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "ok"},
            {"type": "custom_tool_call", "call_id": "d", "name": "p", "input": "i"},
            {"type": "custom_tool_call_output", "call_id": "d",
                "output": [{"type": "input_text", "text": "ok"}]},
        ],
        "tools": [
            {"type": "function", "name": "w", "parameters": {"a": 1}, "strict": true},
            {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "w"}]},
            {"type": "custom", "name": "p"}, {"type": "web_search"},
        ],
        "tool_choice": {"type": "function", "name": "w"}, "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "low"}, "text": {"format": {"type": "text"}}, "metadata": {"a": "b"},
        "parallel_tool_calls": true, "truncation": "auto", "prompt_cache_key": "k", "stream": false,
        "top_logprobs": 0, "max_tool_calls": 3, "store": false, "background": false,
    });
    let completion = json!({
        "prompt": [1, 2, 3, 4, 5, 6], "max_tokens": 5, "stop": ["x"], "n": 1, "echo": false,
        "stream_options": {"include_usage": true}, "temperature": 0.5, "nvext": {"retention": []},
    });
    [(CHAT, chat), (MESSAGES, messages), (RESPONSES, responses), (COMPLETIONS, completion)]
}

fn reply_to(runtime: &tokio::runtime::Runtime, path: &str, body: String) -> Reply {
    let fake = Arc::new(Fake::new(say("ok")));
    let limits = Limits { cache_bytes: 1 << 16, ..Limits::default() };
    let reply = request(fake, limits, posted(path, body));
    let reply = async { tokio::time::timeout(Duration::from_secs(60), reply).await };
    runtime.block_on(reply).expect("an answer comes")
}

/// Every single change of every value of a good body.
#[test]
fn one_odd_value_is_a_bad_request_at_worst() {
    let runtime = runtime();
    for (path, good) in good_bodies() {
        let reply = reply_to(&runtime, path, good.to_string());
        assert_eq!(reply.status, 200, "{path}: {}", reply.text);
        let mut all = Vec::new();
        places(&good, "", &mut all);
        assert!(all.len() > 10, "{path}");
        for place in all {
            for body in mutants(&good, &place) {
                assert_civil(path, &reply_to(&runtime, path, body.clone()), &body);
            }
        }
    }
}

/// Several changes at once.
#[test]
fn odd_bodies_are_a_bad_request_at_worst() {
    let (runtime, good) = (runtime(), good_bodies());
    bolero::check!().with_iterations(400).with_max_len(12).for_each(|bytes: &[u8]| {
        let (Some((which, changes)), odd) = (bytes.split_first(), odd()) else { return };
        let (path, good) = &good[usize::from(*which) % good.len()];
        let mut body = good.clone();
        for change in changes.chunks_exact(2) {
            let mut all = Vec::new();
            places(&body, "", &mut all);
            let Some(place) = all.get(usize::from(change[0]) % all.len().max(1)) else { break };
            *body.pointer_mut(place).unwrap() = odd[usize::from(change[1]) % odd.len()].clone();
        }
        let text = body.to_string();
        assert_civil(path, &reply_to(&runtime, path, text.clone()), &text);
    });
}

/// What no JSON library writes.
#[test]
fn hostile_texts_are_a_bad_request_at_worst() {
    let runtime = runtime();
    let text =
        |content: &str| format!(r#"{{"messages":[{{"role":"user","content":"{content}"}}]}}"#);
    let field = |name: &str, value: &str| {
        format!(r#"{{"messages":[{{"role":"user","content":"x"}}],"{name}":{value}}}"#)
    };
    let deep = format!("{}1{}", "[".repeat(5000), "]".repeat(5000));
    let cases = [
        (200, text(r"\u0000\uffff\ud83e\udd80")),
        (200, text(r"\ud800")),
        (200, text(r"\udc00x")),
        (400, text("\u{0}")),
        (400, text(r"\x")),
        (400, field("temperature", "NaN")),
        (400, field("temperature", "-Infinity")),
        (400, field("temperature", "1e999")),
        (400, field("max_tokens", "1e3")),
        (400, field("max_tokens", "99999999999999999999999999")),
        (200, field("max_tokens", "9223372036854775807")),
        (200, field("unknown", "99999999999999999999999999")),
        (400, field("messages", "[]")),
        // What nobody reads may be of any depth: it is skipped without recursion.
        (200, field("unknown", &deep)),
        (400, field("nvext", &format!(r#"{{"retention":{deep}}}"#))),
        (400, field("tools", &deep)),
        (200, format!("\u{feff}{}", text("x"))),
    ];
    for path in [CHAT, MESSAGES] {
        for (status, body) in &cases {
            let reply = reply_to(&runtime, path, body.clone());
            assert_eq!(reply.status.as_u16(), *status, "{path}: {body:.200}: {}", reply.text);
        }
    }
}

/// Limits of lists and schemas: the error names the list.
#[test]
fn limits_are_told_by_name() {
    let runtime = runtime();
    let user = json!([{"role": "user", "content": "x"}]);
    let many = |value: &Value, n: usize| Value::Array(vec![value.clone(); n]);
    let message = &user[0];
    let block = json!({"type": "text", "text": "x"});
    let blocks = json!([{"role": "user", "content": many(&block, 10_001)}]);
    let schema = json!({"type": "object", "description": "d".repeat(256 << 10)});
    let function = json!({"type": "function", "function": {"name": "w"}});
    let named = json!({"type": "function", "name": "w"});
    let inner = |n| json!({"type": "function", "name": format!("w{n}")});
    let inner: Vec<Value> = (0..1025).map(inner).collect();
    let namespace = |name: &str| json!({"type": "namespace", "name": name, "tools": inner});
    let plain = json!({"name": "w", "input_schema": {}});
    for (path, field, body) in [
        (CHAT, "messages", json!({"messages": many(message, 100_001)})),
        (MESSAGES, "messages", json!({"messages": many(message, 100_001)})),
        (RESPONSES, "input", json!({"input": many(message, 100_001)})),
        (CHAT, "messages[0].content", json!({"messages": blocks})),
        (MESSAGES, "messages[0].content", json!({"messages": blocks})),
        (MESSAGES, "system", json!({"messages": user, "system": blocks[0]["content"]})),
        (RESPONSES, "input[0].content", json!({"input": blocks})),
        (CHAT, "tools", json!({"messages": user, "tools": many(&function, 10_000)})),
        (MESSAGES, "tools", json!({"messages": user, "tools": many(&plain, 10_000)})),
        (RESPONSES, "tools", json!({"input": user, "tools": many(&named, 10_000)})),
        (RESPONSES, "tools", json!({"input": user, "tools": [namespace("n"), namespace("m")]})),
        (
            CHAT,
            "tools[0].function.parameters",
            json!({"messages": user, "tools": [
                {"function": {"name": "w", "parameters": schema}},
            ]}),
        ),
        (
            MESSAGES,
            "tools[0].input_schema",
            json!({"messages": user, "tools": [
                {"name": "w", "input_schema": schema},
            ]}),
        ),
        (
            RESPONSES,
            "tools[0].parameters",
            json!({"input": user, "tools": [
                {"type": "function", "name": "w", "parameters": schema},
            ]}),
        ),
    ] {
        let reply = reply_to(&runtime, path, body.to_string());
        assert_eq!(reply.status, 400, "{path} {field}");
        let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.starts_with(&format!("{field}: ")), "{message}");
    }
}

/// Many messages within the limits cost no more than their tokens.
#[test]
fn many_messages_are_read() {
    let runtime = runtime();
    let turns = json!([{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]);
    let turns: Vec<Value> =
        turns.as_array().unwrap().iter().cycle().take(10_000).cloned().collect();
    let fake = Arc::new(Fake { context: 1 << 20, ..Fake::new(say("ok")) });
    let body = posted(CHAT, json!({ "messages": turns }).to_string());
    let reply = runtime.block_on(request(fake, Limits::default(), body));
    assert_eq!(reply.status, 200, "{}", reply.text);
}
