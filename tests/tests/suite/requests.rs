//! Wrong requests over HTTP: the dialect's words, and the node goes on.

use crate::kit::Cluster;
use crate::models::tiny;
use crate::prompts::text;
use crate::stream::path;
use load::client::Dialect;
use serde_json::{Value, json};

const DIALECTS: [Dialect; 2] = [Dialect::Chat, Dialect::Messages];

/// Posts raw bytes; the answer must be an error in the dialect's form. Returns its message.
async fn refused(cluster: &Cluster, dialect: Dialect, body: String, status: u16) -> Value {
    let request = cluster.http.post(cluster.url(0, path(dialect))).body(body);
    let response = request.header("content-type", "application/json").send().await.unwrap();
    assert_eq!(response.status(), status);
    let answer: Value = response.json().await.unwrap();
    assert!(answer["error"]["message"].is_string(), "{answer}");
    match dialect {
        Dialect::Chat => assert!(answer["error"].get("code").is_some(), "{answer}"),
        Dialect::Messages => assert_eq!(answer["type"], "error", "{answer}"),
    }
    answer["error"].clone()
}

#[tokio::test]
async fn wrong_requests_are_told_what_is_wrong() {
    let cluster = Cluster::plain(&tiny(), 1).await;
    let model = cluster.model.as_str();
    let user = json!([{ "role": "user", "content": "hi" }]);
    for dialect in DIALECTS {
        for (body, status, words) in [
            (
                json!({ "model": model, "messages": [], "max_tokens": 1 }),
                400,
                "messages: at least one",
            ),
            (
                json!({ "model": model, "messages": "hi", "max_tokens": 1 }),
                400,
                "messages: invalid type",
            ),
            (json!({ "model": model, "messages": user, "max_tokens": "many" }), 400, "max_tokens"),
            (json!({ "model": model, "messages": user, "max_tokens": 0 }), 400, "max_tokens"),
            (json!({ "model": "gpt", "messages": user, "max_tokens": 1 }), 404, model),
            (
                json!({ "model": model, "messages": user, "max_tokens": 1, "nvext": { "targt": "x" } }),
                400,
                "`target`",
            ),
            (
                json!({ "model": model, "messages": user, "max_tokens": 1, "nvext": { "target": "x" } }),
                400,
                "nvext.target",
            ),
        ] {
            let error = refused(&cluster, dialect, body.to_string(), status).await;
            let message = error["message"].as_str().unwrap();
            assert!(message.contains(words), "{message:?} does not say {words:?}");
        }
        for broken in ["", "{", "[]", "{\"messages\": [", "null", "\u{0}\u{1}"] {
            refused(&cluster, dialect, broken.to_owned(), 400).await;
        }
    }
    assert_eq!(cluster.leases(0).await, 0.0);
    cluster.answer(&cluster.call(0, "Hello")).await;
}

#[tokio::test]
async fn a_prompt_beyond_the_context_is_refused_before_work() {
    let cluster = Cluster::plain(&tiny(), 1).await;
    let messages = json!([{ "role": "user", "content": text(1, 9000) }]);
    for stream in [false, true] {
        let body = json!({
            "model": cluster.model, "messages": messages, "max_tokens": 8, "stream": stream,
        });
        let chat = refused(&cluster, Dialect::Chat, body.to_string(), 400).await;
        assert_eq!(chat["code"], "context_length_exceeded");
        assert_eq!(chat["type"], "invalid_request_error");
        let message = chat["message"].as_str().unwrap();
        assert!(message.contains("maximum context length is 4096 tokens"), "{message}");
        let anthropic = refused(&cluster, Dialect::Messages, body.to_string(), 400).await;
        assert_eq!(anthropic["type"], "invalid_request_error");
        let message = anthropic["message"].as_str().unwrap();
        assert!(message.starts_with("prompt is too long: "), "{message}");
    }
    let metrics = cluster.metrics(0).await;
    assert_eq!(metrics["dynamo_node_prompt_tokens{source=\"computed\"}"], 0.0);
}

#[tokio::test]
async fn a_target_that_is_not_there() {
    let cluster = Cluster::plain(&tiny(), 1).await;
    let mut call = cluster.call(0, "Hello");
    call.target = Some("ab".repeat(32));
    let outcome = cluster.client.call(&call).await;
    assert_eq!(outcome.status, Some(503), "{outcome:?}");
    cluster.answer(&cluster.call(0, "Hello")).await;
}

/// Most memory that one request of about a megabyte may take, body and answer counted.
const TOKENS_OF_1_MB: u64 = 128 << 20;

#[tokio::test]
async fn counting_the_tokens_of_a_long_text_takes_memory_in_proportion() {
    let mut options = load::fleet::FleetOptions::new(crate::kit::binary(), 1);
    options.per_node = vec![load::fleet::NodeOptions {
        args: vec!["--engine".into(), "mock".into()],
        ..Default::default()
    }];
    let fleet = load::fleet::Fleet::start(options).await.unwrap();
    let node = fleet.node(0);
    let before = node.rss_bytes().unwrap();
    let long = "a word and another\n".repeat((900 << 10) / 19);
    let user = json!([{ "role": "user", "content": long }]);
    for (path, body, counts) in [
        ("/tokenize", json!({ "prompt": long, "return_token_strs": true }), "count"),
        ("/v1/messages/count_tokens", json!({ "messages": user }), "input_tokens"),
    ] {
        let request = crate::kit::http().post(format!("{}{path}", node.http())).json(&body);
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        let answer: Value = response.json().await.unwrap();
        assert!(answer[counts].as_u64().unwrap() >= long.len() as u64, "{path}: each byte a token");
        let taken = node.peak_rss_bytes().unwrap() - before;
        println!("{path}: {} MiB at the peak", taken >> 20);
        assert!(taken < TOKENS_OF_1_MB, "{path} took {} MiB", taken >> 20);
    }
}
