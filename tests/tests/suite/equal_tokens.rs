//! The same prompt gives the same tokens whether its prefix is computed, cached here, fetched from
//! another node, fetched while prefill runs, or computed in a batch with others.

use crate::kit::{Cluster, eventually, with_config};
use crate::models::{smollm2, tiny};
use crate::prompts::{text, words};
use load::client::{Call, Outcome};
use std::time::Instant;

/// Settings that make fetching the better choice on any machine.
const FETCHING_WINS: &str =
    "[placement]\nassume_prefill_tokens_s = 100.0\nassume_bandwidth_mb_s = 1000.0\n";
/// Tokens of a name in the block index: what is shorter cannot be found on another node.
const INDEX_GRANULE: u64 = 64;
const BLOCK: u64 = 16;

/// One prompt and what its cold run gave.
struct Case {
    text: String,
    salt: String,
    cold: Outcome,
}

impl Case {
    /// Tokens of whole blocks that can be reused: the last token is always computed.
    fn shareable(&self) -> u64 {
        (self.cold.prompt_tokens - 1) / BLOCK * BLOCK
    }

    /// Checks a later run against the cold one.
    fn same(&self, how: &str, run: &Outcome) {
        assert_eq!(run.error, None, "{how}: {run:?}");
        assert_eq!(run.prompt_tokens, self.cold.prompt_tokens, "{how}");
        assert_eq!(run.token_ids, self.cold.token_ids, "{how}, {} tokens", run.prompt_tokens);
        assert_eq!(run.cached.sum() + run.computed, run.prompt_tokens, "{how}: {run:?}");
    }
}

fn call(cluster: &Cluster, node: usize, text: &str, salt: &str) -> Call {
    let mut call = cluster.bound(node, text, salt);
    call.max_tokens = 24;
    call
}

/// Runs each prompt cold on node 0 and again from its cache.
async fn cold_and_cached(cluster: &Cluster, prompts: Vec<String>) -> Vec<Case> {
    let mut cases = Vec::new();
    for (number, text) in prompts.into_iter().enumerate() {
        let salt = format!("case {number}");
        let cold = cluster.answer(&call(cluster, 0, &text, &salt)).await;
        assert_eq!(cold.cached.sum(), 0, "a fresh salt finds nothing: {cold:?}");
        assert!(!cold.token_ids.is_empty());
        let case = Case { text, salt, cold };
        // The answer's end may be here before the block manager has all blocks of its prompt.
        eventually("the lease has ended", async || (cluster.leases(0).await == 0.0).then_some(()))
            .await;
        let again = cluster.answer(&call(cluster, 0, &case.text, &case.salt)).await;
        case.same("cached", &again);
        assert_eq!(again.cached.peer, 0);
        assert_eq!(again.cached.local(), case.shareable(), "all whole blocks are reused");
        cases.push(case);
    }
    cases
}

/// Runs each prompt on node 1, which has to fetch what node 0 has.
async fn fetched(cluster: &Cluster, cases: &[Case]) {
    for case in cases {
        let known = case.shareable() >= INDEX_GRANULE;
        if known {
            cluster.would_fetch((1, 1, 0), (&case.text, &case.salt), 0.3).await;
        }
        let run = cluster.answer(&call(cluster, 1, &case.text, &case.salt)).await;
        case.same("fetched", &run);
        assert_eq!(run.cached.local(), 0, "this node has not seen it");
        assert_eq!(run.cached.peer > 0, known, "{run:?}");
    }
}

/// Runs all prompts at once: half on each node, under `salts`.
async fn batched(cluster: &Cluster, cases: &[Case], how: &str, salt: impl Fn(&Case) -> String) {
    let calls = cases.iter().enumerate().map(|(number, case)| {
        let (client, call) =
            (cluster.client.clone(), call(cluster, number % 2, &case.text, &salt(case)));
        tokio::spawn(async move { client.call(&call).await })
    });
    let running: Vec<_> = calls.collect();
    for (case, run) in cases.iter().zip(running) {
        case.same(how, &run.await.unwrap());
    }
}

