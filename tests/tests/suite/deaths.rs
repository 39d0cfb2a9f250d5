//! kill -9 of a serving node: before the first token the request goes elsewhere, in the middle of
//! a stream the client is told in its dialect; the others notice, and the node can come back.

use crate::kit::{Cluster, Spinners, entry_only, eventually};
use crate::models::{slow, tiny};
use crate::prompts::words;
use crate::stream::{Stream, body, path};
use load::client::Dialect;
use load::fleet::NodeOptions;
use serde_json::Value;
use std::time::Duration;

/// One node that only takes requests, two that serve them.
async fn entry_and_two(model: &std::path::Path) -> Cluster {
    Cluster::start(model, vec![entry_only(), NodeOptions::default(), NodeOptions::default()]).await
}

/// Waits until one of the nodes 1 and 2 works on something; returns its position.
async fn serving(cluster: &Cluster) -> usize {
    eventually("a node serves the request", async || {
        for node in [1, 2] {
            if cluster.leases(node).await > 0.0 {
                return Some(node);
            }
        }
        None
    })
    .await
}

#[tokio::test]
async fn before_the_first_token_a_request_goes_elsewhere() {
    let mut cluster = entry_and_two(slow()).await;
    let prompt = words(1, 250);
    let expected = cluster.answer(&cluster.call(0, &prompt)).await;
    // Another text, so that nothing of the prompt is cached: prefill takes its time.
    let prompt = format!("Once more. {prompt}");
    let url = cluster.url(0, path(Dialect::Chat));
    let request = cluster.http.post(url).json(&body(&cluster, &prompt, 4, false));
    let request = tokio::spawn(request.send());
    let victim = serving(&cluster).await;
    cluster.fleet.node_mut(victim).kill9().await.unwrap();
    let response = request.await.unwrap().unwrap();
    assert_eq!(response.status(), 200);
    let answer: Value = response.json().await.unwrap();
    assert_eq!(answer["usage"]["completion_tokens"], 4, "{answer}");
    let other = cluster.id(3 - victim);
    assert_eq!(answer["nvext"]["route"]["serving_node"], other.as_str(), "{answer}");

    // The dead node comes back as itself in a new life, and serves again.
    let id = cluster.id(victim);
    let before = cluster.view(0, &id).await["incarnation"].as_u64().unwrap();
    cluster.fleet.node_mut(victim).restart().await.unwrap();
    assert_eq!(cluster.id(victim), id);
    cluster.fleet.wait_whole(Duration::from_secs(60)).await.unwrap();
    let after = cluster.view(0, &id).await["incarnation"].as_u64().unwrap();
    assert!(after > before, "incarnation {before} → {after}");
    let mut call = cluster.call(0, &words(1, 250));
    call.target = Some(id.clone());
    let again = cluster.answer(&call).await;
    assert_eq!(again.serving_node, id);
    assert_eq!(again.token_ids, expected.token_ids);
}

#[tokio::test]
async fn in_the_middle_of_a_stream_the_client_is_told() {
    let mut cluster = entry_and_two(slow()).await;
    let victim = cluster.id(1);
    let mut streams = Vec::new();
    for dialect in [Dialect::Chat, Dialect::Messages] {
        let mut body = body(&cluster, &words(3, 20), 3000, true);
        body["nvext"]["target"] = victim.as_str().into();
        let mut stream = Stream::open(&cluster, 0, dialect, &body).await;
        stream.content().await;
        streams.push(stream);
    }
    cluster.fleet.node_mut(1).kill9().await.unwrap();
    let events: Vec<Vec<String>> =
        [streams.remove(0).rest().await, streams.remove(0).rest().await].into();
    let parsed = |data: &String| serde_json::from_str::<Value>(data).unwrap();

    let chat = &events[0];
    assert_eq!(chat.last().unwrap(), "[DONE]");
    let error = parsed(&chat[chat.len() - 2]);
    assert_eq!(error["error"]["type"], "server_error", "{error}");
    assert!(error["error"]["message"].as_str().unwrap().contains("went away"), "{error}");
    let finished = chat.iter().filter(|data| data.contains("\"finish_reason\":\"")).count();
    assert_eq!(finished, 0, "an answer that broke off has no finish reason");

    let messages = &events[1];
    let error = parsed(messages.last().unwrap());
    assert_eq!(error["type"], "error", "{error}");
    assert_eq!(error["error"]["type"], "overloaded_error", "clients try that again: {error}");
    assert!(error["error"]["message"].as_str().unwrap().contains("went away"), "{error}");
    assert!(!messages.iter().any(|data| data.contains("message_stop")));

    // The entry node lives, counts what broke, and goes on with the node that is left.
    assert_eq!(cluster.metrics(0).await["dynamo_node_requests_broken_total"], 2.0);
    let answer = cluster.answer(&cluster.call(0, "Hello")).await;
    assert_eq!(answer.serving_node, cluster.id(2));
}

#[tokio::test]
async fn a_whole_answer_of_a_lost_node_is_worth_another_try() {
    let mut cluster = Cluster::start(slow(), vec![entry_only(), NodeOptions::default()]).await;
    let ask = |dialect: Dialect, text: &str| {
        let body = body(&cluster, text, 3000, false);
        let request = cluster.http.post(cluster.url(0, path(dialect))).json(&body);
        (dialect, tokio::spawn(request.send()))
    };
    let mut asked = vec![ask(Dialect::Chat, &words(4, 20)), ask(Dialect::Messages, &words(5, 20))];
    eventually("both answers have begun", async || {
        let served = cluster.metrics(0).await["dynamo_node_requests_served_total"];
        (served == 2.0).then_some(())
    })
    .await;
    // These are still at their prompts, or have just begun.
    asked.push(ask(Dialect::Chat, &words(6, 250)));
    asked.push(ask(Dialect::Messages, &words(7, 250)));
    eventually("all are served", async || (cluster.leases(1).await == 4.0).then_some(())).await;
    cluster.fleet.node_mut(1).kill9().await.unwrap();
    for (dialect, request) in asked {
        let response = request.await.unwrap().unwrap();
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()["retry-after"], "1");
        let error: Value = response.json().await.unwrap();
        let kind = match dialect {
            Dialect::Chat => "server_error",
            Dialect::Messages => "overloaded_error",
        };
        assert_eq!(error["error"]["type"], kind, "{error}");
        assert!(error["error"]["message"].as_str().unwrap().contains("went away"), "{error}");
    }
}

#[tokio::test]
async fn a_death_is_noticed_within_five_seconds_on_busy_cores() {
    let mut cluster = Cluster::plain(&tiny(), 3).await;
    let _spinners = Spinners::start(2);
    let victim = cluster.id(2);
    cluster.fleet.node_mut(2).kill9().await.unwrap();
    let noticed = cluster.fleet.wait_gone(&victim, Duration::from_secs(5)).await.unwrap();
    println!("noticed after {noticed:?}");
    for node in [0, 1] {
        cluster.sees(node, &victim, "dead").await;
        let answer = cluster.answer(&cluster.call(node, "Hello")).await;
        assert_ne!(answer.serving_node, victim);
    }
}
