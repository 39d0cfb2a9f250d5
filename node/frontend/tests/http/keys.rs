//! API keys: who is let in, and as whom.

use crate::cluster::{CHAT, COMPLETIONS, Fake, MESSAGES, RESPONSES, posted, say};
use axum::body::Body;
use axum::http::{Request, StatusCode};
use frontend::{Keys, Limits, TenantSpec, router};
use serde_json::{Value, json};
use std::num::NonZeroU32;
use std::sync::Arc;
use tower::ServiceExt;

const KEY: &str = "a-key-of-team-a-0001";
const PATHS: [&str; 8] = [
    CHAT,
    COMPLETIONS,
    MESSAGES,
    RESPONSES,
    "/v1/messages/count_tokens",
    "/v1/responses/input_tokens",
    "/tokenize",
    "/detokenize",
];

fn keys(quota: u32) -> Arc<Keys> {
    let keys = Keys::open();
    keys.replace(&[TenantSpec {
        name: "team-a".into(),
        keys: vec![KEY.into()],
        priority: 7,
        prompt_tokens_per_minute: NonZeroU32::new(quota),
    }])
    .unwrap();
    Arc::new(keys)
}

fn body() -> Value {
    json!({
        "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5,
        "input": "hi", "tokens": [1, 2],
    })
}

/// A body for any of the paths: each takes its own fields out of it, but `prompt` is another thing
/// in Responses.
fn body_for(path: &str) -> String {
    let mut body = body();
    if path == COMPLETIONS {
        body["prompt"] = json!("Once upon a time");
    }
    body.to_string()
}

async fn sent(
    fake: &Arc<Fake>,
    keys: &Arc<Keys>,
    mut request: Request<Body>,
    key: Option<&str>,
) -> (StatusCode, axum::http::HeaderMap, Value) {
    if let Some(key) = key {
        request.headers_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
    }
    let router = router(fake.clone(), keys.clone(), Limits::default());
    let (parts, body) = router.oneshot(request).await.unwrap().into_parts();
    let bytes = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    (parts.status, parts.headers, serde_json::from_slice(&bytes).unwrap_or_default())
}

#[tokio::test]
async fn nothing_under_v1_is_served_without_a_key() {
    let (fake, keys) = (Arc::new(Fake::new(say("ok"))), keys(0));
    let get = |path: &str| Request::builder().uri(path).body(Body::empty()).unwrap();
    for key in [None, Some("another-key-entirely")] {
        for path in PATHS {
            let (status, _, error) = sent(&fake, &keys, posted(path, body_for(path)), key).await;
            assert_eq!(status, 401, "{path}");
            match path.starts_with(MESSAGES) {
                true => assert_eq!(error["error"]["type"], "authentication_error"),
                false => assert_eq!(error["error"]["code"], "invalid_api_key"),
            }
        }
        for path in ["/v1/models", "/v1/models/tiny"] {
            assert_eq!(sent(&fake, &keys, get(path), key).await.0, 401, "{path}");
        }
        for path in ["/health", "/live"] {
            assert_eq!(sent(&fake, &keys, get(path), key).await.0, 200, "{path}");
        }
    }
    assert!(fake.prompts.lock().unwrap().is_empty());
    for path in PATHS {
        let (status, _, answer) = sent(&fake, &keys, posted(path, body_for(path)), Some(KEY)).await;
        assert_eq!(status, 200, "{path}: {answer}");
    }
    assert_eq!(sent(&fake, &keys, get("/v1/models/tiny"), Some(KEY)).await.0, 200);
}

#[tokio::test]
async fn a_tenant_has_its_own_prefixes_and_its_priority() {
    let fake = Arc::new(Fake::new(say("ok")));
    let long = json!({"prompt": "Once upon a time, ".repeat(20)});
    let mut urgent = long.clone();
    urgent["nvext"] = json!({"agent_hints": {"priority": 1}});
    let mut silent = long.clone();
    silent["nvext"] = json!({"extra_fields": ["hints"]});
    let silent = posted(COMPLETIONS, silent.to_string());
    let (status, _, answer) = sent(&fake, &keys(0), silent, Some(KEY)).await;
    assert_eq!(status, 200);
    assert!(!answer.to_string().contains("priority"), "nobody asked for one: {answer}");
    fake.prompts.lock().unwrap().clear();
    for (keys, key, body) in [
        (keys(0), Some(KEY), &long),
        (keys(0), Some(KEY), &urgent),
        (crate::cluster::open(), None, &long),
    ] {
        let request = posted(COMPLETIONS, body.to_string());
        assert_eq!(sent(&fake, &keys, request, key).await.0, 200);
    }
    let prompts = fake.prompts.lock().unwrap();
    let [(ours, _), (named, _), (others, _)] = prompts.as_slice() else { panic!() };
    assert_eq!((ours.tenant.0.as_str(), ours.hints.priority), ("team-a", 7));
    assert_eq!(named.hints.priority, 1);
    assert_eq!((others.tenant.0.as_str(), others.hints.priority), ("local", 0));
    assert_eq!(ours.tokens, others.tokens);
    assert_eq!(ours.prefix, named.prefix);
    assert!(ours.prefix.iter().all(|name| !others.prefix.contains(name)));
}

#[tokio::test]
async fn beyond_its_quota_a_tenant_waits() {
    let (fake, keys) = (Arc::new(Fake::new(say("ok"))), keys(8));
    let mut statuses = Vec::new();
    for _ in 0..3 {
        for path in [CHAT, MESSAGES] {
            let (status, headers, error) =
                sent(&fake, &keys, posted(path, body_for(path)), Some(KEY)).await;
            if status == 429 {
                let seconds: u64 = headers["retry-after"].to_str().unwrap().parse().unwrap();
                assert!((1..=60).contains(&seconds));
                assert_eq!(error["error"]["type"], "rate_limit_error");
            }
            statuses.push(status.as_u16());
        }
    }
    assert_eq!(statuses, [200, 429, 429, 429, 429, 429]);
    assert_eq!(fake.prompts.lock().unwrap().len(), 1, "refused before any work");
}
