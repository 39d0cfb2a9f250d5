//! Whole worlds: a calm one, many small stormy ones, a few large ones, known bad seeds; and planted
//! bugs, which show that the checkers can fail.
#![allow(clippy::unwrap_used, clippy::expect_used)] // tests

mod plants;
mod seeds;
mod traces;

use sim::{Options, Report, Scenario, run, shrink};

/// Runs a scenario in which nothing may go wrong. A failure prints what is needed to see it again.
fn fine(scenario: &Scenario, seed: u64) -> Report {
    let report = run(scenario, seed, &Options::default()).unwrap();
    if let Some(violation) = report.violations.first() {
        let small = shrink(scenario, seed, violation.checker, &Options::default());
        let options = Options { keep_events: true, ..Options::default() };
        let again = run(&small.scenario, seed, &options).unwrap();
        panic!(
            "seed {seed}: {:#?}\nlast events:\n{}\nshrunk scenario ({} runs), replay with \
             `dynamo-node sim --scenario FILE --seed {seed}`:\n{}",
            report.violations,
            again.last_events.join("\n"),
            small.runs,
            small.scenario.to_toml()
        );
    }
    report
}

#[test]
fn a_calm_cluster_serves_everything_from_caches_and_close_to_the_all_knowing_router() {
    let report = fine(&Scenario::default(), 1);
    let figure = |name: &str| report.figures[name];
    // Only requests that come before a node knows its members can fail.
    assert!(figure("requests_failed") <= 0.1 * figure("requests_asked"));
    assert!(figure("prompt_computed_share") < 0.4, "{}", figure("prompt_computed_share"));
    assert!(figure("prompt_peer_share") > 0.0);
    assert!(figure("regret_share") < 1.0, "{}", figure("regret_share"));
    assert_eq!(figure("false_deaths"), 0.0);
    assert_eq!(figure("blocks_corrupt"), 0.0);
}

#[test]
fn equal_seeds_give_equal_digests_and_others_do_not() {
    let scenario = Scenario { seconds: 5, ..Scenario::drawn(5) };
    let reports = [fine(&scenario, 5), fine(&scenario, 5), fine(&scenario, 6)];
    assert_eq!(reports[0], reports[1]);
    assert_ne!(reports[0].digest, reports[2].digest);
    let keeps = Options { keep_events: true, ..Options::default() };
    let watched = run(&scenario, 5, &keeps).unwrap();
    assert_eq!(watched.digest, reports[0].digest, "keeping the events changes what happens");
}

#[test]
fn a_policy_that_knows_caches_beats_one_that_does_not() {
    let arm = |policy: &str| {
        let mut scenario = Scenario { policy: policy.into(), nodes: 4, ..Scenario::default() };
        scenario.workload.sessions = 12;
        fine(&scenario, 3).figures
    };
    let (kv, round_robin) = (arm("kv"), arm("round-robin"));
    assert!(kv["prompt_computed_share"] < round_robin["prompt_computed_share"]);
    assert!(kv["ttft_p90_ms"] < round_robin["ttft_p90_ms"]);
}

#[test]
fn fifty_nodes_in_bad_weather() {
    let mut scenario = Scenario::drawn(11);
    scenario.nodes = 50;
    scenario.seconds = 4;
    scenario.workload.sessions = 30;
    scenario.faults.topic_loss = 0.01;
    fine(&scenario, 11);
}
