//! What operators and scripts see: status, metrics, explain, admin rules, models.

use crate::command::{Bench, ports};
use crate::kit::{Cluster, eventually, http};
use crate::models::tiny;
use crate::prompts::text;
use load::client::Dialect;
use load::talk::Conversation;
use serde_json::{Value, json};

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

#[tokio::test]
async fn status_has_the_documented_shape() {
    let cluster = Cluster::plain(&tiny(), 2).await;
    cluster.answer(&cluster.bound(0, &text(1, 600), "salt")).await;
    eventually("blocks are counted", async || {
        let view = cluster.view(1, &cluster.id(0)).await;
        (view["blocks"]["gpu"].as_u64()? > 0 && view["blocks"]["dram"].as_u64()? > 0).then_some(())
    })
    .await;
    let bench = Bench::new();
    let ended = bench.run(&format!("status --json --node {}", cluster.fleet.node(1).http()));
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let status: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(keys(&status), ["cluster", "index", "nodes", "nvme", "records", "self"]);
    assert_eq!(status["self"], cluster.id(1).as_str());
    assert_eq!(status["cluster"], cluster.fleet.node(0).cluster_id());
    assert_eq!(keys(&status["index"]), ["bytes", "entries", "lag_ms"]);
    assert!(status["index"]["entries"].as_u64().unwrap() > 0);
    let nodes = status["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 2);
    for node in nodes {
        let expected = ["blocks", "engines", "http", "id", "incarnation", "path", "site", "state"];
        assert_eq!(keys(node), expected);
        assert_eq!(keys(&node["blocks"]), ["dram", "gpu", "nvme"]);
        assert_eq!(node["state"], "alive");
        assert_eq!(node["incarnation"], 1);
        let position = cluster.fleet.position(node["id"].as_str().unwrap()).unwrap();
        assert_eq!(node["http"], cluster.fleet.node(position).http());
        let engines = node["engines"].as_array().unwrap();
        assert_eq!(engines.len(), 1);
        assert_eq!(keys(&engines[0]), ["load", "model", "name"]);
        assert_eq!(engines[0]["model"], cluster.model.as_str());
        assert!(engines[0]["load"]["total_blocks"].as_u64().unwrap() > 0);
    }
    let table = bench.run(&format!("status --node {}", cluster.fleet.node(1).http())).stdout;
    assert!(table.contains(&cluster.id(0)[..8]) && table.contains("alive"), "{table}");
}

#[tokio::test]
async fn metrics_count_prompt_tokens_by_source() {
    let cluster = Cluster::plain(&tiny(), 1).await;
    let prompt = text(2, 700);
    let cold = cluster.answer(&cluster.bound(0, &prompt, "salt")).await;
    eventually("the lease has ended", async || (cluster.leases(0).await == 0.0).then_some(()))
        .await;
    let warm = cluster.answer(&cluster.bound(0, &prompt, "salt")).await;
    assert!(warm.cached.local() > 0);
    let metrics = cluster.metrics(0).await;
    let source =
        |name: &str| metrics[&format!("dynamo_node_prompt_tokens{{source=\"{name}\"}}")] as u64;
    assert_eq!(source("computed"), cold.computed + warm.computed);
    assert_eq!(source("gpu") + source("dram"), warm.cached.local());
    assert_eq!((source("peer"), source("nvme")), (0, 0));
    assert_eq!(metrics["dynamo_node_requests_served_total"], 2.0);
    let tokens = cold.completion_tokens + warm.completion_tokens;
    assert_eq!(metrics["dynamo_node_output_tokens_total"], tokens as f64);
    assert_eq!(metrics["dynamo_node_members{state=\"alive\"}"], 1.0);
}

/// Cached tokens stand in each dialect's usage, and both dialects share the blocks.
#[tokio::test]
async fn usage_tells_cached_tokens_in_both_dialects() {
    let cluster = Cluster::plain(&tiny(), 1).await;
    let prompt = text(3, 700);
    let body = json!({
        "model": cluster.model,
        "messages": [{ "role": "user", "content": prompt }],
        "max_tokens": 4,
        "temperature": 0,
    });
    let (_, cold) = cluster.post(0, "/v1/chat/completions", &body).await;
    assert_eq!(cold["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    eventually("the lease has ended", async || (cluster.leases(0).await == 0.0).then_some(()))
        .await;
    let (_, chat) = cluster.post(0, "/v1/chat/completions", &body).await;
    let (_, messages) = cluster.post(0, "/v1/messages", &body).await;
    let prompt = chat["usage"]["prompt_tokens"].as_u64().unwrap();
    let cached = chat["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert_eq!(cached, (prompt - 1) / 16 * 16);
    let usage = &messages["usage"];
    assert_eq!(usage["cache_read_input_tokens"], cached, "{messages}");
    let input = usage["input_tokens"].as_u64().unwrap();
    let created = usage["cache_creation_input_tokens"].as_u64().unwrap_or_default();
    assert_eq!(input + created + cached, prompt);
    let words = |answer: &Value| answer["choices"][0]["message"]["content"].clone();
    assert_eq!(words(&chat), words(&cold));
    assert_eq!(messages["content"][0]["text"], words(&cold));
    assert!(cold.get("nvext").is_none(), "told only when asked");
    let count = Conversation::question(body["messages"][0]["content"].as_str().unwrap());
    let counted = cluster.client.count_tokens(cluster.fleet.node(0).http(), &cluster.model, &count);
    assert_eq!(counted.await.unwrap(), prompt);
}

#[tokio::test]
async fn admin_verbs_answer_this_machine_or_the_key() {
    let cluster = Cluster::plain(&tiny(), 1).await;
    let key = std::fs::read_to_string(cluster.fleet.node(0).data_dir().join("admin-key")).unwrap();
    let ask = async |headers: &[(&str, &str)]| {
        let request = http().get(cluster.url(0, "/admin/v1/status"));
        let request =
            headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        request.send().await.unwrap().status().as_u16()
    };
    let bearer = format!("Bearer {}", key.trim());
    assert_eq!(ask(&[]).await, 200);
    assert_eq!(ask(&[("host", "evil.example")]).await, 403);
    assert_eq!(ask(&[("host", "127.0.0.1.evil.example:8000")]).await, 403);
    assert_eq!(ask(&[("host", "localhost"), ("origin", "http://evil.example")]).await, 403);
    assert_eq!(ask(&[("host", "evil.example"), ("authorization", "Bearer wrong")]).await, 403);
    // Whom a proxy on this machine passes on is not on this machine.
    assert_eq!(ask(&[("x-forwarded-for", "10.0.0.7")]).await, 403);
    assert_eq!(ask(&[("via", "1.1 proxy"), ("authorization", &bearer)]).await, 200);
    assert_eq!(ask(&[("host", "evil.example"), ("authorization", &bearer)]).await, 200);
    // Nobody is named by two names, whoever asks.
    let twice = [("host", "localhost"), ("host", "localhost"), ("authorization", bearer.as_str())];
    assert_eq!(ask(&twice).await, 400);
    // A verb that changes something is behind the same door.
    let leave = http().post(cluster.url(0, "/admin/v1/leave")).header("host", "evil.example");
    assert_eq!(leave.send().await.unwrap().status(), 403);
    assert_eq!(cluster.view(0, &cluster.id(0)).await["state"], "alive");
}

#[tokio::test]
async fn admin_verbs_can_have_a_listener_of_their_own() {
    let bench = Bench::new();
    let ((http_port, listen), (admin, _)) = (ports(), ports());
    let mut node = bench.spawn(&format!(
        "start --model {} --data-dir data --http 127.0.0.1:{http_port} --listen 127.0.0.1:{listen} --admin 127.0.0.1:{admin}",
        tiny().display(),
    ));
    eventually("it starts", async || {
        assert!(!node.has_ended());
        node.stdout().starts_with("ready ").then_some(())
    })
    .await;
    let status = async |port: u16| {
        let url = format!("http://127.0.0.1:{port}/admin/v1/status");
        http().get(url).send().await.unwrap().status().as_u16()
    };
    assert_eq!(status(admin).await, 200);
    assert_eq!(status(http_port).await, 404);
    let leave = bench.run(&format!("leave --node http://127.0.0.1:{admin}"));
    assert_eq!(leave.code, Some(0), "{leave:?}");
    assert_eq!(node.ended(std::time::Duration::from_secs(20)).code, Some(0));
}

#[tokio::test]
async fn explain_tells_where_and_why() {
    let cluster = Cluster::plain(&tiny(), 2).await;
    let prompt = text(4, 2000);
    let mut call = cluster.conversation(0, Dialect::Chat, Conversation::question(&prompt));
    call.target = Some(cluster.id(0));
    cluster.answer(&call).await;
    let bench = Bench::new();
    let body =
        json!({ "model": cluster.model, "messages": [{ "role": "user", "content": prompt }] });
    let file = bench.file("request.json", body.to_string());
    let node = cluster.fleet.node(1).http();
    let explanation = eventually("node 1 knows what node 0 has", async || {
        let ended = bench.run(&format!("route explain {file} --json --node {node}"));
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let explanation: Value = serde_json::from_str(&ended.stdout).unwrap();
        let candidates = explanation["candidates"].as_array()?;
        let holder = candidates.iter().find(|c| c["node"] == cluster.id(0).as_str())?;
        (holder["estimate"]["local_tokens"].as_u64()? > 0).then(|| explanation.clone())
    })
    .await;
    assert_eq!(explanation["policy"], "kv");
    let winner = &explanation["candidates"][explanation["winner"].as_u64().unwrap() as usize];
    for part in ["queue_ms", "onboard_ms", "prefill_ms", "decode_ms", "gpu_ms", "cost_ms"] {
        assert!(winner["estimate"][part].is_number(), "{explanation}");
    }
    let words = bench.run(&format!("route explain {file} --node {node}"));
    for id in [cluster.id(0), cluster.id(1)] {
        assert!(words.stdout.contains(&id[..8]), "{}", words.stdout);
    }
    let unknown = bench.file(
        "unknown.json",
        json!({ "model": "x", "messages": [{ "role": "user", "content": "y" }] }).to_string(),
    );
    bench
        .run(&format!("route explain {unknown} --node {node}"))
        .refused_with(1, &["`x`", &cluster.model]);
}
