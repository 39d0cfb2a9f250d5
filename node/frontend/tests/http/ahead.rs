//! Speculative prefill of the next turn's known prefix, and why a prompt was not cached.

use crate::cluster::{CHAT, Fake, MESSAGES, posted, request, say};
use axum::body::Body;
use axum::http::Request;
use frontend::Limits;
use protocol::id::SessionId;
use serde_json::{Value, json};
use std::sync::Arc;

const ANSWER: &str = "<think>\nhm\n</think>\n\nlook<tool_call>{\"name\": \"w\", \"arguments\": {\"c\": 1}}</tool_call>";

fn ask(messages: Value, stream: bool) -> Value {
    json!({
        "messages": messages, "max_tokens": 300, "stream": stream,
        "tools": [{"type": "function", "function": {"name": "w"}}],
        "nvext": {"agent_hints": {"speculative_prefill": true, "strict_priority": 9}},
    })
}

#[tokio::test]
async fn the_next_turn_begins_with_what_was_prefilled() {
    for stream in [false, true] {
        let fake = Arc::new(Fake::new(say(ANSWER)));
        let first = json!([{"role": "user", "content": "q"}]);
        let mut asked = posted(CHAT, ask(first.clone(), stream).to_string());
        asked.headers_mut().insert("x-dynamo-session-id", "s".parse().unwrap());
        let reply = request(fake.clone(), Limits::default(), asked).await;
        assert_eq!(reply.status, 200, "{}", reply.text);
        // One permit for the request, one for the prefill.
        fake.came.acquire_many(2).await.unwrap().forget();
        let (ahead, _) = fake.prompts.lock().unwrap().pop().unwrap();
        assert_eq!(ahead.limits.max_tokens, 1);
        assert!(ahead.hints.priority < 0, "behind what somebody waits for");
        assert_eq!(ahead.hints.strict_priority, 0, "also across tiers");
        assert_eq!(ahead.session, SessionId::new("s"));
        let next = json!([
            first[0],
            {"role": "assistant", "content": "look", "reasoning_content": "hm", "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "w", "arguments": "{\"c\":1}"}},
            ]},
            {"role": "tool", "tool_call_id": "a", "content": "rain"},
        ]);
        let plain = Arc::new(Fake::new(say("ok")));
        request(plain.clone(), Limits::default(), posted(CHAT, ask(next, false).to_string())).await;
        let next = plain.prompts.lock().unwrap().remove(0).0;
        assert!(next.tokens.starts_with(&ahead.tokens));
        assert_eq!(next.prefix[..ahead.prefix.len()], ahead.prefix[..]);
        assert!(ahead.tokens.len() > 20);
    }
}

#[tokio::test]
async fn a_cut_answer_has_no_next_turn() {
    use crate::cluster::Script;
    use protocol::prompt::FinishReason;
    let script = Script::Say { text: "hello".into(), batch: 1, reason: FinishReason::Length };
    let fake = Arc::new(Fake::new(script));
    let body = ask(json!([{"role": "user", "content": "q"}]), false);
    request(fake.clone(), Limits::default(), posted(CHAT, body.to_string())).await;
    tokio::task::yield_now().await;
    assert_eq!(fake.prompts.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn one_can_ask_why_a_prompt_was_not_cached() {
    let fake = Arc::new(Fake::new(say("ok")));
    let limits = Limits::default();
    let api = frontend::router(fake.clone(), crate::cluster::open(), limits);
    let call = async |asked: Request<Body>| {
        use tower::ServiceExt;
        let response = api.clone().oneshot(asked).await.unwrap();
        let id = response.headers()["x-request-id"].to_str().unwrap().to_owned();
        let status = response.status().as_u16();
        let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, id, serde_json::from_slice::<Value>(&bytes).unwrap())
    };
    let ask = |system: &str| {
        let body = json!({
            "max_tokens": 9, "system": format!("{} {system}", "be brief and kind ".repeat(20)),
            "messages": [{"role": "user", "content": "hello there ".repeat(20)}],
        });
        let mut asked = posted(MESSAGES, body.to_string());
        asked.headers_mut().insert("x-claude-code-session-id", "s".parse().unwrap());
        asked
    };
    let (_, first, _) = call(ask("monday")).await;
    let (_, second, _) = call(ask("friday")).await;
    let why = async |id: &str| {
        let path = format!("/v1/requests/{id}/why-miss");
        call(Request::get(path).body(Body::empty()).unwrap()).await
    };
    let (status, _, told) = why(&second).await;
    assert_eq!(status, 200);
    assert_eq!(told["compared_with"]["request"], first.as_str());
    assert!(told["first_divergence"]["after"].as_str().unwrap().contains("friday"), "{told}");
    assert_eq!(told["found"]["serving_node"], "server");
    let (_, _, told) = why(&first).await;
    assert_eq!(told["compared_with"], Value::Null);
    for unknown in ["0", "xyz", "ffffffffffffffffffffffffffffffffffff"] {
        assert_eq!(why(unknown).await.0, 404, "{unknown}");
    }
}
