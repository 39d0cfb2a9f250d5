//! Messages: what is understood, and what an answer holds.

use crate::chat::prompt_of;
use crate::cluster::{CACHED, MESSAGES, post, say};
use serde_json::{Value, json};

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
async fn counting_tells_the_length_of_the_prompt() {
    let body = json!({"max_tokens": 8, "messages": [{"role": "user", "content": "hi"}]});
    let length = prompt_of(MESSAGES, &body).await.tokens.len();
    let counted = post(say(""), "/v1/messages/count_tokens", &body).await.json();
    assert_eq!(counted, json!({"input_tokens": length}));
}
