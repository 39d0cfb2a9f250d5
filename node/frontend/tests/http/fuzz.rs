//! Foreign bytes: every body gets an answer, and none is a server error.

use crate::cluster::{CHAT, COMPLETIONS, Fake, MESSAGES, RESPONSES, posted, request, say};
use frontend::Limits;
use serde_json::{Value, json};
use std::sync::Arc;

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
        for path in [CHAT, COMPLETIONS, MESSAGES, RESPONSES] {
            let status = status_of(&runtime, path, bytes.to_vec());
            assert!(matches!(status, 200 | 400 | 404), "{status}");
        }
    });
}

/// Replaces one value somewhere in a good request by something odd.
fn mutate(value: &mut Value, mut choices: impl Iterator<Item = u8>) {
    let odd = [
        json!(null),
        json!(-1),
        json!(1e300),
        json!(""),
        json!("\u{0}<|im_end|>"),
        json!([]),
        json!({}),
        json!([[[]]]),
        json!(true),
        json!({"type": "text"}),
        json!("assistant"),
        json!(u64::MAX),
    ];
    let mut at = value;
    for choice in choices.by_ref() {
        let choice = usize::from(choice);
        let children = match &*at {
            Value::Object(map) => map.len(),
            Value::Array(list) => list.len(),
            _ => 0,
        };
        if children == 0 || choice % 8 == 0 {
            break;
        }
        at = match at {
            Value::Object(map) => map.values_mut().nth(choice % children).unwrap(),
            Value::Array(list) => &mut list[choice % children],
            _ => unreachable!(),
        };
    }
    *at = odd[usize::from(choices.next().unwrap_or(0)) % odd.len()].clone();
}

#[test]
fn odd_values_are_a_bad_request_at_worst() {
    let runtime = runtime();
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
        "tool_choice": "auto",
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
        "tool_choice": {"type": "auto"}, "stop_sequences": ["q"],
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
        "reasoning": {"effort": "low"}, "text": {"format": {"type": "text"}}, "metadata": {},
    });
    let completion = json!({
        "prompt": [1, 2, 3, 4, 5, 6], "max_tokens": 5, "stop": ["x"], "n": 1, "echo": false,
        "stream_options": {"include_usage": true}, "temperature": 0.5, "nvext": {"retention": []},
    });
    bolero::check!().with_iterations(400).with_max_len(16).for_each(|bytes: &[u8]| {
        for (path, good) in [
            (CHAT, &chat),
            (MESSAGES, &messages),
            (RESPONSES, &responses),
            (COMPLETIONS, &completion),
        ] {
            let mut body = good.clone();
            mutate(&mut body, bytes.iter().copied());
            let text = body.to_string();
            let status = status_of(&runtime, path, text.clone().into_bytes());
            assert!(matches!(status, 200 | 400 | 404), "{status}: {text}");
        }
    });
}
