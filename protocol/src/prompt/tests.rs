use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn sources_add_up_without_wrapping(parts: [u32; 5]) {
        let [gpu, dram, nvme, peer, computed] = parts;
        let sources = PromptSources { gpu, dram, nvme, peer, computed };
        let sum = |parts: &[u32]| {
            u32::try_from(parts.iter().map(|part| u64::from(*part)).sum::<u64>()).unwrap_or(u32::MAX)
        };
        prop_assert_eq!(sources.cached(), sum(&parts[..4]));
        prop_assert_eq!(sources.total(), sum(&parts));
    }
}

#[test]
fn refusals_speak_to_people() {
    let table = [
        (
            Refusal::Busy { retry_after: Span::millis(1500) },
            "all engines are busy; retry in 1500 ms",
        ),
        (Refusal::NoTarget { model: "m".into() }, "no node serves the model \"m\" now"),
        (
            Refusal::TooLong { tokens: 9000, limit: 8192 },
            "prompt is too long: 9000 tokens > 8192 maximum",
        ),
        (Refusal::Gone, "the serving node was lost, is leaving or has restarted"),
        (Refusal::Failed("out of memory".into()), "the serving engine failed: out of memory"),
    ];
    for (refusal, text) in table {
        assert_eq!(refusal.to_string(), text);
    }
}
