//! Leases: the slots of one request, from grant to release.

use crate::messages::{Out, Prepare};
use crate::ops::Import;
use crate::retain::Wishes;
use crate::store::Store;
use protocol::block::{BlockKey, SignedDigest, SlotId, SlotRef};
use protocol::hash::{PrefixHash, RoutingKey};
use protocol::id::EngineId;
use protocol::op::{ArrivingFrom, EngineOp, LeaseId, OpId};
use protocol::time::Time;
use std::sync::Arc;

/// How far a leased block is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fill {
    /// The engine computes it, now or later.
    Open,
    /// The engine waits for it.
    Arriving(ArrivingFrom),
    /// It will not change.
    Full,
}

/// One block of a sequence.
#[derive(Debug)]
pub(crate) struct LeasedBlock {
    /// Where the sequence has it. Shared when it was ready, else its own.
    pub(crate) slot: SlotRef,
    /// The tier's copy, when that is another one. Leased too, so that the chain stays whole under
    /// the blocks this sequence adds.
    pub(crate) twin: Option<SlotId>,
    pub(crate) fill: Fill,
    /// Known for the prompt's full blocks, and for others once they are full.
    pub(crate) name: Option<PrefixHash>,
    /// The producer's digest, when the block was imported.
    pub(crate) signed: Option<Box<SignedDigest>>,
    /// The legal end that it brought along.
    pub(crate) age: Option<Time>,
}

impl LeasedBlock {
    pub(crate) fn open(slot: SlotRef, name: Option<PrefixHash>) -> Self {
        Self { slot, twin: None, fill: Fill::Open, name, signed: None, age: None }
    }
}

/// A request's lease.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) engine: EngineId,
    pub(crate) key: RoutingKey,
    /// Names of the prompt's granules.
    pub(crate) prefix: Arc<Vec<PrefixHash>>,
    pub(crate) prompt_tokens: u32,
    pub(crate) priority: i32,
    /// Most blocks it can ever need.
    pub(crate) cap: u32,
    pub(crate) wishes: Wishes,
    pub(crate) blocks: Vec<LeasedBlock>,
    /// The first block that is not in the engine's tree.
    pub(crate) frontier: usize,
    /// False once a block could not be named: those after it stay private.
    pub(crate) naming: bool,
    /// Operations for the sequence, until the engine has it.
    pub(crate) held_back: Option<Vec<EngineOp>>,
    /// DRAM blocks on their way because of this lease.
    pub(crate) inbound: Vec<BlockKey>,
    /// DRAM blocks it waits for.
    pub(crate) waiting: Vec<BlockKey>,
    /// Fetches it waits for.
    pub(crate) fetches: Vec<OpId>,
    pub(crate) engine_tokens: u32,
    pub(crate) dram_tokens: u32,
    pub(crate) nvme_tokens: u32,
    pub(crate) peer_tokens: u32,
}

impl Lease {
    /// A granted lease. `blocks` begins with those that are ready, `engine_tokens` long together.
    pub(crate) fn new(
        prepare: &Prepare,
        wishes: Wishes,
        cap: u32,
        blocks: Vec<LeasedBlock>,
        engine_tokens: u32,
    ) -> Self {
        Self {
            engine: prepare.engine,
            key: prepare.key.clone(),
            prefix: prepare.prefix.clone(),
            prompt_tokens: prepare.prompt_tokens,
            priority: prepare.priority,
            cap,
            wishes,
            frontier: blocks.iter().take_while(|block| block.fill == Fill::Full).count(),
            blocks,
            naming: true,
            held_back: Some(Vec::new()),
            inbound: Vec::new(),
            waiting: Vec::new(),
            fetches: Vec::new(),
            engine_tokens,
            dram_tokens: 0,
            nvme_tokens: 0,
            peer_tokens: 0,
        }
    }

    pub(crate) fn block(&self, index: u32) -> Option<&LeasedBlock> {
        self.blocks.get(index as usize)
    }

    pub(crate) fn block_mut(&mut self, index: u32) -> Option<&mut LeasedBlock> {
        self.blocks.get_mut(index as usize)
    }

    /// The name of the block before `index`.
    pub(crate) fn parent(&self, index: u32) -> Option<PrefixHash> {
        self.block(index.checked_sub(1)?)?.name
    }
}

impl Store {
    /// Sends an operation for a sequence, or keeps it until the engine has the sequence.
    pub(crate) fn send(&mut self, id: LeaseId, op: EngineOp, out: &mut Vec<Out>) {
        let Some(lease) = self.leases.get_mut(&id) else {
            return;
        };
        match &mut lease.held_back {
            Some(held) => held.push(op),
            None => out.push(Out::Engine(lease.engine, op)),
        }
    }

    /// The engine has the sequence: what was held back goes out.
    pub(crate) fn submitted(&mut self, id: LeaseId, out: &mut Vec<Out>) {
        let Some(lease) = self.leases.get_mut(&id) else {
            self.counters.stale += 1;
            return;
        };
        let engine = lease.engine;
        let held = lease.held_back.take().unwrap_or_default();
        out.extend(held.into_iter().map(|op| Out::Engine(engine, op)));
    }

