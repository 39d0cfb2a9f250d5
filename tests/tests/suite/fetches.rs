//! A prefix that lives on one node and a request that runs on another: fetched when that is
//! cheaper, computed when the holder is dead or too slow.

use crate::kit::{Cluster, Spinners, eventually, with_config};
use crate::models::{slow, tiny};
use crate::prompts::{text, words};
use crate::stream::{Stream, body};
use load::client::Dialect;
use load::fleet::NodeOptions;

const FETCHING_WINS: &str =
    "[placement]\nassume_prefill_tokens_s = 100.0\nassume_bandwidth_mb_s = 1000.0\n";
const BLOCK: u64 = 16;

fn shareable(tokens: u64) -> u64 {
    (tokens - 1) / BLOCK * BLOCK
}

#[tokio::test]
async fn the_prefix_of_another_node_arrives() {
    let cluster = Cluster::start(&tiny(), vec![with_config(FETCHING_WINS); 2]).await;
    let (prompt, salt) = (text(1, 5000), "shared");
    let cold = cluster.answer(&cluster.bound(0, &prompt, salt)).await;
    cluster.would_fetch((1, 1, 0), (&prompt, salt), 0.97).await;
    let fetched = cluster.answer(&cluster.bound(1, &prompt, salt)).await;
    let recomputed = cluster.answer(&cluster.bound(1, &prompt, "another")).await;
    let whole = shareable(fetched.prompt_tokens);
    assert!(fetched.cached.peer * 100 >= whole * 95, "{} of {whole}", fetched.cached.peer);
    assert_eq!(recomputed.cached.sum(), 0);
    assert_eq!(fetched.token_ids, cold.token_ids);
    assert_eq!(recomputed.token_ids, cold.token_ids);
    let ttft = |o: &load::client::Outcome| o.ttft.unwrap_or_default();
    println!(
        "{} of {whole} shareable tokens ({} KiB) from the peer: TTFT {:?}; recomputed: TTFT {:?}",
        fetched.cached.peer,
        fetched.cached.peer, // the tiny model's KV takes 1 KiB a token
        ttft(&fetched),
        ttft(&recomputed),
    );
    // What was fetched is this node's own from now on.
    let again = cluster.answer(&cluster.bound(1, &prompt, salt)).await;
    assert!(again.cached.local() * 100 >= whole * 95, "{again:?}");
    let metrics = cluster.metrics(1).await;
    let peer = metrics["dynamo_node_prompt_tokens{source=\"peer\"}"];
    assert_eq!(peer, fetched.cached.peer as f64, "{metrics:?}");
}

#[tokio::test]
async fn load_sends_a_request_to_the_idle_node_which_fetches() {
    let cluster = Cluster::start(slow(), vec![NodeOptions::default(); 2]).await;
    let (prompt, salt) = (words(2, 150), "shared");
    let cold = cluster.answer(&cluster.bound(0, &prompt, salt)).await;
    // Long prompts that only node 0 may take keep it busy until the streams are dropped.
    let mut busy = Vec::new();
    for number in 0..8 {
        let mut body = body(&cluster, &words(100 + number, 1500), 64, true);
        body["nvext"]["target"] = cluster.id(0).into();
        busy.push(Stream::open(&cluster, 0, Dialect::Chat, &body).await);
    }
    eventually("node 1 knows that node 0 is busy", async || {
        let explanation = cluster.explain(1, &prompt, salt).await;
        let winner = explanation["winner"].as_u64()? as usize;
        (explanation["candidates"][winner]["node"] == cluster.id(1).as_str()).then_some(())
    })
    .await;
    let mut call = cluster.call(1, &prompt);
    call.cache_salt = Some(salt.into());
    // What node 1 knows of node 0's load is a moment old; what lands there meanwhile is cached there.
    let run = eventually("node 1 serves it", async || {
        let run = cluster.answer(&call).await;
        (run.serving_node == cluster.id(1)).then_some(run)
    })
    .await;
    drop(busy);
    let whole = shareable(run.prompt_tokens);
    assert!(run.cached.peer * 100 >= whole * 80, "{} of {whole}: {run:?}", run.cached.peer);
    assert_eq!(run.token_ids, cold.token_ids);
}

