//! Copies between the engine's pool and DRAM, between steps.

use super::{Export, Worker};
use protocol::block::{ContentDigest, SlotRef};
use protocol::op::{Copied, EngineEvent, LeaseId};

/// Exports per step, so that a long list of them does not hold up decoding.
const EXPORTS_PER_STEP: usize = 8;

impl Worker {
    /// Copies a block in, unless its sequence computes it already or has ended; tells what became of
    /// it. A copy that comes before its job is noted for it.
    pub(super) fn import(
        &mut self,
        lease: LeaseId,
        index: u32,
        to: SlotRef,
        from: SlotRef,
        digest: ContentDigest,
    ) -> Copied {
        let block = index as usize;
        match self.schedule.find(lease) {
            Some(sequence) if !sequence.importable(block, to) => return Copied::Unused,
            Some(_) => {}
            None if self.early.notes(lease).is_none() => return Copied::Unused,
            None => {}
        }
        let outcome = self.copy_in(to, from, digest);
        let copied = outcome == Copied::Used;
        match self.schedule.find(lease) {
            Some(sequence) if copied => sequence.imported(block),
            // Nobody will bring it now.
            Some(sequence) => sequence.missed(block),
            None => {
                if let Some(notes) = self.early.notes(lease) {
                    match copied {
                        true => notes.imported.push((index, to)),
                        false => notes.missed.push(index),
                    }
                }
            }
        }
        outcome
    }

    /// The bytes are looked at every time: what they would change is every answer that uses them.
    fn copy_in(&mut self, to: SlotRef, from: SlotRef, digest: ContentDigest) -> Copied {
        let bytes = match self.dram.reader(from.slot.0, from.generation.0) {
            Ok(bytes) => bytes,
            Err(error) => {
                tracing::debug!(%error, "a block cannot be imported");
                return Copied::Unused;
            }
        };
        match bytes.get(..self.pool.block_bytes()) {
            Some(block) if ContentDigest::of(block) != digest => {
                tracing::error!("a block in DRAM has changed: this machine's memory fails");
                Copied::Corrupt
            }
            Some(_) if self.pool.import(to.slot.0 as usize, &bytes) => Copied::Used,
            _ => Copied::Unused,
        }
    }

    /// Does some of the exports that were asked for.
    pub(super) fn export_some(&mut self) {
        for _ in 0..EXPORTS_PER_STEP {
            let Some(Export { op, from, to }) = self.exports.pop_front() else { return };
            let digest = self.copy_out(from, to);
            self.tell(EngineEvent::Exported { op, digest });
        }
    }

    /// The digest is taken at once, while the bytes are in the cache.
    fn copy_out(&self, from: SlotRef, to: SlotRef) -> Option<ContentDigest> {
        let bytes = self.pool.block_bytes();
        let mut writer = self
            .dram
            .writer(to.slot.0, to.generation.0)
            .inspect_err(|error| tracing::debug!(%error, "a block cannot be exported"))
            .ok()?;
        let into = writer.get_mut(..bytes)?;
        self.pool.export(from.slot.0 as usize, into).then(|| ContentDigest::of(into))
    }
}
