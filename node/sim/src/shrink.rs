//! A smaller scenario that still goes wrong: fewer kinds of faults, fewer nodes, less time.

use crate::scenario::{Faults, Scenario};
use crate::settle::{Options, run};

/// Runs that one search may cost.
const TRIES: u32 = 60;

/// What a search found.
#[derive(Clone, PartialEq, Debug)]
pub struct Shrunk {
    /// The smallest scenario found that still violates the same checker under the same seed.
    pub scenario: Scenario,
    /// Runs that it took.
    pub runs: u32,
}

struct Search<'a> {
    seed: u64,
    options: Options<'a>,
    checker: &'static str,
    best: Scenario,
    runs: u32,
}

impl Search<'_> {
    /// Takes `smaller` if it still goes wrong in the same way.
    fn take(&mut self, smaller: Scenario) -> bool {
        if self.runs >= TRIES || smaller == self.best {
            return false;
        }
        self.runs += 1;
        let same = run(&smaller, self.seed, &self.options).is_ok_and(|report| {
            report.violations.first().is_some_and(|v| v.checker == self.checker)
        });
        if same {
            self.best = smaller;
        }
        same
    }

    fn change(&mut self, change: impl FnOnce(&mut Scenario)) -> bool {
        let mut smaller = self.best.clone();
        change(&mut smaller);
        self.take(smaller)
    }
}

/// Looks for a smaller scenario in which `checker` still finds something, in a bounded number of
/// runs.
pub fn shrink(
    scenario: &Scenario,
    seed: u64,
    checker: &'static str,
    options: &Options<'_>,
) -> Shrunk {
    let options = Options { keep_events: false, ..*options };
    let mut search = Search { seed, options, checker, best: scenario.clone(), runs: 0 };
    search.change(|s| s.faults = Faults::default());
    for (_, off) in Faults::kinds() {
        search.change(|s| off(&mut s.faults));
    }
    search.change(|s| s.cluster.buggify = false);
    while search.best.nodes > 1 && search.change(|s| s.nodes -= 1) {}
    while search.best.seconds > 1 && search.change(|s| s.seconds = (s.seconds * 2 / 3).max(1)) {}
    while search.best.workload.sessions > 1
        && search.change(|s| s.workload.sessions = (s.workload.sessions / 2).max(1))
    {}
    search.change(|s| s.workload.sub_agents = 0);
    search.change(|s| (s.workload.slow_readers, s.workload.vanishing) = (0.0, 0.0));
    search.change(|s| s.workload.priorities = 0.0);
    search.change(|s| s.workload.pins = 0.0);
    Shrunk { scenario: search.best, runs: search.runs }
}