#[tokio::test]
async fn a_dead_holder_costs_a_recomputation() {
    let mut cluster = Cluster::start(&tiny(), vec![with_config(FETCHING_WINS); 2]).await;
    let (prompt, salt) = (text(3, 4000), "shared");
    let cold = cluster.answer(&cluster.bound(0, &prompt, salt)).await;
    cluster.would_fetch((1, 1, 0), (&prompt, salt), 0.9).await;
    cluster.fleet.node_mut(0).kill9().await.unwrap();
    let run = cluster.answer(&cluster.bound(1, &prompt, salt)).await;
    assert_eq!(run.cached.sum(), 0, "{run:?}");
    assert_eq!(run.computed, run.prompt_tokens);
    assert_eq!(run.token_ids, cold.token_ids);
    println!("with the holder dead: TTFT {:?}", run.ttft);
}

#[tokio::test]
async fn a_slow_holder_is_not_waited_for() {
    // Node 1 knows that the path is slow; node 2 finds out in the middle of the fetch.
    let knows = "[placement]\nassume_bandwidth_mb_s = 0.001\nassume_prefill_tokens_s = 2000.0\n";
    let hopes = "[placement]\nassume_bandwidth_mb_s = 1000.0\nassume_prefill_tokens_s = 2000.0\n";
    let slow = with_config("[transfer]\nthrottle_mb_s = 0.02\n");
    let nodes = vec![slow, with_config(knows), with_config(hopes)];
    let cluster = Cluster::start(&tiny(), nodes).await;
    let (prompt, salt) = (text(4, 4000), "shared");
    let cold = cluster.answer(&cluster.bound(0, &prompt, salt)).await;
    cluster.would_fetch((2, 2, 0), (&prompt, salt), 0.9).await;
    eventually("node 1 knows what node 0 has", async || {
        let explanation = cluster.explain(1, &prompt, salt).await;
        let candidates = explanation["candidates"].as_array()?;
        let holder = candidates.iter().find(|c| c["node"] == cluster.id(0).as_str())?;
        (holder["split"].as_u64()? > 0).then_some(())
    })
    .await;
    let explanation = cluster.explain(1, &prompt, salt).await;
    let candidates = explanation["candidates"].as_array().unwrap();
    let own = candidates.iter().find(|c| c["node"] == cluster.id(1).as_str()).unwrap();
    assert_eq!(own["sources"].as_array().unwrap().len(), 0, "{explanation}");
    assert!(own["estimate"]["cost_ms"].is_number(), "{explanation}");
    let hoping = cluster.answer(&cluster.bound(2, &prompt, salt)).await;
    assert!(hoping.computed > hoping.prompt_tokens / 2, "{hoping:?}");
    let knowing = cluster.answer(&cluster.bound(1, &prompt, salt)).await;
    assert_eq!(knowing.cached.sum(), 0, "{knowing:?}");
    assert_eq!(knowing.token_ids, cold.token_ids);
    assert_eq!(hoping.token_ids, cold.token_ids);
}

#[tokio::test]
async fn fetching_works_while_both_cores_are_busy() {
    let cluster = Cluster::start(&tiny(), vec![with_config(FETCHING_WINS); 2]).await;
    let _spinners = Spinners::start(2);
    let (prompt, salt) = (text(5, 3000), "shared");
    let cold = cluster.answer(&cluster.bound(0, &prompt, salt)).await;
    cluster.would_fetch((1, 1, 0), (&prompt, salt), 0.9).await;
    let fetched = cluster.answer(&cluster.bound(1, &prompt, salt)).await;
    assert!(fetched.cached.peer > 0, "{fetched:?}");
    assert_eq!(fetched.token_ids, cold.token_ids);
}
