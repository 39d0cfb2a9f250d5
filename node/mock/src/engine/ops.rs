//! Operations of the block manager.

use super::{Engine, Import};
use crate::sequence::Ending;
use crate::{Out, Pattern};
use protocol::op::{Copied, EngineEvent, EngineOp, OpId};
use protocol::time::Time;

impl Engine {
    pub(super) fn op(&mut self, now: Time, op: EngineOp, out: &mut Vec<Out>) {
        let lease = match &op {
            EngineOp::Export { .. } => None,
            EngineOp::Import { lease, .. }
            | EngineOp::Missed { lease, .. }
            | EngineOp::Grant { lease, .. }
            | EngineOp::Abort { lease } => Some(*lease),
        };
        if let Some(lease) = lease
            && !self.places.contains_key(&lease)
        {
            for void in self.early.keep(lease, op) {
                self.void(void, out);
            }
            return;
        }
        match op {
            EngineOp::Import { op, lease, index, to, from, digest } => {
                let wanted = |s: &mut crate::sequence::Sequence| s.importable(index as usize, to);
                if self.sequence(lease).is_some_and(wanted) {
                    self.reads.insert(op, Import { lease, index, to });
                    out.push(Out::Read { op, from, digest });
                } else {
                    out.push(Out::Event(EngineEvent::Imported { op, copied: Copied::Unused }));
                }
            }
            EngineOp::Export { op, from, to } => match self.slots.pattern(from) {
                Some(pattern) => {
                    self.writes.insert(op);
                    out.push(Out::Write { op, pattern, to });
                }
                None => {
                    self.stats.violations += 1;
                    out.push(Out::Event(EngineEvent::Exported { op, digest: None }));
                }
            },
            EngineOp::Missed { lease, index } => {
                if let Some(sequence) = self.sequence(lease) {
                    sequence.missed(index as usize);
                }
            }
            EngineOp::Grant { lease, slots } => {
                if !slots.iter().all(|slot| self.slots.contains(*slot)) {
                    self.stats.violations += 1;
                    return;
                }
                let runs = self.places.get(&lease).is_some_and(|p| self.running.contains_key(p));
                if runs {
                    self.slots.hold(&slots);
                }
                if let Some(sequence) = self.sequence(lease) {
                    sequence.grant(&slots, now);
                }
            }
            EngineOp::Abort { lease } => self.end_early(now, lease, Ending::Aborted, out),
        }
    }

    /// Answers an operation that nobody will want any more.
    pub(super) fn void(&mut self, op: EngineOp, out: &mut Vec<Out>) {
        if let EngineOp::Import { op, .. } = op {
            out.push(Out::Event(EngineEvent::Imported { op, copied: Copied::Unused }));
        }
    }

    /// A DRAM slot was read: what it holds (`None`: no pattern), or why it is not used.
    pub(super) fn import_read(
        &mut self,
        op: OpId,
        found: Result<Option<Pattern>, Copied>,
        out: &mut Vec<Out>,
    ) {
        let Some(Import { lease, index, to }) = self.reads.remove(&op) else { return };
        let block = index as usize;
        let mut outcome = found.err().unwrap_or(Copied::Unused);
        let mut right = true;
        let mut copied = None;
        if let Some(sequence) = self.sequence(lease) {
            match found {
                Ok(pattern) if sequence.importable(block, to) => {
                    let pattern = pattern.unwrap_or(Pattern::TORN);
                    right = sequence.implied(block) == pattern;
                    sequence.imported(block);
                    copied = Some(pattern);
                    outcome = Copied::Used;
                }
                Ok(_) => {}
                // Nobody will bring it now.
                Err(_) => sequence.missed(block),
            }
        }
        if let Some(pattern) = copied {
            self.slots.import(to, pattern, &mut self.stats);
            self.stats.imported += 1;
            self.stats.wrong_bytes += u64::from(!right);
        }
        out.push(Out::Event(EngineEvent::Imported { op, copied: outcome }));
    }
}
