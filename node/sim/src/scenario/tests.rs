use super::*;
use std::collections::BTreeSet;

#[test]
fn defaults_come_back_from_toml() {
    let scenario = Scenario::default();
    assert_eq!(Scenario::parse(&scenario.to_toml()), Ok(scenario.clone()));
    assert_eq!(Scenario::parse(""), Ok(scenario));
}

#[test]
fn drawn_scenarios_are_valid_differ_and_come_back() {
    let mut seen = BTreeSet::new();
    let mut used = BTreeSet::new();
    for seed in 0..300 {
        let scenario = Scenario::drawn(seed);
        assert_eq!(scenario.check(), Ok(()), "seed {seed}");
        let toml = scenario.to_toml();
        assert_eq!(Scenario::parse(&toml), Ok(scenario.clone()));
        assert_eq!(scenario, Scenario::drawn(seed));
        seen.insert(toml);
        for (kind, off) in Faults::kinds() {
            let mut without = scenario.faults.clone();
            off(&mut without);
            if without != scenario.faults {
                used.insert(*kind);
            }
        }
    }
    assert!(seen.len() > 290);
    let all: BTreeSet<&str> = Faults::kinds().iter().map(|(kind, _)| *kind).collect();
    assert_eq!(used, all, "a kind of fault is never drawn");
}

#[test]
fn what_is_wrong_is_named() {
    let wrong = |text: &str| Scenario::parse(text).unwrap_err().to_string();
    assert!(wrong("nodez = 3").contains("nodez"));
    assert!(wrong("[faults]\ntopic_los = 0.1").contains("topic_los"));
    assert!(wrong("nodes = 0").contains("nodes is 0"));
    assert!(wrong("[faults]\ntopic_loss = 1.5").contains("faults.topic_loss"));
    assert!(wrong("[cluster]\nblock_tokens = 20").contains("multiple of 16"));
    assert!(wrong("policy = \"best\"").contains("round-robin"));
    assert!(wrong("[cluster]\ndram_slots = 0").contains("cluster.nvme_slots"));
}
