//! Reports of load, a few per second.

use super::Worker;
use crate::pool::BLOCK;
use crate::sequence::Sequence;
use protocol::event::EngineLoad;
use protocol::op::EngineEvent;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Shortest time between two reports.
const INTERVAL: Duration = Duration::from_millis(100);

/// The last report.
#[derive(Default)]
pub(crate) struct Reporter {
    last: Option<(Instant, EngineLoad)>,
}

impl Worker {
    /// Tells the load when it changed and the last report is old enough; otherwise answers when
    /// that will be. A report that does not fit into the channel is tried again.
    pub(super) fn report_load(&mut self) -> Option<Instant> {
        let now = Instant::now();
        if let Some((when, _)) = self.reporter.last
            && now < when + INTERVAL
        {
            return Some(when + INTERVAL);
        }
        let load = self.load();
        if self.reporter.last.is_some_and(|(_, last)| last == load) {
            return None;
        }
        if self.events.try_send(EngineEvent::Load(load)).is_ok() || self.events.is_closed() {
            self.reporter.last = Some((now, load));
            return None;
        }
        Some(now + INTERVAL)
    }

    fn load(&self) -> EngineLoad {
        let (running, waiting) = (self.schedule.running(), self.schedule.waiting());
        let uncached: usize = running.iter().chain(waiting).map(Sequence::uncached).sum();
        let slots: BTreeSet<usize> = running.iter().flat_map(Sequence::slots).copied().collect();
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        EngineLoad {
            prefill_tokens: count(uncached),
            running: count(running.len()),
            waiting: count(waiting.len()),
            seats: count(self.schedule.seats()),
            active_blocks: count(slots.len()),
            total_blocks: count(self.pool.slots()),
            prefill_rate: self.meter.prefill_rate(),
            attention_ns: self.meter.attention_ns(),
            decode_ms: self.meter.decode_ms(),
        }
    }
}

/// Blocks that `tokens` fill, the last one in part.
pub(super) fn blocks(tokens: usize) -> usize {
    tokens.div_ceil(BLOCK)
}
