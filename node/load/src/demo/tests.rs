use super::*;
use crate::fake::{Fake, Faults, process_runs, script};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

async fn run(fault: Option<fn(&Faults) -> &AtomicBool>) -> (Demo, String) {
    let fake = Fake::start(NODES).await;
    if let Some(fault) = fault {
        fault(&fake.0.faults).store(true, Relaxed);
    }
    let mut options = DemoOptions::new(script());
    options.env = fake.env();
    options.pause_mean = Duration::ZERO;
    options.settle = [Duration::ZERO; 2];
    options.gone_within = Duration::from_millis(300);
    let mut shown = Vec::new();
    let demo = demo(&options, &mut shown).await.unwrap();
    (demo, String::from_utf8(shown).unwrap())
}

#[tokio::test]
async fn a_good_cluster_passes() {
    let (demo, shown) = run(None).await;
    assert_eq!(demo.verdict(), "PASS", "{shown}");
    assert!(
        shown.lines().all(|line| line.chars().count() <= 100
            || line.contains("dynamo-")
            || line.contains("fake-node")),
        "{shown}"
    );
    let calls =
        shown.lines().filter(|line| line.contains(" chat ") || line.contains(" messages ")).count();
    assert_eq!(calls, 10, "{shown}");
    for part in ["kill -9 of n", "no node sees n", "from a peer", "curl -N http://127.0.0.1:8000"] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    let running = demo.fleet.nodes().iter().filter(|node| process_runs(node.pid())).count();
    assert_eq!(running, 2);
}

/// Planted faults: each check can fail, and says why.
async fn fails(fault: fn(&Faults) -> &AtomicBool, why: &str) {
    let (demo, shown) = run(Some(fault)).await;
    let verdict = demo.verdict();
    assert!(verdict.starts_with("FAIL: ") && verdict.contains(why), "{verdict}\n{shown}");
}

#[tokio::test]
async fn other_tokens_after_a_fetch_fail() {
    fails(|faults| &faults.wrong_after_fetch, "the peer run gave other tokens").await;
}

#[tokio::test]
async fn no_cache_fails() {
    fails(|faults| &faults.no_cache, "cached tokens do not grow").await;
}

#[tokio::test]
async fn refused_calls_fail() {
    fails(|faults| &faults.overloaded, "call 1 failed: status 529").await;
}

#[tokio::test]
async fn nothing_from_a_peer_fails() {
    fails(|faults| &faults.no_fetch, "nothing was fetched from the peer").await;
}

#[tokio::test]
async fn an_unseen_death_fails() {
    fails(|faults| &faults.death_unseen, "is dead but after 0 s the cluster").await;
}

#[tokio::test]
async fn a_demo_that_takes_too_long_is_stopped() {
    let fake = Fake::start(NODES).await;
    let mut options = DemoOptions::new(script());
    options.env = fake.env();
    options.within = Duration::ZERO;
    let error = demo(&options, &mut Vec::new()).await.unwrap_err();
    assert!(matches!(error, LoadError::TooLong(0)), "{error}");
}
