//! Messages: what is understood, and what an answer holds.

use crate::chat::prompt_of;
use crate::cluster::{CACHED, Fake, MESSAGES, post, posted, request, say, tiny};
use frontend::Limits;
use serde_json::{Value, json};
use std::sync::Arc;

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

#[tokio::test]
async fn a_pin_that_the_template_cannot_render_alone_is_told_and_no_more() {
    let model = crate::templates::asked();
    let ephemeral = json!({"type": "ephemeral"});
    let body = json!({
        "max_tokens": 8, "messages": [{"role": "user", "content": "hi"}],
        "system": [{"type": "text", "text": "Be brief.", "cache_control": ephemeral}],
        "nvext": {"extra_fields": ["hints"]},
    });
    let fake = Arc::new(Fake { model, ..Fake::new(say("ok")) });
    let asked = posted(MESSAGES, body.to_string());
    let reply = request(fake.clone(), Limits::default(), asked).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    let hint = &reply.json()["nvext"]["hints"][0];
    assert_eq!((&hint["hint"], &hint["outcome"]), (&json!("cache_control"), &json!("rejected")));
}

#[tokio::test]
async fn tools_of_the_vendors_own_servers_are_left_out() {
    let plain = json!({"max_tokens": 8, "messages": [{"role": "user", "content": "hi"}]});
    let mut hosted = plain.clone();
    hosted["tools"] = json!([
        {"type": "web_search_20250305", "name": "web_search"},
        {"type": "mcp_toolset", "mcp_server_name": "x"},
    ]);
    let tokens = prompt_of(MESSAGES, &plain).await.tokens;
    assert_eq!(prompt_of(MESSAGES, &hosted).await.tokens, tokens);
}

#[tokio::test]
async fn a_picture_that_a_tool_gave_back_does_not_end_the_session() {
    let picture = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}});
    let body = json!({"max_tokens": 9, "messages": [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "t", "name": "read", "input": {"path": "a.png"}},
        ]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [
            {"type": "text", "text": "seen: "}, picture,
        ]}]},
    ]});
    let fake = Arc::new(Fake::new(say("ok")));
    let asked = posted(MESSAGES, body.to_string());
    assert_eq!(request(fake.clone(), Limits::default(), asked).await.status, 200);
    let tokens = fake.prompts.lock().unwrap().pop().unwrap().0.tokens;
    let text = tiny().tokenizer().decode(&tokens);
    assert!(text.contains("seen: [image: this model reads text only]"), "{text}");
}
