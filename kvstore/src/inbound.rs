//! Blocks on their way into DRAM, from an engine, from a peer or from NVMe.
//!
//! They arrive in any order. Each waits here, in its leased DRAM slot, until its parent is in
//! DRAM; then it joins the tree and is announced. A block whose parent failed stays while those
//! who wanted it live, because a request may still compute the parent; it can be imported and
//! lent from here all the same.

use crate::lease::{Fill, Lease};
use crate::messages::Out;
use crate::ops::Import;
use crate::retain::{Owner, Stamp};
use crate::store::Store;
use crate::tier::{NewBlock, Registered};
use protocol::block::{BlockKey, SignedDigest, SlotId, SlotRef, StorageId};
use protocol::hash::PrefixHash;
use protocol::id::NodeId;
use protocol::op::{ArrivingFrom, EngineOp, LeaseId, OpId, ReadId};
use protocol::time::Time;
use std::collections::{BTreeMap, BTreeSet};

/// A block that is to arrive.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) key: BlockKey,
    pub(crate) parent: Option<BlockKey>,
    pub(crate) tokens: u32,
    /// Because of whom it comes.
    pub(crate) cause: Cause,
    pub(crate) from: Source,
    pub(crate) deadline: Time,
    pub(crate) stamp: Stamp,
    pub(crate) op: OpId,
}

/// Where a block comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    Engine,
    Peer(NodeId),
    Nvme,
}

/// Who wants a block brought up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// A request.
    Lease(LeaseId),
    /// A peer's read.
    Read(ReadId),
    /// A guess: it stays only where its parent is.
    Prefetch,
}

#[derive(Debug)]
enum State {
    UnderWay,
    Arrived(Box<SignedDigest>),
}

#[derive(Debug)]
struct Incoming {
    arrival: Arrival,
    /// Leased; held too while the operation runs.
    slot: SlotRef,
    state: State,
    /// Sequences that want a copy, with the block's index in each.
    waiters: Vec<(LeaseId, u32)>,
    /// Peers' reads that want it.
    readers: Vec<ReadId>,
    /// The parent's slot in DRAM, held so that it is not evicted.
    parent_slot: Option<SlotId>,
}

/// All blocks on their way into DRAM.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    blocks: BTreeMap<BlockKey, Incoming>,
    /// (parent, child).
    edges: BTreeSet<(BlockKey, BlockKey)>,
}

impl Inbound {
    pub(crate) fn contains(&self, key: &BlockKey) -> bool {
        self.blocks.contains_key(key)
    }

    /// A block that has arrived and waits for its parent.
    pub(crate) fn arrived(&self, key: &BlockKey) -> Option<(SlotId, &SignedDigest)> {
        let entry = self.blocks.get(key)?;
        match &entry.state {
            State::UnderWay => None,
            State::Arrived(signed) => Some((entry.slot.slot, signed)),
        }
    }

    /// Lets a peer's read wait for a block that comes from NVMe; false when none does.
    pub(crate) fn wait(&mut self, key: &BlockKey, read: ReadId) -> bool {
        let entry = self.blocks.get_mut(key);
        let coming = entry.filter(|entry| {
            entry.arrival.from == Source::Nvme && matches!(entry.state, State::UnderWay)
        });
        let Some(entry) = coming else {
            return false;
        };
        entry.readers.push(read);
        true
    }

    /// A peer's read waits for a block no longer.
    pub(crate) fn unwait(&mut self, key: &BlockKey, read: ReadId) {
        if let Some(entry) = self.blocks.get_mut(key) {
            entry.readers.retain(|reader| *reader != read);
        }
    }

    /// Ends a session's claims on what is on its way.
    pub(crate) fn finish(&mut self, owner: &Owner) {
        for entry in self.blocks.values_mut() {
            entry.arrival.stamp.end(owner);
        }
    }

