//! No slot of an engine is leased twice: a slot given to a sequence to be filled belongs to no other
//! lease, and each such gift begins a new generation.

use protocol::block::{Generation, SlotId, SlotRef};
use protocol::id::EngineId;
use protocol::op::{Grant, LeaseId};
use std::collections::BTreeMap;

/// An engine of a host.
type Pool = (usize, EngineId);

#[derive(Debug, Default)]
struct Lease {
    engine: EngineId,
    private: Vec<SlotId>,
    shared: Vec<SlotId>,
}

#[derive(Debug, Default)]
struct Uses {
    /// The lease that may write it.
    writer: Option<LeaseId>,
    readers: u32,
    generation: Generation,
}

/// Who has which slot.
#[derive(Debug, Default)]
pub(super) struct Slots {
    leases: BTreeMap<(usize, LeaseId), Lease>,
    uses: BTreeMap<(Pool, SlotId), Uses>,
}

impl Slots {
    fn give(&mut self, pool: Pool, lease: LeaseId, slot: SlotRef) -> Result<(), String> {
        let uses = self.uses.entry((pool, slot.slot)).or_default();
        if let Some(other) = uses.writer {
            return Err(format!(
                "slot {} of lease {} is given to lease {}",
                slot.slot.0, other.0, lease.0
            ));
        }
        if uses.readers > 0 {
            let readers = uses.readers;
            return Err(format!(
                "slot {}, read by {readers}, is given to lease {}",
                slot.slot.0, lease.0
            ));
        }
        if slot.generation <= uses.generation {
            let generation = uses.generation.0;
            return Err(format!("slot {} is given again in generation {generation}", slot.slot.0));
        }
        uses.writer = Some(lease);
        uses.generation = slot.generation;
        let held = self.leases.entry((pool.0, lease)).or_default();
        held.engine = pool.1;
        held.private.push(slot.slot);
        Ok(())
    }

    /// A lease is granted.
    pub(super) fn granted(
        &mut self,
        host: usize,
        engine: EngineId,
        grant: &Grant,
    ) -> Result<(), String> {
        let (pool, ready) = ((host, engine), grant.ready as usize);
        for slot in grant.slots.iter().take(ready) {
            let uses = self.uses.entry((pool, slot.slot)).or_default();
            if slot.generation != uses.generation {
                return Err(format!(
                    "slot {} is ready in a generation that it is not in",
                    slot.slot.0
                ));
            }
            uses.readers += 1;
            let held = self.leases.entry((host, grant.lease)).or_default();
            held.engine = engine;
            held.shared.push(slot.slot);
        }
        let mut fresh = grant.slots.iter().skip(ready);
        fresh.try_for_each(|slot| self.give(pool, grant.lease, *slot))
    }

    /// A lease gets more slots.
    pub(super) fn more(
        &mut self,
        host: usize,
        engine: EngineId,
        lease: LeaseId,
        slots: &[SlotRef],
    ) -> Result<(), String> {
        slots.iter().try_for_each(|slot| self.give((host, engine), lease, *slot))
    }

    /// A lease's release reaches the block manager.
    pub(super) fn released(&mut self, host: usize, lease: LeaseId) {
        let Some(held) = self.leases.remove(&(host, lease)) else { return };
        let pool = (host, held.engine);
        for slot in held.private {
            if let Some(uses) = self.uses.get_mut(&(pool, slot)) {
                uses.writer = None;
            }
        }
        for slot in held.shared {
            if let Some(uses) = self.uses.get_mut(&(pool, slot)) {
                uses.readers = uses.readers.saturating_sub(1);
            }
        }
    }

    /// The block manager hears that an engine is gone: its leases end.
    pub(super) fn engine_died(&mut self, host: usize, engine: EngineId) {
        let of = self.leases.iter().filter(|((h, _), lease)| *h == host && lease.engine == engine);
        let of: Vec<LeaseId> = of.map(|((_, id), _)| *id).collect();
        of.into_iter().for_each(|lease| self.released(host, lease));
    }

    /// A process is gone.
    pub(super) fn host_gone(&mut self, host: usize) {
        self.leases.retain(|(h, _), _| *h != host);
        self.uses.retain(|((h, _), _), _| *h != host);
    }

    /// A slot of another live lease on the same engine, to plant a bug with.
    pub(super) fn other_private(&self, host: usize, not: LeaseId) -> Option<SlotId> {
        let mut of = self.leases.iter().filter(|((h, id), _)| *h == host && *id != not);
        of.find_map(|(_, lease)| lease.private.last().copied())
    }

    /// Leases of a host.
    pub(super) fn leases(&self, host: usize) -> usize {
        self.leases.keys().filter(|(h, _)| *h == host).count()
    }
}
