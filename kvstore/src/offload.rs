//! Full blocks: named, put into the engine's tree, written through to DRAM.

use crate::inbound::{Arrival, Cause, Source};
use crate::lease::{Fill, Lease};
use crate::messages::Out;
use crate::ops::Export;
use crate::store::{EngineState, Store};
use crate::tier::{NewBlock, Registered};
use protocol::block::{BlockKey, ContentDigest, SignedDigest};
use protocol::hash::{GRANULE, PrefixHash, Token};
use protocol::id::EngineId;
use protocol::op::{ArrivingFrom, Copied, EngineOp, LeaseId, OpId};
use protocol::time::Time;

/// Most blocks written through at one time, so that an engine is not kept from its work when much
/// of a long prompt is missing in DRAM.
const EXPORTS_AT_ONCE: usize = 64;

/// The name of block `index` of a sequence, from its tokens; `None` when that is not the name the
/// request gave for them, or the block before has none.
fn name(lease: &Lease, index: u32, granules: usize, tokens: &[Token]) -> Option<PrefixHash> {
    let mut parent = match index {
        0 => None,
        _ => Some(lease.parent(index)?),
    };
    let given = lease.prefix.iter().skip((index as usize).saturating_mul(granules));
    let mut given = given.copied().map(Some).chain(std::iter::repeat(None));
    for granule in tokens.chunks_exact(GRANULE) {
        parent = lease.key.extend(parent, granule, &[]);
        if given.next().flatten().is_some_and(|given| Some(given) != parent) {
            return None;
        }
    }
    parent
}

impl Store {
    /// The engine has filled a block.
    pub(crate) fn sealed(
        &mut self,
        now: Time,
        engine: EngineId,
        id: LeaseId,
        index: u32,
        tokens: &[Token],
        out: &mut Vec<Out>,
    ) {
        let Some(state) = self.engines.get(&engine) else {
            self.counters.stale += 1;
            return;
        };
        let granules = state.granules();
        let whole = tokens.len() == granules * GRANULE;
        let Some(lease) = self.lease_of(engine, id) else {
            return;
        };
        let block_name = name(lease, index, granules, tokens);
        let Some(block) = lease.block_mut(index).filter(|b| whole && b.fill != Fill::Full) else {
            self.counters.stale += 1;
            return;
        };
        block.fill = Fill::Full;
        block.signed = None;
        block.age = None;
        block.name = block_name;
        let naming = lease.naming;
        self.counters.misnamed += u64::from(block_name.is_none() && naming);
        self.counters.sealed += 1;
        self.submitted(id, out);
        self.advance(now, id, out);
    }

    /// An import has ended.
    pub(crate) fn imported(
        &mut self,
        now: Time,
        engine: EngineId,
        op: OpId,
        copied: Copied,
        out: &mut Vec<Out>,
    ) {
        let Some(import) = self.ops.end_import(engine, op) else {
            self.counters.stale += 1;
            return;
        };
        self.let_go(&import);
        if copied == Copied::Corrupt {
            self.changed(&import.key, import.from, out);
        }
        let tokens = self.engines.get(&engine).map_or(0, EngineState::block_tokens);
        let Some(lease) = self.leases.get_mut(&import.lease) else {
            return;
        };
        let Some(block) = lease.block_mut(import.index) else {
            return;
        };
        let Fill::Arriving(from) = block.fill else {
            return;
        };
        if copied != Copied::Used {
            block.fill = Fill::Open;
            return;
        }
        block.fill = Fill::Full;
        match from {
            ArrivingFrom::Peer(_) => lease.peer_tokens += tokens,
            ArrivingFrom::Dram => lease.dram_tokens += tokens,
            ArrivingFrom::Nvme => lease.nvme_tokens += tokens,
        }
        self.advance(now, import.lease, out);
    }

    /// Puts a sequence's full blocks into the engine's tree, up to the first that is not full.
    fn advance(&mut self, now: Time, id: LeaseId, out: &mut Vec<Out>) {
        let before = self.leases.get(&id).map(|lease| lease.frontier);
        while self.advance_one(now, id, out) {}
        let Some(lease) = self.leases.get(&id) else {
            return;
        };
        match lease.naming {
            true => self.flights.reached(id, lease.frontier),
            false => self.flights.ended(id),
        }
        if Some(lease.frontier) != before {
            self.write_through(now, id, out);
        }
    }

