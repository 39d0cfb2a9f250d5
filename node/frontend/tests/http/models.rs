//! Models and health.

use crate::cluster::{CHAT, Fake, posted, request, say};
use axum::body::Body;
use axum::http::Request;
use frontend::Limits;
use serde_json::json;
use std::sync::Arc;

async fn get(fake: Fake, path: &str, version: bool) -> crate::cluster::Reply {
    let mut builder = Request::builder().uri(path);
    if version {
        builder = builder.header("anthropic-version", "2023-06-01");
    }
    request(Arc::new(fake), Limits::default(), builder.body(Body::empty()).unwrap()).await
}

#[tokio::test]
async fn models_in_both_shapes() {
    let fake = || Fake { names: vec!["tiny", "other"], ..Fake::new(say("ok")) };
    let list = get(fake(), "/v1/models", false).await.json();
    assert_eq!(list["object"], "list");
    assert_eq!(list["data"][0]["id"], "tiny");
    assert_eq!(list["data"][0]["object"], "model");
    let list = get(fake(), "/v1/models", true).await.json();
    assert_eq!(
        list["data"][1],
        json!({
            "type": "model", "id": "other", "display_name": "other",
            "created_at": "2000-02-29T12:34:56Z", "max_input_tokens": 4096,
        })
    );
    assert_eq!((&list["first_id"], &list["has_more"]), (&json!("tiny"), &json!(false)));
    let one = get(fake(), "/v1/models/org/alias", false).await;
    assert_eq!(one.json()["id"], "tiny");
    let none = get(fake(), "/v1/models/nothing", false).await;
    assert_eq!(
        (none.status.as_u16(), &none.json()["error"]["code"]),
        (404, &json!("model_not_found"))
    );
}

#[tokio::test]
async fn with_several_models_one_must_be_named() {
    let fake = Arc::new(Fake { names: vec!["tiny", "other"], ..Fake::new(say("ok")) });
    let body = json!({"messages": [{"role": "user", "content": "hi"}]});
    let reply = request(fake, Limits::default(), posted(CHAT, body.to_string())).await;
    assert_eq!(reply.status, 404);
    assert!(reply.text.contains("served models: tiny, other"), "{}", reply.text);
}

#[tokio::test]
async fn a_model_whose_tokenizer_is_on_the_way_is_worth_a_retry() {
    let fake = || Fake { awaited: Some("far"), ..Fake::new(say("ok")) };
    let ask = |model: &str| {
        let body = json!({"model": model, "messages": [{"role": "user", "content": "hi"}]});
        request(Arc::new(fake()), Limits::default(), posted(CHAT, body.to_string()))
    };
    let reply = ask("far").await;
    assert_eq!(reply.status, 503);
    assert_eq!(reply.headers["retry-after"], "1");
    assert!(reply.text.contains("not known here yet"), "{}", reply.text);
    assert_eq!(ask("farther").await.status, 404);
    assert_eq!(ask("tiny").await.status, 200);
    let alone = Fake { names: Vec::new(), ..fake() };
    let body = json!({"messages": [{"role": "user", "content": "hi"}]});
    let reply = request(Arc::new(alone), Limits::default(), posted(CHAT, body.to_string())).await;
    assert_eq!(reply.status, 503);
}

#[tokio::test]
async fn health_follows_readiness() {
    assert_eq!(get(Fake::new(say("ok")), "/health", false).await.status, 200);
    let fake = || Fake { ready: Err("loading the model".into()), ..Fake::new(say("ok")) };
    let sick = get(fake(), "/health", false).await;
    assert_eq!(sick.status, 503);
    assert!(sick.text.contains("loading the model"));
    assert_eq!(get(fake(), "/live", false).await.status, 200);
    let head = Request::builder().method("HEAD").uri("/").body(Body::empty()).unwrap();
    assert_eq!(request(Arc::new(fake()), Limits::default(), head).await.status, 200);
}
