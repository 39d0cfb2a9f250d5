//! Checkers: they see what goes in and out of the machines and what lies in memory and on disk, and
//! know nothing of how the machines work. The first thing that is wrong ends the run.

mod accounts;
mod answers;
mod disk;
mod hooks;
mod index;
mod members;
mod pins;
mod queue;
mod quiet;
mod records;
mod regret;
mod slots;
#[cfg(test)]
mod tests;
mod writes;

pub(crate) use quiet::Unrest;

use crate::scenario::Scenario;
use hdrhistogram::Histogram;
use protocol::time::{Span, Time};
use serde::Serialize;

/// Something that must not be.
#[derive(Clone, PartialEq, Eq, Serialize, Debug)]
pub struct Violation {
    /// Which checker found it.
    pub checker: &'static str,
    /// When, in virtual nanoseconds.
    pub at_ns: u64,
    /// On which node, by number.
    pub node: usize,
    /// What.
    pub text: String,
}

/// Names of all checkers.
pub const CHECKERS: [&str; 14] = [
    "slots", "writes", "bytes", "answers", "accounts", "pins", "queue", "members", "disk", "index",
    "leases", "liveness", "wire", "records",
];

/// What a run measures.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    pub(crate) asked: u64,
    pub(crate) served: u64,
    pub(crate) failed: u64,
    pub(crate) vanished: u64,
    pub(crate) replaced: u64,
    pub(crate) resumed: u64,
    pub(crate) verified: u64,
    pub(crate) corrupt: u64,
    pub(crate) crashes: u64,
    pub(crate) engine_deaths: u64,
    pub(crate) freezes: u64,
    pub(crate) cuts: u64,
    pub(crate) twins_stopped: u64,
    pub(crate) reborn: u64,
    pub(crate) incompatible: u64,
    pub(crate) false_deaths: u64,
    pub(crate) false_removals: u64,
    pub(crate) warm_expected: u64,
    pub(crate) warm_found: u64,
    pub(crate) stale_routes: u64,
    pub(crate) placed: u64,
    pub(crate) record_calls: u64,
    pub(crate) records_safe: u64,
    pub(crate) records_confirmed: u64,
    pub(crate) converged_in: Option<Span>,
    /// Time to the first token, microseconds.
    pub(crate) ttft_us: Option<Histogram<u64>>,
    /// From a crash until another node has noticed it, milliseconds.
    pub(crate) noticed_ms: Option<Histogram<u64>>,
    /// Prompt tokens by source: engine, DRAM, disk, peers, computed.
    pub(crate) prompt: [u64; 5],
}

impl Figures {
    fn new() -> Self {
        // Auto-sizing, so that no value is refused.
        let histogram = || Histogram::new(3).ok();
        Self {
            asked: 0,
            served: 0,
            failed: 0,
            vanished: 0,
            replaced: 0,
            resumed: 0,
            verified: 0,
            corrupt: 0,
            crashes: 0,
            engine_deaths: 0,
            freezes: 0,
            cuts: 0,
            twins_stopped: 0,
            reborn: 0,
            incompatible: 0,
            false_deaths: 0,
            false_removals: 0,
            warm_expected: 0,
            warm_found: 0,
            stale_routes: 0,
            placed: 0,
            record_calls: 0,
            records_safe: 0,
            records_confirmed: 0,
            converged_in: None,
            ttft_us: histogram(),
            noticed_ms: histogram(),
            prompt: [0; 5],
        }
    }
}

/// All checkers of a run.
pub(crate) struct Watch {
    pub(crate) violations: Vec<Violation>,
    pub(crate) figures: Figures,
    now: Time,
    answers: answers::Answers,
    slots: slots::Slots,
    writes: writes::Writes,
    pins: pins::Pins,
    queue: queue::Order,
    pub(crate) members: members::Lives,
    disk: disk::Disks,
    pending: hooks::Pending,
    pub(crate) regret: regret::Regret,
    pub(crate) records: records::Book,
}

impl Watch {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        Self {
            violations: Vec::new(),
            figures: Figures::new(),
            now: Time::ZERO,
            answers: answers::Answers::new(scenario),
            slots: slots::Slots::default(),
            writes: writes::Writes::default(),
            pins: pins::Pins::new(scenario),
            queue: queue::Order::new(scenario),
            members: members::Lives::default(),
            disk: disk::Disks::new(scenario),
            pending: hooks::Pending::new(),
            regret: regret::Regret::default(),
            records: records::Book::new(scenario),
        }
    }

    /// Whether nothing wrong was found.
    pub(crate) fn is_fine(&self) -> bool {
        self.violations.is_empty()
    }

    /// The time of what is seen next.
    pub(crate) fn at(&mut self, now: Time) {
        self.now = now;
    }

    /// Something is wrong.
    pub(crate) fn found(&mut self, checker: &'static str, node: usize, text: impl Into<String>) {
        if self.violations.len() < 8 {
            let (at_ns, text) = (self.now.0, text.into());
            self.violations.push(Violation { checker, at_ns, node, text });
        }
    }

    /// Reports what a checker says.
    pub(crate) fn judge(
        &mut self,
        checker: &'static str,
        node: usize,
        verdict: Result<(), String>,
    ) {
        if let Err(text) = verdict {
            self.found(checker, node, text);
        }
    }
}
