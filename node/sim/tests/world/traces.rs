//! Recorded loads.

use sim::{Options, Scenario, Trace, run};

/// Sixty requests of six conversations, in the form of Mooncake's traces.
fn mooncake() -> String {
    let line = |n: u64| {
        let (session, turn) = (n % 6, n / 6);
        let ids: Vec<String> = (0..=turn)
            .map(|piece| (1000 * session * u64::from(piece > 0) + piece).to_string())
            .collect();
        format!(
            "{{\"timestamp\": {}, \"input_length\": {}, \"output_length\": 40, \"hash_ids\": [{}]}}\n",
            n * 90,
            512 * (turn + 1),
            ids.join(", ")
        )
    };
    (0..60).map(line).collect()
}

#[test]
fn a_trace_is_played_and_its_prefixes_are_found() {
    let trace = Trace::parse(&mooncake()).unwrap();
    let mut scenario = Scenario { nodes: 3, seconds: 10, ..Scenario::default() };
    scenario.workload.trace_shrink = 4;
    let options = Options { trace: Some(&trace), ..Options::default() };
    let report = run(&scenario, 1, &options).unwrap();
    assert!(report.is_fine(), "{:?}", report.violations);
    // The probes of the liveness phase are asked too.
    assert_eq!(report.figures["requests_asked"], 60.0 + 3.0);
    assert!(report.figures["prompt_computed_share"] < 0.6, "{:?}", report.figures);
    scenario.workload.trace_requests = 10;
    let fewer = run(&scenario, 1, &options).unwrap();
    assert_eq!(fewer.figures["requests_asked"], 10.0 + 3.0);
}