    fn children(&self, key: &BlockKey) -> Vec<BlockKey> {
        let lowest = BlockKey { prefix: PrefixHash(0), storage: StorageId(0) };
        let of_key = self.edges.range((*key, lowest)..).take_while(|(parent, _)| parent == key);
        of_key.map(|(_, child)| *child).collect()
    }

    fn remove(&mut self, key: &BlockKey) -> Option<Incoming> {
        let entry = self.blocks.remove(key)?;
        if let Some(parent) = entry.arrival.parent {
            self.edges.remove(&(parent, *key));
        }
        Some(entry)
    }
}

impl Store {
    /// Leases a DRAM slot for a block; `None` without room. The operation's hold is taken too.
    pub(crate) fn expect(&mut self, arrival: Arrival, out: &mut Vec<Out>) -> Option<SlotRef> {
        // Held before a slot is taken: that may evict, and the parent may be a leaf now.
        let parent_slot = arrival.parent.and_then(|parent| self.dram.find(&parent));
        parent_slot.into_iter().for_each(|slot| self.dram.hold(slot));
        let Some(slot) = self.dram.take(out) else {
            parent_slot.into_iter().for_each(|slot| self.dram.unhold(slot));
            return None;
        };
        self.dram.hold(slot.slot);
        let key = arrival.key;
        if let Some(parent) = arrival.parent {
            self.inbound.edges.insert((parent, key));
        }
        match arrival.cause {
            Cause::Lease(id) => {
                if let Some(lease) = self.leases.get_mut(&id) {
                    lease.inbound.push(key);
                }
            }
            Cause::Read(id) => self.reads.brings(id, key),
            Cause::Prefetch => {}
        }
        let (waiters, readers) = (Vec::new(), Vec::new());
        let state = State::UnderWay;
        let entry = Incoming { arrival, slot, state, waiters, readers, parent_slot };
        self.inbound.blocks.insert(key, entry);
        Some(slot)
    }

    /// Lets a sequence wait for a block on its way, or imports it when it is here already. `None`
    /// when the block is not on its way.
    pub(crate) fn join(
        &mut self,
        id: LeaseId,
        index: u32,
        key: &BlockKey,
        out: &mut Vec<Out>,
    ) -> Option<(ArrivingFrom, Time)> {
        let entry = self.inbound.blocks.get_mut(key)?;
        let from = match entry.arrival.from {
            Source::Engine => ArrivingFrom::Dram,
            Source::Peer(node) => ArrivingFrom::Peer(node),
            Source::Nvme => ArrivingFrom::Nvme,
        };
        let answer = (from, entry.arrival.deadline);
        let (slot, op) = (entry.slot.slot, entry.arrival.op);
        let here = match &entry.state {
            State::UnderWay => None,
            State::Arrived(signed) => Some((signed.clone(), entry.arrival.stamp.age)),
        };
        match here {
            Some((signed, age)) => self.import(id, index, slot, signed, age, out),
            None => {
                entry.waiters.push((id, index));
                self.counters.prefetch_late += u64::from(self.prefetches.late(key));
                if let Some(lease) = self.leases.get_mut(&id) {
                    lease.waiting.push(*key);
                    if matches!(from, ArrivingFrom::Peer(_)) && !lease.fetches.contains(&op) {
                        lease.fetches.push(op);
                    }
                }
            }
        }
        Some(answer)
    }

    /// Copies a DRAM block into a sequence's slot.
    pub(crate) fn import(
        &mut self,
        id: LeaseId,
        index: u32,
        from: SlotId,
        signed: Box<SignedDigest>,
        age: Option<Time>,
        out: &mut Vec<Out>,
    ) {
        let Some(lease) = self.leases.get_mut(&id) else {
            return;
        };
        let engine = lease.engine;
        let Some(block) = lease.block_mut(index) else {
            return;
        };
        let to = block.slot;
        let (key, digest) = (signed.key, signed.digest);
        block.signed = Some(signed);
        block.age = age;
        if let Some(state) = self.engines.get_mut(&engine) {
            state.tier.hold(to.slot);
        }
        self.dram.hold(from);
        let op = self.ops.next();
        self.ops.import(op, Import { engine, lease: id, index, to: to.slot, from, key });
        let from = self.dram.current(from);
        self.send(id, EngineOp::Import { op, lease: id, index, to, from, digest }, out);
    }

