//! DRAM → NVMe: what is written through, and when it counts as held.
//!
//! Writes of a chain run side by side; a block joins the tree, and is announced, when it is durable
//! and its parent is in the tree. So after a crash the disk may hold blocks without their parents,
//! never the tree.

use super::{Crossed, Writing};
use crate::admission::{Admission, Refused};
use crate::durable;
use crate::messages::Out;
use crate::store::Store;
use crate::tier::Registered;
use protocol::block::{BlockKey, SlotId};
use protocol::disk::{DiskBlock, DiskOp};
use protocol::op::OpId;
use protocol::time::Time;

impl Store {
    /// A block in DRAM, its parent offered before, may be worth writing to NVMe.
    pub(crate) fn offer(&mut self, key: BlockKey) {
        if !self.disk.online || self.is_on_disk(&key) || self.disk.queued.contains(&key) {
            return;
        }
        let Some(slot) = self.dram.find(&key) else {
            return;
        };
        let (waiting, most) = (self.disk.queue.len(), self.limits.disk_queue);
        match Admission::may_wait(self.dram.class(slot), waiting, most) {
            Ok(()) => {
                self.disk.queue.push_back(key);
                self.disk.queued.insert(key);
            }
            Err(reason) => self.refused_write(reason),
        }
    }

    /// In NVMe, or on its way there.
    fn is_on_disk(&self, key: &BlockKey) -> bool {
        self.disk.tier.find(key).is_some() || self.disk.writing.contains_key(key)
    }

    fn refused_write(&mut self, reason: Refused) {
        *match reason {
            Refused::Class => &mut self.counters.nvme_refused_class,
            Refused::Busy => &mut self.counters.nvme_refused_busy,
            Refused::Pinned => &mut self.counters.nvme_refused_pinned,
            Refused::Unread => &mut self.counters.nvme_refused_unread,
        } += 1;
    }

    /// Begins as many of the waiting writes as may run at once.
    pub(crate) fn write_on(&mut self, now: Time, out: &mut Vec<Out>) {
        let quarter = (self.dram.counts().total() as usize / 4).max(1);
        let most = self.limits.disk_writes.min(quarter);
        while self.disk.writes.len() < most {
            let Some(key) = self.disk.queue.pop_front() else {
                return;
            };
            self.disk.queued.remove(&key);
            if self.write(now, key, out).is_none() {
                self.counters.nvme_skipped += 1;
            }
        }
    }

    /// Begins a write; `None` when the block has left DRAM, or its parent is not on disk.
    fn write(&mut self, now: Time, key: BlockKey, out: &mut Vec<Out>) -> Option<()> {
        let from = self.dram.find(&key)?;
        let block = self.dram.copy(from)?;
        let signed = block.signed.as_deref()?.clone();
        let parent_slot = match &block.parent {
            None => None,
            Some(parent) if self.disk.writing.contains_key(parent) => None,
            Some(parent) => Some(self.disk.tier.find(parent)?),
        };
        // Held before a slot is taken: that may evict, and the parent may be a leaf now.
        parent_slot.into_iter().for_each(|slot| self.disk.tier.hold(slot));
        let mischief = self.buggify.refuses_write();
        let admitted = self.disk.admission.may_write(&key, self.disk.tier.room());
        let taken = match admitted {
            Ok(()) if !mischief => self.disk.tier.take(out).ok_or(Refused::Pinned),
            Ok(()) => Err(Refused::Busy),
            Err(reason) => Err(reason),
        };
        let to = match taken {
            Ok(to) => to.slot,
            Err(reason) => {
                parent_slot.into_iter().for_each(|slot| self.disk.tier.unhold(slot));
                self.refused_write(reason);
                return Some(());
            }
        };
        self.dram.hold(from);
        let op = self.ops.next();
        let record = DiskBlock {
            key,
            parent: block.parent,
            tokens: block.tokens,
            signed,
            claims: durable::to_disk(&block.stamp, now),
        };
        if let Some(parent) = block.parent {
            self.disk.edges.insert((parent, key));
        }
        self.disk.writes.insert(op, key);
        let writing = Writing { op, block, from, to, parent_slot, durable: false };
        self.disk.writing.insert(key, writing);
        self.counters.nvme_writes += 1;
        let from = self.dram.current(from);
        out.push(Out::Disk(DiskOp::Write { op, from, to, block: Box::new(record) }));
        Some(())
    }