    /// Tells a sequence to compute a block it waits for.
    pub(crate) fn miss(&mut self, id: LeaseId, index: u32, out: &mut Vec<Out>) {
        let Some(block) = self.leases.get_mut(&id).and_then(|l| l.block_mut(index)) else {
            return;
        };
        if let Fill::Arriving(_) = block.fill {
            block.fill = Fill::Open;
        }
        self.send(id, EngineOp::Missed { lease: id, index }, out);
    }

    /// Leases more slots for a sequence: as many as it asks for or a batch, whichever is more,
    /// within what it can ever need; what there is, when there is less.
    pub(crate) fn top_up(&mut self, engine: EngineId, id: LeaseId, n: u32, out: &mut Vec<Out>) {
        let batch = self.decode_batch.max(n);
        let Some(lease) = self.lease_of(engine, id) else {
            return;
        };
        let have = u32::try_from(lease.blocks.len()).unwrap_or(u32::MAX);
        let n = batch.min(lease.cap.saturating_sub(have));
        self.submitted(id, out);
        let Some(state) = self.engines.get_mut(&engine) else {
            return;
        };
        let n = if self.buggify.empties_top_up() { 0 } else { n };
        let slots: Vec<SlotRef> = (0..n).map_while(|_| state.tier.take(out)).collect();
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.blocks.extend(slots.iter().map(|slot| LeasedBlock::open(*slot, None)));
        }
        self.counters.top_ups_empty += u64::from(slots.is_empty());
        self.send(id, EngineOp::Grant { lease: id, slots }, out);
    }

    /// Ends a lease: shared and named slots stay as cache, private ones are freed, those that an
    /// operation touches drain.
    pub(crate) fn release(&mut self, id: LeaseId, out: &mut Vec<Out>) {
        let Some(lease) = self.leases.remove(&id) else {
            // Or it had none yet, and waited for another's prefill.
            self.counters.stale += u64::from(!self.flights.leave(id));
            return;
        };
        self.flights.ended(id);
        self.drop_held_back(&lease);
        if let Some(state) = self.engines.get_mut(&lease.engine) {
            state.leases.remove(&id);
            for block in lease.blocks.iter().rev() {
                state.tier.unlease(block.slot.slot);
                if let Some(twin) = block.twin {
                    state.tier.unlease(twin);
                }
            }
        }
        self.part(id, &lease, out);
    }

    /// Ends imports that the engine was never told of.
    fn drop_held_back(&mut self, lease: &Lease) {
        for held in lease.held_back.iter().flatten() {
            if let EngineOp::Import { op, .. } = held
                && let Some(import) = self.ops.end_import(lease.engine, *op)
            {
                self.let_go(&import);
            }
        }
    }

    pub(crate) fn let_go(&mut self, import: &Import) {
        self.dram.unhold(import.from);
        if let Some(state) = self.engines.get_mut(&import.engine) {
            state.tier.unhold(import.to);
        }
    }

    /// Counts an ended lease and ends what only it waited for.
    fn part(&mut self, id: LeaseId, lease: &Lease, out: &mut Vec<Out>) {
        let cached = [lease.engine_tokens, lease.dram_tokens, lease.nvme_tokens, lease.peer_tokens];
        let [engine, dram, nvme, peer] = cached.map(u64::from);
        let prompt = u64::from(lease.prompt_tokens);
        self.counters.queried_tokens += prompt;
        self.counters.engine_tokens += engine;
        self.counters.dram_tokens += dram;
        self.counters.nvme_tokens += nvme;
        self.counters.peer_tokens += peer;
        let cached = engine + dram + nvme + peer;
        self.counters.uncached_tokens += prompt.saturating_sub(cached);
        self.leave_inbound(id, lease, out);
    }

    /// An engine stopped: its leases end, its operations will not be answered, its tier is empty.
    /// What it had written to DRAM stays.
    pub(crate) fn engine_died(&mut self, engine: EngineId, out: &mut Vec<Out>) {
        let Some(state) = self.engines.get_mut(&engine) else {
            self.counters.stale += 1;
            return;
        };
        state.alive = false;
        let leases: Vec<LeaseId> = state.leases.iter().copied().collect();
        for id in leases {
            self.release(id, out);
        }
        for id in self.ops.imports_of(engine) {
            if let Some(import) = self.ops.end_import(engine, id) {
                self.let_go(&import);
            }
        }
        for id in self.ops.exports_of(engine) {
            if let Some(export) = self.ops.end_export(engine, id) {
                self.counters.offload_failed += 1;
                self.dram.unhold(export.to);
                self.not_arrived(&export.key, id, out);
            }
        }
        if let Some(state) = self.engines.get_mut(&engine) {
            state.tier.reset(out);
        }
    }
}