    /// A block's bytes are in its DRAM slot. The caller has ended the operation's hold.
    pub(crate) fn arrived(
        &mut self,
        key: &BlockKey,
        op: OpId,
        signed: Box<SignedDigest>,
        out: &mut Vec<Out>,
    ) {
        let Some(entry) = self.inbound.blocks.get_mut(key) else {
            return;
        };
        if entry.arrival.op != op {
            return;
        }
        let (slot, age) = (entry.slot.slot, entry.arrival.stamp.age);
        let waiters = std::mem::take(&mut entry.waiters);
        let readers = std::mem::take(&mut entry.readers);
        entry.state = State::Arrived(signed.clone());
        self.ahead_decided(key, true);
        for (id, index) in waiters {
            let block = self.leases.get(&id).and_then(|lease| lease.block(index));
            match block.map(|block| block.fill) {
                Some(Fill::Arriving(_)) => self.import(id, index, slot, signed.clone(), age, out),
                Some(_) => self.miss(id, index, out),
                None => {}
            }
        }
        for read in readers {
            self.staged(read, key, Some((slot, (*signed).clone())), out);
        }
        self.promote(*key, out);
        self.drop_hopeless(*key, out);
    }

    /// The bytes of a block that was to be copied from DRAM have changed there. The caller has ended
    /// the operation's hold.
    pub(crate) fn changed(&mut self, key: &BlockKey, slot: SlotId, out: &mut Vec<Out>) {
        self.counters.dram_corrupt += 1;
        if self.dram.find(key) == Some(slot) {
            self.dram.forget(slot, out);
        } else if self.inbound.arrived(key).is_some_and(|(here, _)| here == slot) {
            self.discard(*key, out);
        }
    }

    fn wanted(&self, cause: Cause) -> bool {
        match cause {
            Cause::Lease(id) => self.leases.contains_key(&id),
            Cause::Read(id) => self.reads.contains(id),
            Cause::Prefetch => false,
        }
    }

    /// Whether a block's parent will not come, and nobody wants or waits for it.
    fn is_hopeless(&self, key: &BlockKey) -> bool {
        let Some(entry) = self.inbound.blocks.get(key) else {
            return false;
        };
        let rootless = entry.arrival.parent.is_some_and(|parent| {
            self.dram.find(&parent).is_none() && !self.inbound.contains(&parent)
        });
        let awaited = !entry.waiters.is_empty() || !entry.readers.is_empty();
        rootless && !awaited && !self.wanted(entry.arrival.cause)
    }

    /// Drops a block on its way whose parent will not come and that nobody wants.
    pub(crate) fn drop_hopeless(&mut self, key: BlockKey, out: &mut Vec<Out>) {
        if self.is_hopeless(&key) {
            self.discard(key, out);
        }
    }

    /// Puts a block that has arrived into DRAM's tree, if its parent is there, and then those
    /// that waited for it.
    fn promote(&mut self, key: BlockKey, out: &mut Vec<Out>) {
        let mut next = vec![key];
        while let Some(key) = next.pop() {
            let Some(entry) = self.inbound.blocks.get(&key) else {
                continue;
            };
            let parent = entry.arrival.parent;
            let rooted = parent.is_none_or(|parent| self.dram.find(&parent).is_some());
            if !rooted || matches!(entry.state, State::UnderWay) {
                continue;
            }
            let Some(entry) = self.inbound.remove(&key) else {
                continue;
            };
            let State::Arrived(signed) = entry.state else {
                continue;
            };
            let Arrival { tokens, stamp, from, .. } = entry.arrival;
            let block = NewBlock { key, parent, tokens, signed: Some(signed), stamp };
            let slot = entry.slot.slot;
            let new = self.dram.register(slot, block, out) == Registered::New;
            self.counters.offloaded += u64::from(new && from == Source::Engine);
            self.dram.unlease(slot);
            self.offer(key);
            entry.parent_slot.into_iter().for_each(|slot| self.dram.unhold(slot));
            for child in self.inbound.children(&key) {
                self.hold_parent(&child, slot);
                next.push(child);
            }
        }
    }