    /// A write is answered.
    pub(crate) fn written(&mut self, now: Time, op: OpId, durable: bool, out: &mut Vec<Out>) {
        let Some(key) = self.disk.writes.remove(&op) else {
            return self.crossed(op, durable, out);
        };
        let Some(writing) = self.disk.writing.get_mut(&key).filter(|writing| writing.op == op)
        else {
            return;
        };
        self.dram.unhold(writing.from);
        writing.durable = durable;
        if durable {
            self.counters.nvme_written += 1;
            self.settle(now, key, out);
        } else {
            self.counters.nvme_write_failed += 1;
            self.abandon(key, false, out);
        }
    }

    /// Puts a durable block into the tree, if its parent is there, and then those that waited for
    /// it.
    fn settle(&mut self, now: Time, key: BlockKey, out: &mut Vec<Out>) {
        let mut next = vec![key];
        while let Some(key) = next.pop() {
            let Some(writing) = self.disk.writing.get(&key).filter(|writing| writing.durable)
            else {
                continue;
            };
            let parent = writing.block.parent;
            if parent.is_some_and(|parent| self.disk.writing.contains_key(&parent)) {
                continue;
            }
            let expired = writing.block.stamp.age.is_some_and(|age| age <= now);
            let slot = writing.to;
            let block = writing.block.clone();
            if expired || self.disk.tier.register(slot, block, out) != Registered::New {
                self.abandon(key, true, out);
                continue;
            }
            self.end_writing(&key);
            for child in self.disk.children(&key) {
                if let Some(child) = self.disk.writing.get_mut(&child) {
                    self.disk.tier.hold(slot);
                    // The parent may have reached its legal end in another slot, and come again.
                    let former = child.parent_slot.replace(slot);
                    former.into_iter().for_each(|slot| self.disk.tier.unhold(slot));
                }
                next.push(child);
            }
        }
    }

    /// Takes a block out of those being written; its slot is no longer leased.
    fn end_writing(&mut self, key: &BlockKey) -> Option<SlotId> {
        let writing = self.disk.writing.remove(key)?;
        if let Some(parent) = writing.block.parent {
            self.disk.edges.remove(&(parent, *key));
        }
        self.disk.tier.unlease(writing.to);
        writing.parent_slot.into_iter().for_each(|slot| self.disk.tier.unhold(slot));
        Some(writing.to)
    }

    /// Gives up a block that was written, with those that wait on disk for it. Those still being
    /// written follow when they are answered.
    fn abandon(&mut self, key: BlockKey, on_disk: bool, out: &mut Vec<Out>) {
        let mut next = vec![(key, on_disk)];
        while let Some((key, on_disk)) = next.pop() {
            if let Some(slot) = self.end_writing(&key)
                && on_disk
            {
                self.counters.nvme_orphans += 1;
                out.push(Out::Disk(DiskOp::Forget { slot, key }));
            }
            let durable = |child: &BlockKey| {
                self.disk.writing.get(child).is_some_and(|writing| writing.durable)
            };
            let children = self.disk.children(&key).into_iter().filter(durable);
            next.extend(children.map(|child| (child, true)));
        }
    }

    /// Answers an operation that was given up when the disk failed; `durable` when it has put a
    /// block on disk.
    pub(super) fn crossed(&mut self, op: OpId, durable: bool, out: &mut Vec<Out>) {
        let Some(Crossed { key, dram, on_disk: slot }) = self.disk.crossed.remove(&op) else {
            self.counters.stale += 1;
            return;
        };
        self.dram.unhold(dram);
        self.disk.tier.unlease(slot);
        if durable {
            self.counters.nvme_orphans += 1;
            out.push(Out::Disk(DiskOp::Forget { slot, key }));
        }
    }

    /// All writes under way have failed: the disk has.
    pub(super) fn fail_writes(&mut self, out: &mut Vec<Out>) {
        for (op, key) in std::mem::take(&mut self.disk.writes) {
            if let Some(writing) = self.disk.writing.get(&key) {
                let Writing { from: dram, to: on_disk, .. } = *writing;
                self.disk.crossed.insert(op, Crossed { key, dram, on_disk });
                self.counters.nvme_write_failed += 1;
                self.abandon(key, false, out);
            }
        }
        // What waited on disk for a parent is told again by `Found`.
        for key in self.disk.writing.keys().copied().collect::<Vec<_>>() {
            self.end_writing(&key);
        }
        self.counters.nvme_skipped += self.disk.queue.len() as u64;
        self.disk.queue.clear();
        self.disk.queued.clear();
    }
}
