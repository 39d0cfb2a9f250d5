//! `/tokenize` and `/detokenize`, and the description of the whole surface.

use crate::chat::prompt_of;
use crate::cluster::{CHAT, Fake, Reply, post, posted, request, say, tiny};
use axum::body::Body;
use axum::http::Request;
use frontend::Limits;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;

async fn sent(path: &str, body: Value) -> Value {
    let reply = post(say("ok"), path, &body).await;
    assert_eq!(reply.status, 200, "{body}: {}", reply.text);
    reply.json()
}

#[tokio::test]
async fn a_text_and_its_tokens() {
    let tokens: Vec<u32> = tiny().tokenizer().encode("a 🦀b", true).iter().map(|t| t.0).collect();
    let body = sent("/tokenize", json!({"model": "tiny", "prompt": "a 🦀b"})).await;
    let told = json!({
        "count": tokens.len(), "max_model_len": 4096, "tokens": tokens, "token_strs": null,
    });
    assert_eq!(body, told);
    let body = sent("/tokenize", json!({"prompt": "a b", "return_token_strs": true})).await;
    assert_eq!(body["token_strs"], json!(["a", "Ġb"]));
    assert_eq!(sent("/tokenize", json!({"prompt": ""})).await["count"], 0);
    let reply = post(say("ok"), "/v1/tokenize", &json!({"prompt": "x"})).await;
    assert_eq!(reply.status, 404, "there is one path for it");
}

#[tokio::test]
async fn a_conversation_has_the_tokens_that_it_is_served_with() {
    let body = json!({
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}],
        "tools": [{"type": "function", "function": {"name": "w"}}],
    });
    let prompt = prompt_of(CHAT, &body).await;
    let served: Vec<u32> = prompt.tokens.iter().map(|token| token.0).collect();
    assert_eq!(sent("/tokenize", body.clone()).await["tokens"], json!(served));
    let mut bare = body;
    bare["add_generation_prompt"] = json!(false);
    let history = sent("/tokenize", bare).await["tokens"].clone();
    let begun: Vec<u32> =
        tiny().tokenizer().encode("<|im_start|>assistant\n", false).iter().map(|t| t.0).collect();
    let mut with = history.as_array().unwrap().clone();
    with.extend(begun.iter().map(|token| json!(token)));
    assert_eq!(json!(with), json!(served));
    let text = sent("/detokenize", json!({ "tokens": served })).await;
    let text = text["prompt"].as_str().unwrap().to_owned();
    assert!(text.starts_with("<|im_start|>system\nbe brief"), "{text}");
    assert!(text.ends_with("<|im_start|>assistant\n"), "control tokens are spelt: {text}");
}

#[tokio::test]
async fn wrong_requests_name_the_field() {
    for (path, param, body) in [
        ("/tokenize", "prompt", json!({})),
        ("/tokenize", "prompt", json!({"prompt": 5})),
        ("/tokenize", "prompt", json!({"prompt": "a", "messages": []})),
        ("/tokenize", "messages", json!({"messages": []})),
        ("/tokenize", "messages[0].role", json!({"messages": [{"content": "x"}]})),
        ("/tokenize", "add_special_tokens", json!({"prompt": "a", "add_special_tokens": 1})),
        ("/detokenize", "tokens", json!({})),
        ("/detokenize", "tokens[1]", json!({"tokens": [1, "a"]})),
        ("/detokenize", "tokens[1]", json!({"tokens": [1, 4_000_000_000u32]})),
        ("/detokenize", "tokens[0]", json!({"tokens": [-1]})),
    ] {
        let reply = post(say("ok"), path, &body).await;
        assert_eq!(reply.status, 400, "{body}: {}", reply.text);
        assert_eq!(reply.json()["error"]["param"], param, "{}", reply.text);
    }
    for path in ["/tokenize", "/detokenize"] {
        let body = json!({"model": "gpt", "prompt": "a", "tokens": []});
        assert_eq!(post(say("ok"), path, &body).await.status, 404);
    }
}

async fn get(path: &str, version: bool) -> Reply {
    let mut builder = Request::builder().uri(path);
    if version {
        builder = builder.header("anthropic-version", "2023-06-01");
    }
    let body = builder.body(Body::empty()).unwrap();
    request(Arc::new(Fake::new(say("ok"))), Limits::default(), body).await
}

#[tokio::test]
async fn the_surface_is_described() {
    let document = get("/openapi.json", false).await.json();
    assert_eq!(document["openapi"], "3.1.0");
    let limits = document["info"]["description"].as_str().unwrap();
    assert!(limits.contains(&format!("bodies {} bytes", Limits::default().body_bytes)), "{limits}");
    assert!(document["paths"]["/v1/messages"]["post"].is_object());
}

#[tokio::test]
async fn a_model_whose_name_has_slashes() {
    for path in ["/v1/models/org/alias", "/v1/models/org%2Falias"] {
        let (one, other) = (get(path, false).await, get(path, true).await);
        assert_eq!(
            (one.json()["id"].clone(), one.json()["object"].clone()),
            (json!("tiny"), json!("model"))
        );
        assert_eq!(
            (other.json()["id"].clone(), other.json()["type"].clone()),
            (json!("tiny"), json!("model"))
        );
    }
    for path in ["/v1/models/org/nothing", "/v1/models/%ff", "/v1/models/%00"] {
        let none = get(path, true).await;
        assert_eq!(none.status, 404, "{path}");
        assert_eq!(none.json()["error"]["type"], "not_found_error");
        assert_eq!(get(path, false).await.json()["error"]["code"], "model_not_found");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_text_comes_back(parts in prop::collection::vec(prop::sample::select(vec![
        "hello ", "世界🦀", "<|im_start|>", "<|im_end|>", "\n", "<think>", "\u{0}", "  ", "é",
    ]), 0..8)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let text = parts.concat();
        let told = runtime.block_on(async {
            let tokens = sent("/tokenize", json!({"prompt": text})).await["tokens"].clone();
            sent("/detokenize", json!({ "tokens": tokens })).await["prompt"].clone()
        });
        prop_assert_eq!(told, json!(text));
    }
}

#[tokio::test]
async fn a_large_text_is_tokenised_off_the_async_threads() {
    let text = "Once upon a time, ".repeat(2000);
    let reply = request(
        Arc::new(Fake::new(say("ok"))),
        Limits::default(),
        posted("/tokenize", json!({"prompt": text}).to_string()),
    )
    .await;
    let tokens = tiny().tokenizer().encode(&text, true).len();
    assert_eq!(reply.json()["count"], tokens, "longer than the context, and still told");
}
