//! Responses that the cluster keeps, on real nodes: from any of them, through deaths and restarts.

use crate::kit::{binary, eventually, http};
use load::fleet::{Fleet, FleetOptions, NodeOptions};
use serde_json::{Value, json};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(20);

async fn fleet(nodes: u32) -> Fleet {
    let mut options = FleetOptions::new(binary(), nodes);
    options.config = "[engine.mock]\nspeedup = 20.0\n".into();
    let mock =
        || NodeOptions { args: vec!["--engine".into(), "mock".into()], ..Default::default() };
    options.per_node = (0..nodes).map(|_| mock()).collect();
    Fleet::start(options).await.unwrap()
}

fn url(fleet: &Fleet, node: usize, path: &str) -> String {
    format!("{}/v1/responses{path}", fleet.node(node).http())
}

async fn respond(fleet: &Fleet, node: usize, previous: &Value, text: &str) -> (u16, Value) {
    let body = json!({"previous_response_id": previous, "input": text, "max_output_tokens": 8});
    let answer = http().post(url(fleet, node, "")).json(&body).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

async fn read(fleet: &Fleet, node: usize, id: &Value) -> (u16, Value) {
    let path = format!("/{}", id.as_str().unwrap());
    let answer = http().get(url(fleet, node, &path)).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

/// Prompt tokens of a response.
fn prompt(response: &Value) -> u64 {
    response["usage"]["input_tokens"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_survives_the_node_that_answered() {
    let mut fleet = fleet(4).await;
    fleet.wait_whole(SOON).await.unwrap();
    let (status, first) = respond(&fleet, 1, &Value::Null, "a long beginning of it all").await;
    assert_eq!(status, 200, "{first}");
    assert_eq!((&first["store"], first.get("nvext")), (&json!(true), None), "kept by two nodes");
    // Known at once everywhere.
    for node in 0..4 {
        assert_eq!(read(&fleet, node, &first["id"]).await, (200, first.clone()), "node {node}");
    }
    fleet.node_mut(1).kill9().await.unwrap();
    for node in [0, 2, 3] {
        let again = eventually("the response is found without its node", async || {
            let (status, second) = respond(&fleet, node, &first["id"], "and on").await;
            (status == 200).then_some(second)
        })
        .await;
        assert!(prompt(&again) > prompt(&first), "the history is part of the prompt");
        assert_eq!(again["previous_response_id"], first["id"]);
    }
    // The owners have it on disk.
    for node in [0, 2, 3] {
        fleet.node_mut(node).kill9().await.unwrap();
    }
    for node in [0, 1, 2, 3] {
        fleet.node_mut(node).restart().await.unwrap();
    }
    fleet.wait_whole(SOON).await.unwrap();
    eventually("it is found after a restart of all", async || {
        (read(&fleet, 3, &first["id"]).await.0 == 200).then_some(())
    })
    .await;
    let path = format!("/{}", first["id"].as_str().unwrap());
    let gone = http().delete(url(&fleet, 2, &path)).send().await.unwrap();
    assert_eq!(gone.status(), 200);
    for node in 0..4 {
        let (status, error) = read(&fleet, node, &first["id"]).await;
        assert_eq!(status, 404, "node {node}: {error}");
        let (status, error) = respond(&fleet, node, &first["id"], "and on").await;
        assert_eq!(
            (status, error["error"]["code"].as_str()),
            (400, Some("previous_response_not_found"))
        );
    }
}

#[tokio::test]
async fn a_node_alone_keeps_what_it_can_and_says_how() {
    let mut fleet = fleet(1).await;
    let (status, first) = respond(&fleet, 0, &Value::Null, "hi").await;
    assert_eq!((status, &first["store"]), (200, &json!(true)), "{first}");
    let asked: Value = http()
        .get(format!("{}/admin/v1/status", fleet.node(0).http()))
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let held = &asked["records"];
    assert_eq!((&held["records"], &held["deletions"]), (&json!(1), &json!(0)), "{held}");
    assert_eq!(held["kinds"]["response"]["records"], 1);
    assert_eq!(held["kinds"]["session"], json!({"records": 0, "deletions": 0, "bytes": 0}));
    assert!(
        held["bytes"].as_u64() > Some(0) && held["bytes"] == held["kinds"]["response"]["bytes"]
    );
    let bench = crate::command::Bench::new();
    let table = bench.run(&format!("status --node {}", fleet.node(0).http())).stdout;
    assert!(table.contains("records here: 1 (") && table.contains("; response: 1, "), "{table}");
    fleet.node_mut(0).kill9().await.unwrap();
    fleet.node_mut(0).restart().await.unwrap();
    let found = eventually("it answers", async || {
        let (status, found) = read(&fleet, 0, &first["id"]).await;
        (status == 200).then_some(found)
    })
    .await;
    assert_eq!(found["output"], first["output"]);
    assert_eq!(respond(&fleet, 0, &first["id"], "more").await.0, 200);
}
