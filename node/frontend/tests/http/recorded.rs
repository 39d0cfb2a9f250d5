//! Requests that harnesses really sent (wording replaced; structure, lengths and shared prefixes
//! kept): each is understood, and where one call's history extends another's, its prompt begins
//! with the other's. What extends what is read from the requests, not from our rendering.

use crate::cluster::{Fake, say, tiny};
use crate::sse::{chat_body, message_body, response_body};
use crate::templates::history;
use axum::body::Body;
use axum::http::Request;
use frontend::Limits;
use protocol::hash::Token;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tower::ServiceExt;

/// Sessions: their name, how many generating calls they have, and how many of these extend an
/// earlier one.
const SESSIONS: [(&str, usize, usize); 7] = [
    ("aisdk-openai-resp", 3, 1),
    ("cc-loop", 30, 29),
    ("codex-s1", 6, 5),
    ("langchain-openai", 2, 1),
    ("opencode-chat", 7, 4),
    ("opencode-resp", 4, 2),
    ("pi-msg", 3, 2),
];

fn sorted(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn name(path: &Path) -> String {
    path.file_stem().unwrap().to_str().unwrap().to_owned()
}

/// What two calls may differ in without meaning different things.
fn plain(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut kept = serde_json::Map::new();
            for (key, value) in map {
                if !["cache_control", "id", "status"].contains(&key.as_str()) {
                    kept.insert(key.clone(), plain(value));
                }
            }
            if let Some(Value::String(text)) = map.get("content") {
                kept.insert("content".into(), json!([{"type": "text", "text": text}]));
            }
            Value::Object(kept)
        }
        Value::Array(list) => list.iter().map(plain).collect(),
        other => other.clone(),
    }
}

/// What stands before a call's history, and its history.
fn read(body: &Value) -> (Value, Vec<Value>) {
    let head = ["model", "tools", "system", "instructions"].map(|key| plain(&body[key]));
    let items = body.get("messages").unwrap_or(&body["input"]);
    (head.into_iter().collect(), items.as_array().unwrap().iter().map(plain).collect())
}

/// A call that was answered.
struct Call {
    head: Value,
    items: Vec<Value>,
    tokens: Vec<Token>,
}

fn request(call: &Value) -> Request<Body> {
    let mut request = Request::builder()
        .method(call["method"].as_str().unwrap())
        .uri(call["path"].as_str().unwrap());
    for (key, value) in call["headers"].as_object().unwrap() {
        request = request.header(key, value.as_str().unwrap());
    }
    let body = if call["body"].is_null() { Body::empty() } else { call["body"].to_string().into() };
    request.body(body).unwrap()
}

/// Puts our ids in the place of the recording's, where a call names items of the answer before.
fn with_our_ids(call: &Value, output: &Value) -> Value {
    let mut call = call.clone();
    for item in call["body"]["input"].as_array_mut().into_iter().flatten() {
        if item["type"] == "item_reference" {
            let kind =
                |item: &Value| item["id"].as_str().unwrap().split('_').next().unwrap().to_owned();
            let ours = output.as_array().unwrap().iter().find(|ours| kind(ours) == kind(item));
            item["id"] = ours.unwrap_or_else(|| panic!("{item} in {output}"))["id"].clone();
        }
    }
    call
}

/// The answer, which must be complete.
fn answer(path: &str, streamed: bool, text: &str) -> Value {
    let body = match path.split('?').next().unwrap() {
        _ if !streamed => serde_json::from_str(text).unwrap(),
        "/v1/messages" => message_body(text),
        "/v1/responses" => response_body(text),
        _ => chat_body(text),
    };
    let ends = [&body["stop_reason"], &body["status"], &body["finish_reason"]];
    let known = ["end_turn", "completed", "stop"];
    assert!(ends.iter().any(|end| known.iter().any(|known| **end == *known)), "{text}");
    body
}

#[tokio::test]
async fn recorded_sessions_are_served_and_share_their_prefix() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/requests");
    let found: Vec<String> = sorted(&folder).iter().map(|path| name(path)).collect();
    assert_eq!(found, SESSIONS.map(|(name, ..)| name));
    for (session, generating, extending) in SESSIONS {
        let calls: Vec<(String, Value)> = sorted(&folder.join(session))
            .iter()
            .map(|path| {
                let call = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
                (format!("{session}/{}", name(path)), call)
            })
            .collect();
        let models: BTreeSet<String> = calls
            .iter()
            .filter_map(|(_, call)| call["body"]["model"].as_str().map(str::to_owned))
            .collect();
        let names = models.into_iter().map(|name| &*name.leak()).collect();
        let fake = Arc::new(Fake {
            names,
            context: 1 << 18,
            ..Fake::new(say("<think>\nIgnores\n</think>\n\n🦀 path."))
        });
        let router = frontend::router(fake.clone(), crate::cluster::open(), Limits::default());
        let (mut answered, mut asked, mut extends): (Vec<Call>, _, _) = (Vec::new(), 0, 0);
        let mut output = Value::Null;
        for (name, call) in &calls {
            let request = request(&with_our_ids(call, &output));
            let response = router.clone().oneshot(request).await.unwrap();
            let status = response.status();
            let bytes = axum::body::to_bytes(response.into_body(), 1 << 24).await.unwrap();
            let text = std::str::from_utf8(&bytes).unwrap();
            let body = &call["body"];
            if body.is_null() {
                assert_eq!(status, 200, "{name}");
                continue;
            }
            asked += 1;
            let (head, items) = read(body);
            let same = |before: &&Call| {
                before.head == head
                    && before.items.len() < items.len()
                    && items.starts_with(&before.items)
            };
            let before = answered.iter().rev().find(same);
            extends += usize::from(before.is_some());
            assert_eq!(status, 200, "{name}: {text}");
            let answer = answer(call["path"].as_str().unwrap(), body["stream"] == true, text);
            output = answer["output"].clone();
            let (prompt, want) = fake.prompts.lock().unwrap().pop().unwrap();
            assert_eq!(want.stream, body["stream"] == true);
            assert_eq!(prompt.prefix.len(), prompt.tokens.len() / protocol::hash::GRANULE);
            let tokens = history(&tiny(), &prompt.tokens);
            if let Some(before) = before {
                assert!(tokens.starts_with(&before.tokens), "{name} begins with what it extends");
                // The answer that was begun then is the one that stands there now.
                let next = &items[before.items.len()];
                if next["role"] == "assistant" || next["type"] == "function_call" {
                    let begun = tiny().tokenizer().encode("<|im_start|>assistant\n", false);
                    assert!(tokens[before.tokens.len()..].starts_with(&begun), "{name}");
                }
            }
            answered.push(Call { head, items, tokens });
        }
        assert_eq!((asked, extends), (generating, extending), "{session}");
    }
}
