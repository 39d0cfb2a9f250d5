//! One tier: its slots, the tree of blocks in them, and the order in which they go.
//!
//! A block is known by its slot; its parent is in the same tier, so the tree is closed towards the
//! root. Only blocks without children here that nobody uses can go (leaf first). Whoever waits at
//! the door in the order of [`Rank`] is kept ready in one ordered set, so finding the next victim
//! costs O(log n).

use crate::by_key::ByKey;
use crate::messages::Out;
use crate::pool::{Pool, SlotCounts};
use crate::retain::{Claims, Owner, Rank, Stamp, earlier};
use crate::stats::TierStats;
use protocol::block::{BlockClass, BlockKey, SignedDigest, SlotId, SlotRef, Tier as Name};
use protocol::disk::DiskOp;
use protocol::event::{BlockEvent, Holder};
use protocol::op::slot_index;
use protocol::time::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// A block as a tier is told of it.
#[derive(Clone, Debug)]
pub(crate) struct NewBlock {
    pub(crate) key: BlockKey,
    /// The block before it; `None` for a prompt's first.
    pub(crate) parent: Option<BlockKey>,
    /// The prefix's length in tokens.
    pub(crate) tokens: u32,
    /// The producer's digest, when known.
    pub(crate) signed: Option<Box<SignedDigest>>,
    pub(crate) stamp: Stamp,
}

/// What became of a block that a tier was told of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Registered {
    /// It is in the tree now.
    New,
    /// The tier has another copy, in this slot; the first copy stays.
    Duplicate(SlotId),
    /// Its parent is not here, so it cannot be.
    Orphan,
}

/// What it costs to take a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    /// Nothing.
    Free,
    /// This block goes.
    Evicts {
        /// Which.
        key: BlockKey,
        /// Whether it has a pin.
        pinned: bool,
        /// Whether it was of use here.
        read: bool,
    },
    /// Every block is in use.
    None,
}

#[derive(Debug)]
struct Node {
    key: BlockKey,
    parent: Option<SlotId>,
    children: u32,
    tokens: u32,
    signed: Option<Box<SignedDigest>>,
    claims: Claims,
    used: u64,
    /// Whether anybody has used its bytes from here.
    read: bool,
    age: Option<Time>,
    /// What the ordered sets hold about this block.
    victim: Option<Rank>,
    alarm: Option<Time>,
    pinned: bool,
}

/// One tier.
#[derive(Debug)]
pub(crate) struct Tier {
    name: Name,
    pool: Pool,
    /// By slot.
    nodes: Vec<Option<Node>>,
    slots: ByKey,
    /// (parent, child).
    edges: BTreeSet<(SlotId, SlotId)>,
    victims: BTreeSet<(Rank, SlotId)>,
    alarms: BTreeSet<(Time, SlotId)>,
    ages: BTreeSet<(Time, SlotId)>,
    /// Where the claims of named sessions are.
    sessions: BTreeMap<Arc<Owner>, BTreeSet<SlotId>>,
    uses: u64,
    pinned: u32,
    evicted: u64,
    pins_broken: u64,
    pins_refused: u64,
}

fn node_mut(nodes: &mut [Option<Node>], slot: SlotId) -> Option<&mut Node> {
    let index = slot_index(slot, nodes.len())?;
    nodes.get_mut(index)?.as_mut()
}

impl Tier {
    pub(crate) fn new(name: Name, slots: u32) -> Self {
        Self {
            name,
            pool: Pool::new(slots),
            nodes: (0..slots).map(|_| None).collect(),
            slots: ByKey::default(),
            edges: BTreeSet::new(),
            victims: BTreeSet::new(),
            alarms: BTreeSet::new(),
            ages: BTreeSet::new(),
            sessions: BTreeMap::new(),
            uses: 0,
            pinned: 0,
            evicted: 0,
            pins_broken: 0,
            pins_refused: 0,
        }
    }

    // Looking.

    pub(crate) fn find(&self, key: &BlockKey) -> Option<SlotId> {
        self.slots.get(key)
    }

    fn node(&self, slot: SlotId) -> Option<&Node> {
        self.nodes.get(slot_index(slot, self.nodes.len())?)?.as_ref()
    }

    pub(crate) fn current(&self, slot: SlotId) -> SlotRef {
        self.pool.current(slot)
    }