    fn advance_one(&mut self, now: Time, id: LeaseId, out: &mut Vec<Out>) -> bool {
        let Some(lease) = self.leases.get_mut(&id) else {
            return false;
        };
        let Some(state) = self.engines.get_mut(&lease.engine) else {
            return false;
        };
        let index = u32::try_from(lease.frontier).unwrap_or(u32::MAX);
        let parent = lease.parent(index).map(|name| state.key(name));
        let size = state.block_tokens();
        let start = index.saturating_mul(size);
        let tokens = start.saturating_add(size);
        let stamp = lease.wishes.stamp(start, tokens, now, &self.limits);
        let naming = lease.naming;
        let Some(block) = lease.block_mut(index).filter(|b| naming && b.fill == Fill::Full) else {
            return false;
        };
        let Some(name) = block.name else {
            lease.naming = false;
            return false;
        };
        let (key, signed) = (state.key(name), block.signed.take());
        let new = NewBlock { key, parent, tokens, signed, stamp: stamp.not_beyond(block.age) };
        match state.tier.register(block.slot.slot, new, out) {
            Registered::New => {}
            Registered::Duplicate(first) => {
                self.counters.duplicates += 1;
                state.tier.lease(first);
                block.twin = Some(first);
            }
            Registered::Orphan => {
                lease.naming = false;
                return false;
            }
        }
        lease.frontier += 1;
        true
    }

    /// Writes a sequence's named blocks through to DRAM, as far as they are missing there.
    pub(crate) fn write_through(&mut self, now: Time, id: LeaseId, out: &mut Vec<Out>) {
        let Some(lease) = self.leases.get(&id) else {
            return;
        };
        let Some(state) = self.engines.get(&lease.engine) else {
            return;
        };
        if !state.uses_dram || self.dram.counts().total() == 0 || self.buggify.skips_offload() {
            return;
        }
        let named = lease.blocks.iter().take(lease.frontier).enumerate().rev();
        let keys = named.map_while(|(index, block)| Some((index, state.key(block.name?))));
        let absent = keys.take_while(|(_, key)| self.dram.find(key).is_none());
        // What is on its way is passed over, not stopped at: it may wait for one before it.
        let missing = absent.filter(|(_, key)| !self.inbound.contains(key));
        let missing: Vec<(usize, BlockKey)> = missing.collect();
        for (index, key) in missing.into_iter().rev().take(EXPORTS_AT_ONCE) {
            if !self.export(now, id, index, key, out) {
                self.counters.offload_skipped += 1;
                return;
            }
        }
    }

    fn export(
        &mut self,
        now: Time,
        id: LeaseId,
        index: usize,
        key: BlockKey,
        out: &mut Vec<Out>,
    ) -> bool {
        let Some(lease) = self.leases.get(&id) else {
            return false;
        };
        let engine = lease.engine;
        let Some(state) = self.engines.get(&engine) else {
            return false;
        };
        let Some(from) = state.tier.find(&key) else {
            return false;
        };
        let (index, size) = (u32::try_from(index).unwrap_or(u32::MAX), state.block_tokens());
        let parent = lease.parent(index).map(|name| state.key(name));
        let start = index.saturating_mul(size);
        let tokens = start.saturating_add(size);
        let stamp = lease.wishes.stamp(start, tokens, now, &self.limits);
        let stamp = stamp.not_beyond(state.tier.age(from));
        let known = state.tier.signed(from).cloned().map(Box::new);
        let op = self.ops.next();
        let deadline = now + self.limits.import;
        let (from_engine, cause) = (Source::Engine, Cause::Lease(id));
        let arrival =
            Arrival { key, parent, tokens, cause, from: from_engine, deadline, stamp, op };
        let Some(to) = self.expect(arrival, out) else {
            return false;
        };
        let Some(state) = self.engines.get_mut(&engine) else {
            return false;
        };
        state.tier.hold(from);
        let source = state.tier.current(from);
        self.ops.export(op, Export { engine, key, from, to: to.slot, known });
        out.push(Out::Engine(engine, EngineOp::Export { op, from: source, to }));
        true
    }

    /// A copy to DRAM has ended. The bytes of a block that came from elsewhere must still be
    /// those its producer signed.
    pub(crate) fn exported(
        &mut self,
        engine: EngineId,
        op: OpId,
        digest: Option<ContentDigest>,
        out: &mut Vec<Out>,
    ) {
        let Some(export) = self.ops.end_export(engine, op) else {
            self.counters.stale += 1;
            return;
        };
        self.dram.unhold(export.to);
        let Some(state) = self.engines.get_mut(&engine) else {
            return;
        };
        state.tier.unhold(export.from);
        let Some(digest) = digest else {
            self.counters.offload_failed += 1;
            return self.not_arrived(&export.key, op, out);
        };
        let signed = match export.known {
            Some(known) if known.digest != digest => {
                self.counters.offload_corrupt += 1;
                if let Some(slot) = state.tier.find(&export.key) {
                    state.tier.forget(slot, out);
                }
                return self.not_arrived(&export.key, op, out);
            }
            Some(known) => known,
            None => {
                Box::new(SignedDigest::sign(&self.keypair, self.incarnation, export.key, digest))
            }
        };
        state.tier.sign(&export.key, signed.clone());
        self.arrived(&export.key, op, signed, out);
    }
}
