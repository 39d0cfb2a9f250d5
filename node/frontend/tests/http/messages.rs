//! Messages: what is understood, and what an answer holds.

use crate::chat::prompt_of;
use crate::cluster::{CACHED, MESSAGES, post, say};
use crate::sse::events;
use serde_json::{Value, json};

async fn tokens_of(body: Value) -> Vec<u32> {
    prompt_of(MESSAGES, &body).await.tokens.iter().map(|token| token.0).collect()
}

#[tokio::test]
async fn the_whole_body() {
    let body = json!({
        "model": "tiny", "max_tokens": 8, "messages": [{"role": "user", "content": "hi"}],
        "nvext": {"extra_fields": ["route"]},
    });
    let body = post(say("<think>hm</think>Hello!"), MESSAGES, &body).await.json();
    assert!(body["id"].as_str().unwrap().starts_with("msg_"));
    assert_eq!((&body["type"], &body["role"]), (&json!("message"), &json!("assistant")));
    assert_eq!(body["content"][0]["thinking"], "hm");
    assert_ne!(body["content"][0]["signature"], "");
    assert_eq!(body["content"][1], json!({"type": "text", "text": "Hello!"}));
    assert_eq!((&body["stop_reason"], &body["stop_sequence"]), (&json!("end_turn"), &Value::Null));
    assert_eq!(body["usage"]["cache_read_input_tokens"], CACHED);
    assert_eq!(body["nvext"]["route"]["serving_node"], "server");
}

#[tokio::test]
async fn input_counters_sum_to_the_prompt_at_start_and_end() {
    let body = json!({
        "max_tokens": 8, "stream": true, "messages": [{"role": "user", "content": "hi"}],
    });
    let length = tokens_of(body.clone()).await.len() as u64;
    let counted = post(say(""), "/v1/messages/count_tokens", &body).await.json();
    assert_eq!(counted, json!({"input_tokens": length}));
    let mut seen = Vec::new();
    for (name, data) in events(&post(say("Hello!"), MESSAGES, &body).await.text) {
        let data: Value = serde_json::from_str(&data).unwrap();
        let usage = match name.as_str() {
            "message_start" => &data["message"]["usage"],
            "message_delta" => &data["usage"],
            _ => continue,
        };
        let count = |key: &str| usage[key].as_u64().unwrap();
        let sum = count("input_tokens")
            + count("cache_read_input_tokens")
            + count("cache_creation_input_tokens");
        assert_eq!(sum, length, "{name}");
        assert_eq!(count("cache_read_input_tokens"), u64::from(CACHED));
        seen.push((name, count("output_tokens")));
    }
    assert_eq!(seen.len(), 2);
    assert!(seen[1].1 > 1);
}

#[tokio::test]
async fn what_harnesses_send_is_understood() {
    let thinking = json!([
        {"type": "thinking", "thinking": "t", "signature": "x"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "tool_use", "id": "toolu_1", "name": "w", "input": {"city": "A"}},
    ]);
    let result = json!([
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok", "is_error": true},
        {"type": "text", "text": "go on"},
    ]);
    let cases = [
        json!({"system": "a", "messages": [
            {"role": "user", "content": "hi"}, {"role": "system", "content": "be brief"},
        ]}),
        json!({"system": [], "messages": [
            {"role": "system", "content": [{"type": "text", "text": "be brief"}]},
        ]}),
        json!({"messages": [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": thinking},
            {"role": "user", "content": result},
        ]}),
        json!({
            "thinking": {"type": "adaptive"},
            "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            "output_config": {"effort": "high", "format": {"type": "json_schema", "schema": {}}},
            "metadata": {"user_id": "{}"}, "tool_choice": {"type": "auto"},
            "tools": [{"type": "web_search_20250305", "name": "web_search"}],
            "messages": [{"role": "user", "content": "q"}],
        }),
        json!({"max_tokens": 64_000, "messages": [{"role": "user", "content": "q"}]}),
    ];
    for body in cases {
        let reply = post(say("ok"), MESSAGES, &body).await;
        assert_eq!(reply.status, 200, "{body}: {}", reply.text);
    }
}

#[tokio::test]
async fn what_is_no_text_never_reaches_the_prompt() {
    let body = |system: Value, content: Value| {
        json!({"max_tokens": 8, "system": system, "messages": [
            {"role": "user", "content": content}, {"role": "assistant", "content": "a"},
            {"role": "user", "content": "b"},
        ]})
    };
    let text = |text: &str| json!({"type": "text", "text": text});
    let header = |version: &str| {
        text(&format!("x-anthropic-billing-header: cc_version={version}; cc_entrypoint=cli;"))
    };
    let expected = tokens_of(body(json!("s"), json!("hi"))).await;
    let cached = json!({"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}});
    let cases = [
        body(json!([text("s")]), json!([text("hi")])),
        body(json!([header("1.aaa"), text("s")]), json!([cached])),
        body(json!([header("1.bbb"), text("s")]), json!("hi")),
        body(json!("x-anthropic-billing-header: cc_version=2;\ns"), json!("hi")),
    ];
    for case in cases {
        assert_eq!(tokens_of(case.clone()).await, expected, "{case}");
    }
}
