//! The last batches of one origin, kept so that others can catch up.

use crate::config::Keep;
use protocol::event::{EventBatch, Seq};
use std::collections::VecDeque;

/// Fixed fields and signature of a batch on the wire, in bytes, rounded up.
const FIXED: usize = 256;

/// What a batch costs in memory and on the wire, about.
pub(crate) fn weight(batch: &EventBatch) -> usize {
    batch.payload.len() + FIXED
}

/// Consecutive batches, oldest first, within two limits.
#[derive(Debug)]
pub(crate) struct Ring {
    batches: VecDeque<EventBatch>,
    bytes: usize,
    keep: Keep,
}

impl Ring {
    pub(crate) fn new(keep: Keep) -> Self {
        Self { batches: VecDeque::new(), bytes: 0, keep }
    }

    pub(crate) fn clear(&mut self) {
        self.batches.clear();
        self.bytes = 0;
    }

    /// Appends; what does not follow the last one starts the ring anew.
    pub(crate) fn push(&mut self, batch: EventBatch) {
        if self.batches.back().is_some_and(|last| last.seq.0.wrapping_add(1) != batch.seq.0) {
            self.clear();
        }
        self.bytes += weight(&batch);
        self.batches.push_back(batch);
        while self.batches.len() > self.keep.count || self.bytes > self.keep.bytes {
            let Some(old) = self.batches.pop_front() else {
                break;
            };
            self.bytes -= weight(&old);
        }
    }

    pub(crate) fn last(&self) -> Option<&EventBatch> {
        self.batches.back()
    }

    /// From `from` on, at most up to `to`; `None` when `from` is not here.
    pub(crate) fn range(&self, from: Seq, to: Seq) -> Option<impl Iterator<Item = &EventBatch>> {
        let first = self.batches.front()?.seq.0;
        let skip = usize::try_from(from.0.checked_sub(first)?).ok()?;
        (skip < self.batches.len())
            .then(|| self.batches.iter().skip(skip).take_while(move |b| b.seq <= to))
    }
}

#[cfg(test)]
mod tests;
