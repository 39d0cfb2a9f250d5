//! Reports of load, a few per second.

use super::Engine;
use crate::{Config, Out};
use protocol::event::EngineLoad;
use protocol::op::EngineEvent;
use protocol::time::{Span, Time};

/// Shortest time between two reports.
const INTERVAL: Span = Span::millis(100);
/// Weight of a new sample in the smoothed time of a decode step.
const WEIGHT: f64 = 0.2;

/// The last report, and what was measured.
pub(super) struct Reporter {
    /// No report before.
    next: Time,
    last: Option<EngineLoad>,
    /// Something happened since the last report.
    changed: bool,
    decode_ms: f64,
    prefill_rate: f64,
    attention_ns: f64,
}

impl Reporter {
    /// As after a warm-up: rates are known before the first job.
    pub(super) fn new(config: &Config) -> Self {
        Self {
            next: Time::ZERO,
            last: None,
            changed: true,
            decode_ms: config.timing.step(0, 0, Some(0.0)).as_ms(),
            prefill_rate: config.timing.prefill_rate(config.max_batched_tokens),
            attention_ns: config.timing.attention_ns(),
        }
    }

    pub(super) fn changed(&mut self) {
        self.changed = true;
    }

    /// Takes a step into account.
    pub(super) fn measured(&mut self, prefill: u64, decode: u64, takes: Span) {
        if prefill == 0 && decode > 0 {
            self.decode_ms += WEIGHT * (takes.as_ms() - self.decode_ms);
        }
    }

    /// When the next report is due, if there may be something to tell.
    pub(super) fn due(&self) -> Option<Time> {
        self.changed.then_some(self.next)
    }
}

impl Engine {
    /// Its load now, as reports tell it.
    pub fn load(&self) -> EngineLoad {
        let uncached: usize = self
            .running
            .values()
            .filter(|sequence| sequence.is_prefilling())
            .chain(self.waiting.values())
            .map(|sequence| sequence.uncached())
            .sum();
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        EngineLoad {
            prefill_tokens: count(uncached),
            running: count(self.running.len()),
            waiting: count(self.waiting.len()),
            seats: self.config.max_batch,
            active_blocks: self.slots.active(),
            total_blocks: self.slots.len(),
            prefill_rate: self.reporter.prefill_rate as f32,
            attention_ns: self.reporter.attention_ns as f32,
            decode_ms: self.reporter.decode_ms as f32,
        }
    }

    /// Tells the load when it changed and the last report is old enough.
    pub(super) fn report(&mut self, now: Time, out: &mut Vec<Out>) {
        if self.reporter.due().is_none_or(|due| now < due) {
            return;
        }
        let load = self.load();
        self.reporter.changed = false;
        if self.reporter.last != Some(load) {
            self.reporter.last = Some(load);
            self.reporter.next = now + INTERVAL;
            out.push(Out::Event(EngineEvent::Load(load)));
        }
    }
}
