//! A tier on simulated devices beside a model of what it owes.

use super::*;
use std::collections::{BTreeMap, BTreeSet};

pub(super) struct World {
    pub(super) disk: SimDisk,
    pub(super) index: SimIndex,
    pub(super) nvme: Option<Sim>,
    pub(super) maker: Maker,
    pub(super) options: OpenOptions,
    /// Blocks that were acknowledged and not forgotten.
    pub(super) owed: BTreeMap<SlotId, DiskBlock>,
    names: u128,
    pub(super) random: Random,
    /// Whether the disk keeps its promises: then the account must be exact.
    pub(super) honest: bool,
    pub(super) reads: u64,
    pub(super) lost: u64,
    pub(super) recovered: u64,
}

impl World {
    pub(super) fn new(seed: u64, sector: usize, block_bytes: u64, slots: u64) -> Self {
        let maker = Maker::new(block_bytes);
        let options = options(&maker, slots);
        let disk = SimDisk::new(seed, sector, DiskFaults::default());
        let index = SimIndex::new(seed ^ 1, IndexFaults::default());
        let opened = open_sim(&disk, &index, &options).unwrap();
        Self {
            disk,
            index,
            nvme: Some(opened.nvme),
            maker,
            options,
            owed: BTreeMap::new(),
            names: 0,
            random: Random::new(seed ^ 2),
            honest: true,
            reads: 0,
            lost: 0,
            recovered: 0,
        }
    }

    fn slots(&self) -> u32 {
        self.nvme.as_ref().unwrap().layout().slots
    }

    /// Writes up to `count` blocks into free slots in one batch.
    pub(super) fn write(&mut self, count: usize) {
        let mut free: Vec<SlotId> =
            (0..self.slots()).map(SlotId).filter(|slot| !self.owed.contains_key(slot)).collect();
        let mut blocks = Vec::new();
        for _ in 0..count.min(free.len()) {
            let slot = free.swap_remove(self.random.below(free.len() as u64) as usize);
            let chosen = self.random.below(self.owed.len() as u64 + 1) as usize;
            let parent = self.owed.values().nth(chosen);
            self.names += 1;
            blocks.push((slot, self.maker.block(self.names, parent)));
        }
        let bytes: Vec<_> =
            blocks.iter().map(|(_, block)| self.maker.bytes(block.key.prefix.0)).collect();
        let jobs: Vec<_> = blocks
            .iter()
            .zip(&bytes)
            .map(|((slot, block), bytes)| WriteJob { slot: *slot, block, bytes })
            .collect();
        let results = self.nvme.as_ref().unwrap().write(&jobs, NOW);
        for ((slot, block), result) in blocks.into_iter().zip(results) {
            match result {
                Ok(()) => drop(self.owed.insert(slot, block)),
                Err(WriteError::Refused(why)) => panic!("{why}"),
                Err(WriteError::Failed(_)) => {}
            }
        }
        self.check_limit();
    }

    fn any_owed(&mut self) -> Option<(SlotId, DiskBlock)> {
        let chosen = self.random.below(self.owed.len() as u64) as usize;
        self.owed.iter().nth(chosen).map(|(slot, block)| (*slot, block.clone()))
    }

    pub(super) fn forget(&mut self) {
        if let Some((slot, block)) = self.any_owed() {
            self.owed.remove(&slot);
            assert!(self.nvme.as_ref().unwrap().forget(slot, &block.key));
        }
    }

    pub(super) fn keep(&mut self) {
        if let Some((slot, block)) = self.any_owed() {
            let claims = vec![claim(Some(Span::secs(60)), None)];
            self.nvme.as_ref().unwrap().keep(slot, &block.key, claims, NOW);
        }
    }

    pub(super) fn read(&mut self) {
        if let Some((slot, block)) = self.any_owed() {
            self.read_one(slot, &block);
        }
    }

    fn read_one(&mut self, slot: SlotId, block: &DiskBlock) {
        self.reads += 1;
        match get(self.nvme.as_ref().unwrap(), slot.0, &block.key) {
            Ok(bytes) => assert_eq!(bytes, self.maker.bytes(block.key.prefix.0), "wrong bytes"),
            Err(ReadError::Failed(_)) => {}
            Err(ReadError::Corrupt) => {
                assert!(!self.honest, "an honest disk lost {block:?} in {slot:?}");
                self.owed.remove(&slot);
                self.lost += 1;
            }
        }
    }

    /// Whether the tier wants to be opened again.
    pub(super) fn is_failing(&self) -> bool {
        self.nvme.as_ref().unwrap().failing().is_some()
    }

    /// Power goes and comes back.
    pub(super) fn crash(&mut self) {
        self.nvme = None;
        self.disk.crash();
        self.index.crash();
        self.reopen();
    }

    /// The tier is opened again, as after a quarantine.
    pub(super) fn reopen(&mut self) {
        let abandoned = self.nvme.as_ref().map(Nvme::abandoned).unwrap_or_default();
        self.nvme = None;
        let mut options = self.options.clone();
        options.abandoned.clone_from(&abandoned);
        let opened = open_sim(&self.disk, &self.index, &options).unwrap();
        let place = |slot: SlotId| opened.nvme.layout().place(slot).unwrap().0;
        self.owed.retain(|slot, _| !abandoned.contains(&place(*slot)));
        let expected = self.closed();
        let found: BTreeMap<SlotId, DiskBlock> = opened.found.iter().cloned().collect();
        assert_eq!(found.len(), opened.found.len(), "a slot was found twice");
        if self.honest {
            for (slot, block) in &expected {
                assert_eq!(found.get(slot).map(|found| found.key), Some(block.key));
            }
        }
        let mut seen = BTreeSet::new();
        for (_, block) in &opened.found {
            assert!(block.parent.is_none_or(|parent| seen.contains(&parent)), "no parent before");
            assert!(seen.insert(block.key), "a block was found twice");
        }
        self.recovered += found.len() as u64;
        self.nvme = Some(opened.nvme);
        self.owed.clone_from(&found);
        for (slot, block) in found {
            self.read_one(slot, &block);
        }
        self.check_limit();
    }

    /// Owed blocks whose parents are all owed.
    fn closed(&self) -> BTreeMap<SlotId, DiskBlock> {
        let mut blocks: Vec<_> = self.owed.iter().collect();
        blocks.sort_by_key(|(_, block)| block.tokens);
        let mut keys = BTreeSet::new();
        let mut closed = BTreeMap::new();
        for (slot, block) in blocks {
            if block.parent.is_none_or(|parent| keys.contains(&parent)) {
                keys.insert(block.key);
                closed.insert(*slot, block.clone());
            }
        }
        closed
    }

    pub(super) fn check_limit(&self) {
        assert!(self.disk.used() <= self.options.limit, "{} bytes", self.disk.used());
        assert!(self.nvme.as_ref().unwrap().data_bytes() <= self.options.limit);
    }
}
