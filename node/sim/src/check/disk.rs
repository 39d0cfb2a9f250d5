//! The disk: its limit is held at all times, and a restart finds what was durable, as long as the
//! disk kept its promises.

use crate::scenario::Scenario;
use protocol::block::{BlockKey, SlotId};
use protocol::disk::{DiskBlock, DiskEvent, DiskOp, DiskRead};
use protocol::op::OpId;
use std::collections::{BTreeMap, BTreeSet};

/// What a host's disk owes.
#[derive(Debug, Default)]
struct Owed {
    writing: BTreeMap<OpId, (SlotId, BlockKey, Option<BlockKey>)>,
    reading: BTreeMap<OpId, BlockKey>,
    durable: BTreeMap<BlockKey, (SlotId, Option<BlockKey>)>,
    /// Gone since: the index may keep it or not until the next sync.
    forgotten: BTreeSet<BlockKey>,
}

/// All disks.
pub(super) struct Disks {
    honest: bool,
    hosts: BTreeMap<usize, Owed>,
}

impl Disks {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let faults = &scenario.faults;
        // What changes in DRAM before it is written is not what the disk should give back.
        let honest = faults.disks_are_honest() && faults.dram_is_honest();
        Self { honest, hosts: BTreeMap::new() }
    }

    pub(super) fn room(used: u64, limit: u64) -> Result<(), String> {
        if used <= limit {
            return Ok(());
        }
        Err(format!("{used} bytes lie on a disk limited to {limit}"))
    }

    pub(super) fn op(&mut self, host: usize, op: &DiskOp) {
        let owed = self.hosts.entry(host).or_default();
        match op {
            DiskOp::Write { op, to, block, .. } => {
                owed.writing.insert(*op, (*to, block.key, block.parent));
            }
            DiskOp::Read { op, key, .. } => {
                owed.reading.insert(*op, *key);
            }
            DiskOp::Forget { key, .. } => {
                owed.durable.remove(key);
                owed.forgotten.insert(*key);
            }
            DiskOp::Keep { .. } => {}
        }
    }

    pub(super) fn event(&mut self, host: usize, event: &DiskEvent) {
        let owed = self.hosts.entry(host).or_default();
        match event {
            DiskEvent::Written { op, durable } => {
                if let Some((slot, key, parent)) = owed.writing.remove(op).filter(|_| *durable) {
                    owed.durable.insert(key, (slot, parent));
                    owed.forgotten.remove(&key);
                }
            }
            DiskEvent::Read { op, result } => {
                let key = owed.reading.remove(op);
                if let (Some(key), DiskRead::Corrupt) = (key, result) {
                    owed.durable.remove(&key);
                }
            }
            DiskEvent::Quarantined { .. } => owed.writing.clear(),
            DiskEvent::Found(_) => {}
        }
    }

    /// What a start finds, against what is owed: (owed, found of it). `trusted` is false when files
    /// were given up before, with what was in them.
    pub(super) fn found(
        &mut self,
        host: usize,
        found: &[(SlotId, DiskBlock)],
        trusted: bool,
    ) -> Result<(u64, u64), String> {
        let owed = self.hosts.entry(host).or_default();
        let have: BTreeMap<BlockKey, SlotId> = found.iter().map(|(s, b)| (b.key, *s)).collect();
        if have.len() != found.len() {
            return Err("a block is found twice".into());
        }
        let slots: BTreeSet<SlotId> = found.iter().map(|(slot, _)| *slot).collect();
        if slots.len() != found.len() {
            return Err("two blocks are found in one slot".into());
        }
        // A block whose parent is gone cannot be used, and is not owed.
        let mut due: BTreeMap<BlockKey, (SlotId, Option<BlockKey>)> = owed.durable.clone();
        loop {
            let keys: BTreeSet<BlockKey> = due.keys().copied().collect();
            let before = due.len();
            due.retain(|_, (_, parent)| parent.is_none_or(|parent| keys.contains(&parent)));
            if due.len() == before {
                break;
            }
        }
        let there = due.keys().filter(|key| have.contains_key(*key)).count() as u64;
        let count = due.len() as u64;
        owed.durable =
            found.iter().map(|(slot, block)| (block.key, (*slot, block.parent))).collect();
        (owed.writing, owed.reading) = (BTreeMap::new(), BTreeMap::new());
        if !self.honest || !trusted {
            return Ok((0, 0));
        }
        if there * 100 < count * 99 {
            return Err(format!("of {count} durable blocks a restart finds {there}"));
        }
        Ok((count, there))
    }

    /// The disk was lost with all that was on it.
    pub(super) fn lost(&mut self, host: usize) {
        self.hosts.remove(&host);
    }
}
