//! Drawn scenarios, and seeds that once went wrong.

use super::fine;
use sim::{Scenario, ScenarioError};

/// Seeds of drawn scenarios that once violated something, one a line; `#` begins a comment.
const KEPT: &str = include_str!("../seeds.txt");

fn numbers(text: &str) -> impl Iterator<Item = u64> + '_ {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    lines.filter(|line| !line.is_empty()).map(|line| line.parse().expect("a seed"))
}

#[test]
fn seeds_that_went_wrong_once_do_not_again() {
    for seed in numbers(KEPT) {
        fine(&Scenario::drawn(seed), seed);
    }
}

/// Each stretch of seeds is a test of its own, so that they run side by side.
macro_rules! drawn {
    ($($name:ident: $range:expr;)*) => {$(
        #[test]
        fn $name() {
            for seed in $range {
                fine(&Scenario::drawn(seed), seed);
            }
        }
    )*};
}

drawn! {
    drawn_0: 0..12;
    drawn_12: 12..24;
    drawn_24: 24..36;
    drawn_36: 36..48;
    drawn_48: 48..60;
    drawn_60: 60..72;
    drawn_72: 72..84;
    drawn_84: 84..96;
}

#[test]
fn scenarios_in_the_folder_are_fine() -> Result<(), ScenarioError> {
    let texts = [
        include_str!("../../scenarios/weather.toml"),
        include_str!("../../scenarios/disks.toml"),
        include_str!("../../scenarios/crowded.toml"),
    ];
    for (seed, text) in (7..).zip(texts) {
        fine(&Scenario::parse(text)?, seed);
    }
    Ok(())
}
