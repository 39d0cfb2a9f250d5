//! Requests that harnesses really send (wording replaced, texts and tools shortened): each is
//! understood, and each call's prompt begins with the one before it.

use crate::cluster::{Fake, posted, request, say};
use crate::sse::{chat_body, message_body, response_body};
use frontend::Limits;
use protocol::hash::Token;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;

fn recorded(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/requests").join(name);
    serde_json::from_slice(&std::fs::read(path.with_extension("json")).unwrap()).unwrap()
}

#[tokio::test]
async fn recorded_conversations_are_served_and_share_their_prefix() {
    let conversations: [&[&str]; 6] = [
        &["cc-loop-007", "cc-loop-008", "cc-loop-009"],
        &["opencode-chat-001", "opencode-chat-002", "opencode-chat-003"],
        &["pi-msg-001", "pi-msg-002", "pi-msg-003"],
        &["langchain-openai-001", "langchain-openai-002"],
        &["codex-s1-001", "codex-s1-002", "codex-s1-003"],
        &["opencode-resp-002", "opencode-resp-003", "opencode-resp-004"],
    ];
    for conversation in conversations {
        let fake = Arc::new(Fake {
            names: vec!["mock-model", "mock-model+loop"],
            context: 1 << 16,
            ..Fake::new(say("Ignores 🦀 path."))
        });
        let mut before: Vec<Token> = Vec::new();
        for name in conversation {
            let call = recorded(name);
            let path = call["path"].as_str().unwrap();
            let mut posted = posted(path, call["body"].to_string());
            for (key, value) in call["headers"].as_object().unwrap() {
                let key: axum::http::HeaderName = key.parse().unwrap();
                posted.headers_mut().insert(key, value.as_str().unwrap().parse().unwrap());
            }
            let reply = request(fake.clone(), Limits::default(), posted).await;
            assert_eq!(reply.status, 200, "{name}: {}", reply.text);
            if path.starts_with("/v1/messages") {
                assert_eq!(message_body(&reply.text)["stop_reason"], "end_turn");
            } else if path == "/v1/responses" {
                let response = match call["body"]["stream"] == true {
                    true => response_body(&reply.text),
                    false => reply.json(),
                };
                assert_eq!(response["status"], "completed");
            } else {
                assert_eq!(chat_body(&reply.text)["finish_reason"], "stop");
            }
            let (prompt, want) = fake.prompts.lock().unwrap().pop().unwrap();
            assert_eq!(want.stream, call["body"]["stream"] == true);
            assert!(prompt.tokens.starts_with(&before), "{name} begins with the call before it");
            assert_eq!(prompt.prefix.len(), prompt.tokens.len() / protocol::hash::GRANULE);
            before = prompt.tokens;
        }
    }
}
