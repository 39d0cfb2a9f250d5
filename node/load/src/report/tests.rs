use super::*;
use crate::client::CallError;
use serde_json::json;

fn outcome(ttft_ms: u64, itl_ms: &[u64], prompt: u64, cached: CachedTokens) -> Outcome {
    Outcome {
        ttft: Some(Duration::from_millis(ttft_ms)),
        itl: itl_ms.iter().map(|ms| Duration::from_millis(*ms)).collect(),
        prompt_tokens: prompt,
        cached,
        ..Outcome::default()
    }
}

fn report() -> Report {
    let mut recorder = Recorder::new("kv", 8, 5);
    let cached = CachedTokens { gpu: 16, dram: 32, nvme: 0, peer: 48 };
    recorder.add(&outcome(100, &[10, 10, 30], 200, cached), 160);
    recorder.add(&outcome(300, &[20], 200, CachedTokens::default()), 0);
    let refused = Outcome {
        error: Some(CallError::BrokenOff("cut".into())),
        prompt_tokens: 1_000,
        ..outcome(9_000, &[], 1_000, cached)
    };
    recorder.add(&refused, 500);
    Report { arms: vec![recorder.arm(), Recorder::new("round-robin", 1, 3).arm()] }
}

#[test]
fn the_json_has_the_documented_keys() {
    let value = serde_json::to_value(report()).unwrap();
    let keys = |value: &serde_json::Value| -> Vec<String> {
        value.as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(keys(&value), ["arms"]);
    let arm = &value["arms"][0];
    assert_eq!(
        keys(arm),
        [
            "policy",
            "sessions",
            "requests",
            "failed",
            "ttft_ms",
            "itl_ms",
            "prompt_tokens",
            "cached_tokens",
            "cached_share",
            "ceiling"
        ]
    );
    assert_eq!(keys(&arm["ttft_ms"]), ["p50", "p90", "p99"]);
    assert_eq!(keys(&arm["itl_ms"]), ["p50", "p90", "p99"]);
    assert_eq!(arm["cached_tokens"], json!({"gpu": 16, "dram": 32, "nvme": 0, "peer": 48}));
    assert_eq!(serde_json::from_value::<Report>(value).unwrap(), report());
}

#[test]
fn figures_are_of_answered_calls_and_the_rest_has_failed() {
    let report = report();
    let arm = &report.arms[0];
    assert_eq!((arm.requests, arm.failed), (5, 3), "one refused, two never sent");
    assert_eq!(arm.prompt_tokens, 400);
    assert_eq!(arm.cached_share, 0.24);
    assert_eq!(arm.ceiling, 0.4);
    let near = |value: Option<f64>, ms: f64| (value.unwrap() - ms).abs() < ms / 500.0;
    assert!(near(arm.ttft_ms.p50, 100.0) && near(arm.ttft_ms.p99, 300.0), "{:?}", arm.ttft_ms);
    assert!(near(arm.itl_ms.p50, 10.0) && near(arm.itl_ms.p90, 30.0), "{:?}", arm.itl_ms);
    let empty = &report.arms[1];
    assert_eq!((empty.failed, empty.cached_share, empty.ttft_ms.p50), (3, 0.0, None));
}

#[test]
fn the_table_fits_on_a_screen() {
    let table = report().table();
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
    assert!(table.contains("round-robin"), "{table}");
    assert!(table.contains("peer 48"), "{table}");
}
