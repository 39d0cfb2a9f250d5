//! A disk that keeps what was written, and can be late, wrong, sick, or without memory.

use super::world::*;
use super::*;
use protocol::block::SlotId;
use protocol::disk::{DiskBlock, DiskEvent, DiskOp, DiskRead};

#[derive(Default)]
pub(crate) struct FakeDisk {
    slots: u32,
    /// The index: durable, by slot.
    pub(crate) records: BTreeMap<SlotId, DiskBlock>,
    /// The bytes.
    pub(crate) bytes: BTreeMap<SlotId, PrefixHash>,
    pub(crate) pending: Vec<DiskOp>,
    pub(crate) sick: bool,
    pub(crate) keeps: usize,
}

impl FakeDisk {
    pub(crate) fn new(slots: u32) -> Self {
        Self { slots, ..Self::default() }
    }

    fn is_written(&self, slot: SlotId) -> bool {
        let to = |op: &DiskOp| matches!(op, DiskOp::Write { to, .. } if *to == slot);
        self.pending.iter().any(to)
    }

    /// What it would tell after a restart, parents first.
    pub(crate) fn found(&self) -> Vec<(SlotId, DiskBlock)> {
        let mut all: Vec<_> = self.records.iter().map(|(s, b)| (*s, b.clone())).collect();
        all.sort_by_key(|(slot, block)| (block.tokens, *slot));
        all
    }
}

impl World {
    pub(crate) fn disk_op(&mut self, op: DiskOp) {
        match &op {
            DiskOp::Write { from, to, block, .. } => {
                assert!(!self.disk.sick, "a write to a sick disk");
                assert!(to.0 < self.disk.slots, "beyond the limit");
                assert!(!self.disk.records.contains_key(to), "its former block was not forgotten");
                assert!(!self.disk.is_written(*to), "two writes to one slot");
                let reads = |op: &DiskOp| matches!(op, DiskOp::Read { from, .. } if from == to);
                assert!(!self.disk.pending.iter().any(reads), "a write under a read");
                assert_eq!(self.dram.read(*from), Some(block.key.prefix), "wrong bytes go to disk");
                self.disk.pending.push(op);
            }
            DiskOp::Read { key, from, to, deadline, .. } => {
                assert!(*deadline > self.now);
                assert_eq!(self.disk.records[from].key, *key);
                self.dram.write(*to, None);
                self.disk.pending.push(op);
            }
            DiskOp::Forget { slot, key } => {
                assert!(!self.disk.is_written(*slot), "forgotten while it is written");
                if self.disk.records.get(slot).is_some_and(|block| block.key == *key) {
                    self.disk.records.remove(slot);
                }
            }
            DiskOp::Keep { slot, key, claims } => {
                self.disk.keeps += 1;
                let block = self.disk.records.get_mut(slot).unwrap();
                assert_eq!(block.key, *key);
                block.claims.clone_from(claims);
            }
        }
    }

    /// Performs one pending operation: 0 well, else a failure.
    pub(crate) fn perform_disk(&mut self, pick: usize, kind: u8) {
        if self.disk.pending.is_empty() {
            return;
        }
        let event = match self.disk.pending.remove(pick % self.disk.pending.len()) {
            DiskOp::Write { op, from, to, block } => {
                let content = self.dram.read(from).expect("a write without bytes");
                self.disk.bytes.insert(to, content);
                if kind == 0 {
                    self.disk.records.insert(to, *block);
                }
                DiskEvent::Written { op, durable: kind == 0 }
            }
            DiskOp::Read { op, key, from, to, .. } => {
                let right = self.disk.bytes.get(&from) == Some(&key.prefix);
                let result = match kind {
                    0 if right => {
                        self.dram.write(to, Some(key.prefix));
                        DiskRead::Verified(Box::new(self.signed(key)))
                    }
                    0 | 1 => {
                        self.disk.records.remove(&from);
                        DiskRead::Corrupt
                    }
                    2 => DiskRead::Failed,
                    _ => DiskRead::Late,
                };
                DiskEvent::Read { op, result }
            }
            other => panic!("{other:?} wants no answer"),
        };
        self.give(In::Disk(event));
    }

    /// The disk fails: what is under way fails, then all of it; or the word of it crosses what is
    /// under way.
    pub(crate) fn sicken(&mut self, crossing: bool) {
        while !crossing && !self.disk.pending.is_empty() {
            self.perform_disk(0, 2);
        }
        self.disk.sick = true;
        self.give(In::Disk(DiskEvent::Quarantined { reason: "test".into() }));
    }

    /// The disk tells what it holds.
    pub(crate) fn tell_found(&mut self) {
        self.disk.sick = false;
        let found = self.disk.found();
        self.give(In::Disk(DiskEvent::Found(found)));
    }

    /// What the store believes to be on disk is there.
    pub(crate) fn check_disk(&self) {
        let on_disk: BTreeSet<PrefixHash> =
            self.disk.records.values().map(|block| block.key.prefix).collect();
        for (holder, prefix) in &self.index {
            assert!(*holder != Holder::Nvme || on_disk.contains(prefix), "announced, not there");
        }
        assert!(self.disk.records.len() <= self.disk.slots as usize);
    }

    /// Nothing is under way: what the store does not have on disk was forgotten there.
    pub(crate) fn check_disk_holds_no_more(&self) {
        if !self.disk.sick {
            let here = |block: &DiskBlock| self.store.contains(Name::Nvme, &block.key);
            assert!(self.disk.records.values().all(here), "left behind on disk");
        }
    }

    /// The same disk in a new life of the node.
    pub(crate) fn restart(self, setup: Setup) -> World {
        let mut next = World::new(Setup { nvme: 0, ..setup });
        let nvme = setup.nvme;
        next.now = self.now;
        next.store.disk = crate::disk::Disk::new(nvme, &setup.limits);
        next.disk = FakeDisk { pending: Vec::new(), ..self.disk };
        next.disk.slots = nvme;
        next.tell_found();
        next
    }
}
