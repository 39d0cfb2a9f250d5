use super::*;

fn bounces(believed_ms: f32, waiting_tokens: u32, rate: f32) -> bool {
    let estimate = Estimate { queue_ms: believed_ms, ..Estimate::default() };
    let load =
        EngineLoad { prefill_tokens: waiting_tokens, prefill_rate: rate, ..EngineLoad::default() };
    should_bounce(&estimate, &load)
}

#[test]
fn only_a_much_busier_target_bounces() {
    assert!(!bounces(0.0, 0, 1000.0), "idle");
    assert!(!bounces(0.0, 200, 1000.0), "200 ms are borne");
    assert!(bounces(0.0, 300, 1000.0), "300 ms that nobody expected");
    assert!(!bounces(1000.0, 1500, 1000.0), "half as much again was nearly expected");
    assert!(bounces(1000.0, 2500, 1000.0), "far beyond what was expected");
    assert!(!bounces(0.0, 100_000, 0.0), "an engine that measured nothing cannot tell");
}
