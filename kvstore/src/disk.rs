//! The NVMe tier as the block manager sees it: which block lies in which slot, what is being
//! written and read.
//!
//! Blocks enter by [`write`], leave by eviction (leaf first, in the order of their rank), are read
//! by [`read`], and come back after a restart by [`found`]. A block's DRAM slot is held while it
//! is written or read into; its NVMe slot likewise.

use crate::admission::Admission;
use crate::config::Limits;
use crate::tier::{NewBlock, Tier};
use protocol::block::{BlockKey, SlotId, StorageId, Tier as Name};
use protocol::hash::PrefixHash;
use protocol::op::OpId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

mod found;
mod read;
mod write;

/// A block on its way to NVMe.
#[derive(Debug)]
struct Writing {
    op: OpId,
    block: NewBlock,
    /// Held in DRAM until the answer.
    from: SlotId,
    /// Leased in NVMe until the block is in the tree.
    to: SlotId,
    /// The parent's slot in NVMe, held so that it is not evicted.
    parent_slot: Option<SlotId>,
    /// On disk; it waits for its parent.
    durable: bool,
}

/// NVMe → DRAM. Both slots are held.
#[derive(Clone, Copy, Debug)]
struct Reading {
    key: BlockKey,
    from: SlotId,
    to: SlotId,
}

/// An operation that the disk got while the word of its failure was on its way here. It is as good
/// as failed, but its slots are nobody else's until it is answered.
#[derive(Debug)]
struct Crossed {
    key: BlockKey,
    dram: SlotId,
    on_disk: SlotId,
}

/// The NVMe tier and what is under way with it.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) tier: Tier,
    /// False until the disk has told what it holds, and while it fails.
    online: bool,
    admission: Admission,
    /// Blocks of DRAM that wait to be written, in order.
    queue: VecDeque<BlockKey>,
    queued: BTreeSet<BlockKey>,
    writing: BTreeMap<BlockKey, Writing>,
    writes: BTreeMap<OpId, BlockKey>,
    /// (parent, child) of those being written.
    edges: BTreeSet<(BlockKey, BlockKey)>,
    reading: BTreeMap<OpId, Reading>,
    crossed: BTreeMap<OpId, Crossed>,
}

impl Disk {
    pub(crate) fn new(slots: u32, limits: &Limits) -> Self {
        let ghosts = limits.disk_ghosts.min(slots as usize);
        Self {
            tier: Tier::new(Name::Nvme, slots),
            online: false,
            admission: Admission::new(ghosts),
            queue: VecDeque::new(),
            queued: BTreeSet::new(),
            writing: BTreeMap::new(),
            writes: BTreeMap::new(),
            edges: BTreeSet::new(),
            reading: BTreeMap::new(),
            crossed: BTreeMap::new(),
        }
    }

    /// Operations under way.
    pub(crate) fn len(&self) -> usize {
        self.writes.len() + self.reading.len() + self.crossed.len()
    }

    /// Whether blocks can be written and read.
    pub(crate) fn is_online(&self) -> bool {
        self.online
    }

    /// Blocks that wait to be written.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// In an emptied tier: slots that may still be read or written are not free. So what the disk
    /// tells of them is not used either: it may be on its way out.
    fn keep_crossed(&mut self) {
        for crossed in self.crossed.values() {
            self.tier.take_at(crossed.on_disk);
        }
    }

    fn children(&self, key: &BlockKey) -> Vec<BlockKey> {
        let lowest = BlockKey { prefix: PrefixHash(0), storage: StorageId(0) };
        let of_key = self.edges.range((*key, lowest)..).take_while(|(parent, _)| parent == key);
        of_key.map(|(_, child)| *child).collect()
    }
}

#[cfg(test)]
impl Disk {
    /// NVMe slots leased to blocks being written, NVMe slots held, DRAM slots held.
    pub(crate) fn uses(&self) -> (Vec<SlotId>, Vec<SlotId>, Vec<SlotId>) {
        let writing = || self.writing.values();
        let edges = writing().filter(|writing| writing.block.parent.is_some()).count();
        assert_eq!(self.edges.len(), edges);
        assert_eq!(self.queue.len(), self.queued.len());
        assert_eq!(writing().filter(|writing| !writing.durable).count(), self.writes.len());
        let leased = writing().map(|writing| writing.to);
        let leased = leased.chain(self.crossed.values().map(|crossed| crossed.on_disk)).collect();
        let held = writing().filter_map(|writing| writing.parent_slot);
        let held = held.chain(self.reading.values().map(|reading| reading.from)).collect();
        let dram = writing().filter(|writing| !writing.durable).map(|writing| writing.from);
        let dram = dram.chain(self.reading.values().map(|reading| reading.to));
        (leased, held, dram.chain(self.crossed.values().map(|crossed| crossed.dram)).collect())
    }
}