    pub(crate) fn signed(&self, slot: SlotId) -> Option<&SignedDigest> {
        self.node(slot)?.signed.as_deref()
    }

    pub(crate) fn age(&self, slot: SlotId) -> Option<Time> {
        self.node(slot)?.age
    }

    pub(crate) fn tokens(&self, slot: SlotId) -> Option<u32> {
        Some(self.node(slot)?.tokens)
    }

    /// Blocks that a session claims.
    pub(crate) fn of_session(&self, owner: &Owner) -> impl Iterator<Item = SlotId> + '_ {
        self.sessions.get(owner).into_iter().flatten().copied()
    }

    /// When the last pin of a block ends.
    pub(crate) fn pin(&self, slot: SlotId) -> Option<Time> {
        self.node(slot)?.claims.pin()
    }

    /// The best that a claim says of a block; `None` without claims.
    pub(crate) fn class(&self, slot: SlotId) -> Option<BlockClass> {
        self.node(slot)?.claims.class()
    }

    /// All that is known of a block, as another tier could be told of it.
    pub(crate) fn copy(&self, slot: SlotId) -> Option<NewBlock> {
        let node = self.node(slot)?;
        let parent = node.parent.and_then(|parent| self.node(parent)).map(|node| node.key);
        let stamp = Stamp { held: node.claims.held().to_vec(), age: node.age };
        let (key, tokens, signed) = (node.key, node.tokens, node.signed.clone());
        Some(NewBlock { key, parent, tokens, signed, stamp })
    }

    /// What the next [`Self::take`] costs.
    pub(crate) fn room(&self) -> Room {
        if self.pool.counts().free > 0 {
            return Room::Free;
        }
        match self.victims.first().and_then(|(rank, slot)| Some((rank, self.node(*slot)?))) {
            Some((rank, node)) => {
                Room::Evicts { key: node.key, pinned: rank.pin.is_some(), read: node.read }
            }
            None => Room::None,
        }
    }

    pub(crate) fn available(&self) -> u32 {
        self.pool.available()
    }

    pub(crate) fn counts(&self) -> SlotCounts {
        self.pool.counts()
    }

    /// All blocks, as events that a newcomer would need.
    pub(crate) fn held(&self) -> impl Iterator<Item = BlockEvent> + '_ {
        self.nodes.iter().flatten().map(|node| stored(self.name, node))
    }

    /// When a block reaches its legal end.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.ages.first().map(|(time, _)| *time)
    }

    pub(crate) fn stats(&self) -> TierStats {
        TierStats {
            tier: self.name,
            slots: self.pool.counts(),
            blocks: u32::try_from(self.slots.len()).unwrap_or(u32::MAX),
            pinned: self.pinned,
            evicted: self.evicted,
            pins_broken: self.pins_broken,
            pins_refused: self.pins_refused,
        }
    }

    // Using.

    pub(crate) fn lease(&mut self, slot: SlotId) {
        self.pool.lease(slot);
        self.refresh(slot);
    }

    pub(crate) fn unlease(&mut self, slot: SlotId) {
        self.pool.unlease(slot);
        if !self.pool.is_leased(slot) {
            self.touch(slot);
        }
    }

    pub(crate) fn hold(&mut self, slot: SlotId) {
        self.pool.hold(slot);
        self.refresh(slot);
    }

    pub(crate) fn unhold(&mut self, slot: SlotId) {
        self.pool.unhold(slot);
        self.refresh(slot);
    }

    /// Makes the block the most recently used.
    pub(crate) fn touch(&mut self, slot: SlotId) {
        self.uses += 1;
        let uses = self.uses;
        if let Some(node) = node_mut(&mut self.nodes, slot) {
            node.used = uses;
        }
        self.refresh(slot);
    }

    /// Somebody has used a block's bytes from here.
    pub(crate) fn mark_read(&mut self, slot: SlotId) {
        if let Some(node) = node_mut(&mut self.nodes, slot) {
            node.read = true;
        }
        self.touch(slot);
    }

    /// Leases this slot, if it is free.
    pub(crate) fn take_at(&mut self, slot: SlotId) -> Option<SlotRef> {
        self.pool.take_at(slot)
    }

    /// Leases a slot, evicting if needed; `None` when every block is in use.
    pub(crate) fn take(&mut self, out: &mut Vec<Out>) -> Option<SlotRef> {
        if let Some(slot) = self.pool.take() {
            return Some(slot);
        }
        self.evict(out);
        self.pool.take()
    }

    /// Evicts the block whose turn it is, if there is one.
    pub(crate) fn evict(&mut self, out: &mut Vec<Out>) {
        if let Some((rank, slot)) = self.victims.first().copied() {
            self.evicted += 1;
            self.pins_broken += u64::from(rank.pin.is_some());
            self.unregister(slot, out);
        }
    }

    // Changing the tree.

    /// Puts the block in a leased slot into the tree.
    pub(crate) fn register(
        &mut self,
        slot: SlotId,
        block: NewBlock,
        out: &mut Vec<Out>,
    ) -> Registered {
        if let Some(first) = self.find(&block.key) {
            self.claim(first, &block.stamp);
            return Registered::Duplicate(first);
        }
        let parent = match block.parent {
            None => None,
            Some(key) => match self.find(&key) {
                None => return Registered::Orphan,
                found => found,
            },
        };
        self.uses += 1;
        let node = Node {
            key: block.key,
            parent,
            children: 0,
            tokens: block.tokens,
            signed: block.signed,
            claims: Claims::default(),
            used: self.uses,
            read: false,
            age: None,
            victim: None,
            alarm: None,
            pinned: false,
        };
        out.push(Out::Event(stored(self.name, &node)));
        let n = self.nodes.len();
        if let Some(place) = slot_index(slot, n).and_then(|i| self.nodes.get_mut(i)) {
            *place = Some(node);
        }
        self.slots.insert(block.key, slot);
        self.pool.name(slot, true);
        if let Some(parent) = parent {
            self.edges.insert((parent, slot));
            if let Some(node) = node_mut(&mut self.nodes, parent) {
                node.children += 1;
            }
            self.refresh(parent);
        }
        self.claim(slot, &block.stamp);
        Registered::New
    }

    /// Remembers the producer's digest of a block.
    pub(crate) fn sign(&mut self, key: &BlockKey, signed: Box<SignedDigest>) {
        if let Some(node) = self.find(key).and_then(|slot| node_mut(&mut self.nodes, slot)) {
            node.signed = Some(signed);
        }
    }

    /// Adds claims to a block. A pin beyond the tier's budget, half of its slots, is not accepted.
    pub(crate) fn claim(&mut self, slot: SlotId, stamp: &Stamp) {
        let budget = self.pool.counts().total() / 2;
        let Some(node) = node_mut(&mut self.nodes, slot) else {
            return;
        };
        for held in &stamp.held {
            let mut held = held.clone();
            if held.pin.is_some() && !node.pinned && self.pinned >= budget {
                held.pin = None;
                self.pins_refused += 1;
            }
            if held.owner.session.is_some() && !node.claims.is_of(&held.owner) {
                self.sessions.entry(Arc::clone(&held.owner)).or_default().insert(slot);
            }
            if let Some(owner) = node.claims.add(held) {
                forget_owner(&mut self.sessions, &owner, slot);
            }
        }
        let age = earlier(node.age, stamp.age);
        if age != node.age {
            node.age.and_then(|old| self.ages.take(&(old, slot)));
            age.map(|new| self.ages.insert((new, slot)));
            node.age = age;
        }
        self.refresh(slot);
    }

    /// Ends all claims of one session.
    pub(crate) fn finish(&mut self, owner: &Owner) {
        for slot in self.sessions.remove(owner).unwrap_or_default() {
            if let Some(node) = node_mut(&mut self.nodes, slot) {
                node.claims.end(owner);
            }
            self.refresh(slot);
        }
    }

    /// Ends claims that have run out, and drops blocks that have reached their legal end, with
    /// all that was built on them.
    pub(crate) fn expire(&mut self, now: Time, out: &mut Vec<Out>) {
        while let Some((time, slot)) = self.alarms.first().copied().filter(|(time, _)| *time <= now)
        {
            self.alarms.remove(&(time, slot));
            let Some(node) = node_mut(&mut self.nodes, slot) else {
                continue;
            };
            node.alarm = None;
            for owner in node.claims.lapse(now) {
                forget_owner(&mut self.sessions, &owner, slot);
            }
            self.refresh(slot);
        }
        while let Some((_, slot)) = self.ages.first().copied().filter(|(time, _)| *time <= now) {
            self.forget(slot, out);
        }
    }

    /// Drops a block and its descendants. Slots in use are freed when their use ends.
    pub(crate) fn forget(&mut self, slot: SlotId, out: &mut Vec<Out>) {
        let mut family = vec![slot];
        let mut next = 0;
        while let Some(parent) = family.get(next).copied() {
            next += 1;
            let children = (parent, SlotId(0))..=(parent, SlotId(u32::MAX));
            family.extend(self.edges.range(children).map(|(_, child)| *child));
        }
        for slot in family.into_iter().rev() {
            self.unregister(slot, out);
        }
    }

    /// Loses everything: the pool is gone, and all who used it.
    pub(crate) fn reset(&mut self, out: &mut Vec<Out>) {
        self.nodes.iter_mut().for_each(|node| *node = None);
        self.slots.clear();
        self.edges.clear();
        self.victims.clear();
        self.alarms.clear();
        self.ages.clear();
        self.sessions.clear();
        self.pinned = 0;
        self.pool.reset();
        out.push(Out::Event(BlockEvent::Cleared { holder: Holder::from(self.name) }));
    }

    /// Takes a block without children out of the tree.
    fn unregister(&mut self, slot: SlotId, out: &mut Vec<Out>) {
        let n = self.nodes.len();
        let Some(node) =
            slot_index(slot, n).and_then(|i| self.nodes.get_mut(i)).and_then(Option::take)
        else {
            return;
        };
        debug_assert!(node.children == 0, "a block left before its children");
        self.slots.remove(&node.key);
        node.victim.map(|rank| self.victims.remove(&(rank, slot)));
        node.alarm.map(|time| self.alarms.remove(&(time, slot)));
        node.age.map(|time| self.ages.remove(&(time, slot)));
        self.pinned -= u32::from(node.pinned);
        for owner in node.claims.owners() {
            forget_owner(&mut self.sessions, owner, slot);
        }
        if let Some(parent) = node.parent {
            self.edges.remove(&(parent, slot));
            if let Some(above) = node_mut(&mut self.nodes, parent) {
                above.children -= 1;
            }
            self.refresh(parent);
        }
        out.push(Out::Event(BlockEvent::Removed {
            prefix: node.key.prefix,
            tokens: node.tokens,
            storage: node.key.storage,
            holder: Holder::from(self.name),
        }));
        if self.name == Name::Nvme {
            out.push(Out::Disk(DiskOp::Forget { slot, key: node.key }));
        }
        self.pool.name(slot, false);
    }

    /// Brings the ordered sets in line with a block that changed.
    fn refresh(&mut self, slot: SlotId) {
        let idle = self.pool.is_idle(slot);
        let Some(node) = node_mut(&mut self.nodes, slot) else {
            return;
        };
        let rank = node.claims.rank(node.used);
        let victim = (idle && node.children == 0).then_some(rank);
        if victim != node.victim {
            node.victim.map(|old| self.victims.remove(&(old, slot)));
            victim.map(|new| self.victims.insert((new, slot)));
            node.victim = victim;
        }
        // An alarm that comes too early costs one look; so renewed claims need not move it.
        let lapse = node.claims.next_lapse();
        if lapse.is_some_and(|lapse| node.alarm.is_none_or(|alarm| lapse < alarm)) {
            node.alarm.map(|old| self.alarms.remove(&(old, slot)));
            lapse.map(|new| self.alarms.insert((new, slot)));
            node.alarm = lapse;
        }
        let pinned = rank.pin.is_some();
        self.pinned = self.pinned + u32::from(pinned) - u32::from(node.pinned);
        node.pinned = pinned;
    }
}

fn stored(name: Name, node: &Node) -> BlockEvent {
    BlockEvent::Stored {
        prefix: node.key.prefix,
        tokens: node.tokens,
        storage: node.key.storage,
        holder: Holder::from(name),
    }
}

fn forget_owner(
    sessions: &mut BTreeMap<Arc<Owner>, BTreeSet<SlotId>>,
    owner: &Owner,
    slot: SlotId,
) {
    if let Some(slots) = sessions.get_mut(owner) {
        slots.remove(&slot);
        if slots.is_empty() {
            sessions.remove(owner);
        }
    }
}
