//! No write to DRAM outside an operation that was given the slot, and no slot given to two operations
//! at once.

use protocol::block::SlotRef;
use protocol::id::EngineId;
use protocol::op::OpId;
use std::collections::BTreeMap;

/// What may write a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Writer {
    Engine(EngineId),
    Transfer,
    Disk,
}

#[derive(Clone, Copy, Debug)]
struct Permit {
    slot: SlotRef,
    writer: Writer,
}

/// Operations under way that write to DRAM, per host.
#[derive(Debug, Default)]
pub(super) struct Writes {
    permits: BTreeMap<(usize, OpId, usize), Permit>,
    slots: BTreeMap<(usize, u32), SlotRef>,
}

impl Writes {
    fn begin(&mut self, host: usize, op: OpId, index: usize, permit: Permit) -> Result<(), String> {
        let slot = permit.slot;
        if let Some(other) = self.slots.insert((host, slot.slot.0), slot) {
            return Err(format!(
                "DRAM slot {} in generation {} is given away again",
                other.slot.0, other.generation.0
            ));
        }
        self.permits.insert((host, op, index), permit);
        Ok(())
    }

    /// An engine may copy into a slot.
    pub(super) fn export(
        &mut self,
        host: usize,
        engine: EngineId,
        op: OpId,
        to: SlotRef,
    ) -> Result<(), String> {
        self.begin(host, op, 0, Permit { slot: to, writer: Writer::Engine(engine) })
    }

    /// Blocks of a peer may be written to slots.
    pub(super) fn fetch(
        &mut self,
        host: usize,
        op: OpId,
        slots: impl Iterator<Item = SlotRef>,
    ) -> Result<(), String> {
        let mut each = slots.enumerate();
        each.try_for_each(|(index, slot)| {
            self.begin(host, op, index, Permit { slot, writer: Writer::Transfer })
        })
    }

    /// The disk may be read into a slot.
    pub(super) fn read(&mut self, host: usize, op: OpId, to: SlotRef) -> Result<(), String> {
        self.begin(host, op, 0, Permit { slot: to, writer: Writer::Disk })
    }

    /// The block manager hears that a part of an operation has ended.
    pub(super) fn end(&mut self, host: usize, op: OpId, index: usize) {
        if let Some(permit) = self.permits.remove(&(host, op, index)) {
            self.slots.remove(&(host, permit.slot.slot.0));
        }
    }

    /// All of an operation has ended.
    pub(super) fn end_all(&mut self, host: usize, op: OpId) {
        let of = self.permits.range((host, op, 0)..=(host, op, usize::MAX));
        let of: Vec<usize> = of.map(|((_, _, index), _)| *index).collect();
        of.into_iter().for_each(|index| self.end(host, op, index));
    }

    /// An engine died with all that it copied.
    pub(super) fn engine_died(&mut self, host: usize, engine: EngineId) {
        let of = self
            .permits
            .iter()
            .filter(|((h, ..), permit)| *h == host && permit.writer == Writer::Engine(engine));
        let of: Vec<OpId> = of.map(|((_, op, _), _)| *op).collect();
        of.into_iter().for_each(|op| self.end_all(host, op));
    }

    /// A process is gone.
    pub(super) fn host_gone(&mut self, host: usize) {
        self.permits.retain(|(h, ..), _| *h != host);
        self.slots.retain(|(h, _), _| *h != host);
    }

    /// Bytes are written.
    pub(super) fn wrote(&mut self, host: usize, to: SlotRef) -> Result<(), String> {
        if self.slots.get(&(host, to.slot.0)) == Some(&to) {
            return Ok(());
        }
        Err(format!("a write to DRAM slot {} outside generation {}", to.slot.0, to.generation.0))
    }
}