#[tokio::test]
async fn tiny_model_cold_cached_fetched_and_batched() {
    let cluster = Cluster::start(&tiny(), vec![with_config(FETCHING_WINS); 2]).await;
    // Bytes; the long ones have over 1,500 tokens each.
    let short =
        [1, 60, 150, 220, 260, 300, 333, 380, 420, 470, 520, 600, 680, 760, 850, 950, 1100, 1300];
    let long = [2400, 2700, 3000, 3400, 3900, 4600];
    let lengths = short.iter().chain(&long).enumerate();
    let prompts: Vec<String> = lengths.map(|(seed, bytes)| text(seed as u64, *bytes)).collect();
    let cases = cold_and_cached(&cluster, prompts).await;
    let lengths: Vec<u64> = cases.iter().map(|case| case.cold.prompt_tokens).collect();
    assert!(lengths.len() >= 20, "{lengths:?}");
    assert!(lengths.iter().filter(|length| **length > 1500).count() >= 5, "{lengths:?}");
    assert!(lengths.iter().filter(|length| *length % BLOCK != 0).count() >= 15, "{lengths:?}");
    let generated: usize = cases.iter().map(|case| case.cold.token_ids.len()).sum();
    assert!(generated > 10 * cases.len(), "too little to compare: {generated} tokens");
    fetched(&cluster, &cases).await;
    batched(&cluster, &cases, "batched, cold", |case| format!("batched {}", case.salt)).await;
    batched(&cluster, &cases, "batched, cached", |case| case.salt.clone()).await;
}

#[tokio::test]
async fn tiny_model_equal_prompts_at_once() {
    let cluster = Cluster::plain(&tiny(), 1).await;
    let text = text(92, 3000);
    let calls = vec![call(&cluster, 0, &text, "once"); 6];
    let runs = futures::future::join_all(calls.iter().map(|call| cluster.answer(call))).await;
    let prompt = runs[0].prompt_tokens;
    let computed: u64 = runs.iter().map(|run| run.computed).sum();
    assert!(computed < prompt + 6 * BLOCK, "computed once, but for the last block: {computed}");
    // And as one that nobody shares.
    let alone = cluster.answer(&call(&cluster, 0, &text, "alone")).await;
    assert_eq!(alone.computed, prompt);
    for run in &runs {
        assert_eq!(run.token_ids, alone.token_ids);
    }
}

#[tokio::test]
async fn tiny_model_with_blocks_that_arrive_while_prefill_runs() {
    // Node 0 sends 64 KB/s, 1 KiB a token. Node 1 believes in a fast path and in a prefill of
    // 4,000 tokens a second, so it fetches, waits about a second and goes on alone.
    let late = "[placement]\nassume_prefill_tokens_s = 4000.0\nassume_bandwidth_mb_s = 1000.0\n";
    let slow = "[transfer]\nthrottle_mb_s = 0.064\n";
    let nodes = vec![with_config(slow), with_config(late)];
    let cluster = Cluster::start(&tiny(), nodes).await;
    let cases = cold_and_cached(&cluster, vec![text(90, 3500), text(91, 4500)]).await;
    for case in &cases {
        cluster.would_fetch((1, 1, 0), (&case.text, &case.salt), 0.9).await;
        let run = cluster.answer(&call(&cluster, 1, &case.text, &case.salt)).await;
        case.same("fetched in part", &run);
        assert!(run.cached.peer < case.shareable(), "the path is too slow for all: {run:?}");
        assert!(run.computed > BLOCK, "late blocks are recomputed: {run:?}");
    }
}

#[tokio::test]
async fn newcomers_model_cold_cached_fetched_and_batched() {
    let Some(model) = smollm2() else { return };
    let cluster = Cluster::start(&model, vec![with_config(FETCHING_WINS); 2]).await;
    let started = Instant::now();
    let prompts = vec![text(7, 120), text(8, 300), words(9, 90), words(10, 1520)];
    let cases = cold_and_cached(&cluster, prompts).await;
    let lengths: Vec<u64> = cases.iter().map(|case| case.cold.prompt_tokens).collect();
    assert!(lengths.iter().any(|length| *length > 1500), "{lengths:?}");
    fetched(&cluster, &cases).await;
    batched(&cluster, &cases[..3], "batched, cold", |case| format!("batched {}", case.salt)).await;
    println!("prompts of {lengths:?} tokens in {:?}", started.elapsed());
}