    fn hold_parent(&mut self, child: &BlockKey, parent: SlotId) {
        if let Some(entry) = self.inbound.blocks.get_mut(child)
            && entry.parent_slot.is_none()
        {
            entry.parent_slot = Some(parent);
            self.dram.hold(parent);
        }
    }

    /// A block's operation ended without it. The caller has ended the operation's hold.
    pub(crate) fn not_arrived(&mut self, key: &BlockKey, op: OpId, out: &mut Vec<Out>) {
        let under_way = self.inbound.blocks.get(key).filter(|entry| entry.arrival.op == op);
        if under_way.is_some_and(|entry| matches!(entry.state, State::UnderWay)) {
            self.discard(*key, out);
        }
    }

    /// Drops a block on its way, and those that waited for it unless the requests that wanted
    /// them live.
    fn discard(&mut self, key: BlockKey, out: &mut Vec<Out>) {
        let mut next = vec![key];
        while let Some(key) = next.pop() {
            let Some(entry) = self.inbound.remove(&key) else {
                continue;
            };
            if matches!(entry.state, State::UnderWay) {
                self.ahead_decided(&key, false);
            }
            for (id, index) in entry.waiters {
                self.miss(id, index, out);
            }
            for read in entry.readers {
                self.staged(read, &key, None, out);
            }
            self.dram.unlease(entry.slot.slot);
            entry.parent_slot.into_iter().for_each(|slot| self.dram.unhold(slot));
            let children = self.inbound.children(&key).into_iter();
            next.extend(children.filter(|child| self.is_hopeless(child)));
        }
    }

    /// An ended lease waits for nothing any more. Its blocks on their way go on, unless their
    /// parent will not come; its fetches go on while others wait for them.
    pub(crate) fn leave_inbound(&mut self, id: LeaseId, lease: &Lease, out: &mut Vec<Out>) {
        for key in &lease.waiting {
            if let Some(entry) = self.inbound.blocks.get_mut(key) {
                entry.waiters.retain(|(waiter, _)| *waiter != id);
            }
        }
        for key in &lease.inbound {
            self.drop_hopeless(*key, out);
        }
        for op in &lease.fetches {
            self.cancel_unless_awaited(*op, out);
        }
    }

    fn cancel_unless_awaited(&mut self, op: OpId, out: &mut Vec<Out>) {
        let blocks = &self.inbound.blocks;
        let Some(fetch) = self.ops.fetching(op).filter(|fetch| !fetch.cancelled) else {
            return;
        };
        let awaited = fetch.blocks.iter().filter(|wanted| !wanted.decided).any(|wanted| {
            let entry = blocks.get(&wanted.key).filter(|entry| entry.arrival.op == op);
            entry.is_some_and(|entry| !entry.waiters.is_empty())
        });
        if !awaited {
            fetch.cancelled = true;
            self.counters.fetch_cancelled += 1;
            out.push(Out::CancelFetch(op));
        }
    }
}

#[cfg(test)]
impl Inbound {
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.edges.is_empty()
    }

    /// DRAM slots leased to blocks on their way, and parents' slots held for them.
    pub(crate) fn uses(&self) -> (Vec<SlotId>, Vec<SlotId>) {
        let entries = || self.blocks.values();
        let edges = entries().filter(|entry| entry.arrival.parent.is_some()).count();
        assert_eq!(self.edges.len(), edges);
        let slots = entries().map(|entry| entry.slot.slot).collect();
        (slots, entries().filter_map(|entry| entry.parent_slot).collect())
    }
}
