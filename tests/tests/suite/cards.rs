//! Several models in one cluster: every node takes requests for all of them, also for those whose
//! files it has never seen.

use crate::kit::{Cluster, entry_only, eventually};
use crate::models::tiny;
use load::fleet::NodeOptions;
use serde_json::{Value, json};

/// Takes no requests but for itself; the other models are those of the other nodes.
fn embedded() -> NodeOptions {
    let model = tiny().display().to_string();
    let config =
        format!("[engine]\nmodel = {model:?}\nserved_name = \"qwen\"\naliases = [\"small\"]\n");
    NodeOptions { config, ..NodeOptions::default() }
}

fn mock() -> NodeOptions {
    let config =
        "[engine]\nserved_name = \"played\"\nformat = \"llama\"\n[engine.mock]\nspeedup = 1000\n";
    let args = vec!["--engine".into(), "mock".into()];
    NodeOptions { config: config.into(), args, ..NodeOptions::default() }
}

async fn lists(cluster: &Cluster, node: usize, wanted: &[&str]) {
    eventually(&format!("n{node} lists {wanted:?}"), async || {
        let models = cluster.get(node, "/v1/models").await;
        let data = models["data"].as_array()?;
        let mut names: Vec<&str> = data.iter().filter_map(|model| model["id"].as_str()).collect();
        names.sort_unstable();
        (names == wanted).then_some(())
    })
    .await;
}

fn chat(model: &str) -> Value {
    json!({
        "model": model, "max_tokens": 12, "temperature": 0,
        "messages": [{"role": "user", "content": "Say something about 日本 and 12345."}],
        "nvext": {"extra_fields": ["route"]},
    })
}

#[tokio::test]
async fn every_node_takes_requests_for_every_model() {
    let cluster = Cluster::mixed(vec![embedded(), mock(), entry_only()]).await;
    for node in 0..3 {
        lists(&cluster, node, &["played", "qwen"]).await;
    }
    for (model, server) in [("qwen", 0), ("small", 0), ("played", 1)] {
        let server = cluster.id(server);
        let mut texts = Vec::new();
        for entry in 0..3 {
            let (status, answer) = cluster.post(entry, "/v1/chat/completions", &chat(model)).await;
            assert_eq!(status, 200, "{answer}");
            let route = &answer["nvext"]["route"];
            assert_eq!(route["serving_node"], server.as_str(), "{answer}");
            assert_eq!(route["entry_node"], cluster.id(entry).as_str(), "{answer}");
            texts.push((answer["usage"]["prompt_tokens"].clone(), answer["choices"].clone()));
            // The same tokens wherever they are made, and back.
            let (status, tokens) = cluster.post(entry, "/tokenize", &chat(model)).await;
            assert_eq!(status, 200, "{tokens}");
            assert_eq!(tokens["count"], answer["usage"]["prompt_tokens"], "{tokens}");
            let body = json!({"model": model, "tokens": tokens["tokens"]});
            let (status, text) = cluster.post(entry, "/detokenize", &body).await;
            assert_eq!(status, 200, "{text}");
            assert!(text["prompt"].as_str().unwrap().contains("日本 and 12345"), "{text}");
        }
        // Whichever node renders and tokenises the prompt, the answer is the same: greedy tokens of
        // a real engine, and a mock's script.
        assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
    }
    // Each name has one model: an unknown one is told so, with those that are known.
    // (A node that has just begun hears others first.)
    let error = eventually("the model is unknown", async || {
        let (status, error) = cluster.post(2, "/v1/chat/completions", &chat("none")).await;
        assert!(status == 404 || status == 503, "{error}");
        (status == 404).then_some(error)
    })
    .await;
    assert_eq!(error["error"]["code"], "model_not_found");
    let text = error["error"]["message"].as_str().unwrap();
    assert!(text.contains("played, qwen"), "{text}");
    // A prefix that one entry node made is found by another.
    let (_, answer) = cluster.post(2, "/v1/chat/completions", &chat("qwen")).await;
    assert!(
        answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64() > Some(0),
        "{answer}"
    );
}

#[tokio::test]
async fn a_model_whose_node_died_comes_back_with_it() {
    let mut cluster = Cluster::mixed(vec![entry_only(), embedded()]).await;
    lists(&cluster, 0, &["qwen"]).await;
    let (status, _) = cluster.post(0, "/v1/chat/completions", &chat("qwen")).await;
    assert_eq!(status, 200);
    let folder = cluster.fleet.node(0).data_dir().join("cards");
    let kept = std::fs::read_dir(&folder).unwrap().count();
    assert_eq!(kept, 2, "card and tokenizer");
    cluster.fleet.node_mut(1).kill9().await.unwrap();
    cluster.sees(0, &cluster.id(1), "dead").await;
    // Nobody serves it now, and the client is told to come again, not that it does not exist.
    let (status, error) = cluster.post(0, "/v1/chat/completions", &chat("qwen")).await;
    assert_eq!(status, 503, "{error}");
    let health = cluster.http.get(cluster.url(0, "/health")).send().await.unwrap();
    assert_eq!(health.status(), 503);
    cluster.fleet.node_mut(1).restart().await.unwrap();
    eventually("the model is served again", async || {
        let (status, _) = cluster.post(0, "/v1/chat/completions", &chat("qwen")).await;
        (status == 200).then_some(())
    })
    .await;
    // After a restart of the entry node what it has kept is enough.
    cluster.fleet.node_mut(0).kill9().await.unwrap();
    cluster.fleet.node_mut(0).restart().await.unwrap();
    lists(&cluster, 0, &["qwen"]).await;
    let (status, _) = cluster.post(0, "/v1/chat/completions", &chat("qwen")).await;
    assert_eq!(status, 200);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), kept);
}

#[tokio::test]
async fn damaged_cards_are_fetched_again() {
    let mut cluster = Cluster::mixed(vec![entry_only(), embedded()]).await;
    lists(&cluster, 0, &["qwen"]).await;
    let folder = cluster.fleet.node(0).data_dir().join("cards");
    cluster.fleet.node_mut(0).kill9().await.unwrap();
    for file in std::fs::read_dir(&folder).unwrap() {
        std::fs::write(file.unwrap().path(), "{}").unwrap();
    }
    cluster.fleet.node_mut(0).restart().await.unwrap();
    lists(&cluster, 0, &["qwen"]).await;
    let (status, _) = cluster.post(0, "/v1/chat/completions", &chat("qwen")).await;
    assert_eq!(status, 200);
}
