//! Planted bugs: each must be found by the checker that is there for it.

use sim::{CHECKERS, Options, Plant, run};
use std::collections::BTreeSet;

/// Seeds within which a planted bug must be found. The design allows a thousand.
const SEEDS: u64 = 12;

/// Which checker finds the bug, and after how many seeds.
fn caught(plant: Plant) -> (u64, &'static str) {
    let scenario = plant.scenario();
    let options = Options { plant: Some(plant), ..Options::default() };
    for seed in 0..SEEDS {
        let report = run(&scenario, seed, &options).unwrap();
        if let Some(violation) = report.violations.first() {
            let (checker, text) = (violation.checker, &violation.text);
            assert!(plant.found_by().contains(&checker), "{plant}: found by {checker}: {text}");
            return (seed, checker);
        }
    }
    panic!("{plant} is not found in {SEEDS} seeds");
}

macro_rules! plants {
    ($($name:ident: $plant:ident;)*) => {
        $(#[test]
        fn $name() {
            caught(Plant::$plant);
        })*

        #[test]
        fn every_plant_has_a_test() {
            let tested = [$(Plant::$plant),*];
            assert_eq!(tested.len(), Plant::ALL.len());
            assert!(Plant::ALL.iter().all(|plant| tested.contains(plant)));
        }
    };
}

plants! {
    slot_twice: SlotTwice;
    old_generation: OldGeneration;
    never_release: NeverRelease;
    silent_removal: SilentRemoval;
    false_death: FalseDeath;
    evict_pinned: EvictPinned;
    drop_finished: DropFinished;
    answer_twice: AnswerTwice;
    wrong_token: WrongToken;
    miscount: Miscount;
    skip_digest: SkipDigest;
    trust_dram: TrustDram;
    stale_write: StaleWrite;
    ack_unwritten: AckUnwritten;
    disk_leak: DiskLeak;
    keep_incarnation: KeepIncarnation;
    starve: Starve;
    deaf: Deaf;
    ack_record: AckRecord;
    revive_record: ReviveRecord;
    wrong_record: WrongRecord;
    deny_record: DenyRecord;
    guess_absent: GuessAbsent;
}

/// Without a bug the same scenarios are fine: a checker that always fails proves nothing.
#[test]
fn the_same_scenarios_without_a_bug_are_fine() {
    for plant in Plant::ALL {
        super::fine(&plant.scenario(), 1);
    }
}

#[test]
fn nearly_every_checker_is_proved_by_a_plant() {
    let proved: BTreeSet<&str> =
        Plant::ALL.iter().flat_map(|plant| plant.found_by()).copied().collect();
    let unproved: Vec<&str> = CHECKERS.into_iter().filter(|name| !proved.contains(name)).collect();
    assert_eq!(unproved, ["wire"]);
}
