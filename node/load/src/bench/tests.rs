use super::*;
use crate::fake::{Fake, script};
use std::sync::atomic::Ordering::Relaxed;

fn options(fake: &Fake) -> BenchOptions {
    let mut options = BenchOptions::new(script());
    options.sessions = vec![1, 2];
    options.turns = 2;
    options.pause_mean = Duration::ZERO;
    options.env = fake.env();
    options
}

#[tokio::test]
async fn every_arm_has_fresh_nodes_and_all_its_calls() {
    let fake = Fake::start(3).await;
    let mut lines = Vec::new();
    let report = bench_agents(&options(&fake), |line| lines.push(line.to_owned())).await.unwrap();
    let arms: Vec<(&str, u32, u64, u64)> = report
        .arms
        .iter()
        .map(|arm| (arm.policy.as_str(), arm.sessions, arm.requests, arm.failed))
        .collect();
    let expected =
        [("round-robin", 1, 6, 0), ("kv", 1, 6, 0), ("round-robin", 2, 12, 0), ("kv", 2, 12, 0)];
    assert_eq!(arms, expected);
    for arm in &report.arms {
        assert!(arm.cached_share > 0.0 && arm.ceiling > 0.0 && arm.ceiling < 1.0, "{arm:?}");
        assert!(arm.ttft_ms.p50.is_some());
    }
    assert_eq!(lines.iter().filter(|line| line.contains("starting 3 nodes")).count(), 4);
    assert!(lines.last().unwrap().contains("arm 4 of 4: kv, 2 sessions: 12 of 12 calls"));
}

#[tokio::test]
async fn failures_are_counted_and_told() {
    let fake = Fake::start(3).await;
    fake.0.faults.overloaded.store(true, Relaxed);
    let mut options = options(&fake);
    options.sessions = vec![1];
    options.policies = vec!["kv".into()];
    let mut lines = Vec::new();
    let report = bench_agents(&options, |line| lines.push(line.to_owned())).await.unwrap();
    assert_eq!((report.arms[0].requests, report.arms[0].failed), (6, 6));
    assert!(lines.iter().any(|line| line.contains("the queue is full")), "{lines:?}");
}

#[tokio::test]
async fn an_arm_ends_when_its_time_is_over() {
    let fake = Fake::start(3).await;
    let mut options = options(&fake);
    options.sessions = vec![1];
    options.policies = vec!["kv".into()];
    options.arm_within = Duration::ZERO;
    let report = bench_agents(&options, |_| ()).await.unwrap();
    let arm = &report.arms[0];
    assert_eq!(arm.requests, 6);
    assert!(arm.failed > 0, "calls that were not made have failed");
}
