//! What must hold after every step, checked from outside the code that keeps it.

use super::*;
use protocol::block::SlotId;
use std::collections::BTreeMap;

fn count<T: Ord + Copy>(items: impl IntoIterator<Item = T>) -> BTreeMap<T, u32> {
    let mut counts = BTreeMap::new();
    items.into_iter().for_each(|item| *counts.entry(item).or_default() += 1);
    counts
}

impl Store {
    /// Slots conserved, references balanced, parents resident, no private slot in two leases.
    pub(crate) fn audit(&self) {
        let (engine_ops, mut dram_holds) = self.ops.holds();
        let (inbound, parents) = self.inbound.uses();
        dram_holds.extend(parents);
        dram_holds.extend(self.reads.holds());
        let (writing, nvme_holds, from_disk) = self.disk.uses();
        dram_holds.extend(from_disk);
        self.disk.tier.audit();
        check_uses(&self.disk.tier, &count(writing), &count(nvme_holds));
        self.dram.audit();
        check_uses(&self.dram, &count(inbound), &count(dram_holds));

        for (id, state) in &self.engines {
            state.tier.audit();
            let mut leased = Vec::new();
            let mut private = Vec::new();
            for lease in &state.leases {
                let lease = &self.leases[lease];
                assert_eq!(lease.engine, *id);
                for (index, block) in lease.blocks.iter().enumerate() {
                    assert_eq!(block.slot, state.tier.current(block.slot.slot), "generation");
                    leased.push(block.slot.slot);
                    leased.extend(block.twin);
                    if index >= lease.frontier || block.twin.is_some() {
                        private.push(block.slot.slot);
                    }
                }
            }
            let leased = count(leased);
            for slot in private {
                assert_eq!(leased[&slot], 1, "a private slot in two leases");
            }
            let ops = engine_ops.iter().filter(|(engine, _)| engine == id).map(|(_, slot)| *slot);
            check_uses(&state.tier, &leased, &count(ops));
        }
        self.flights.audit(&self.leases, &self.engines);
        let by_engine: usize = self.engines.values().map(|state| state.leases.len()).sum();
        assert_eq!(by_engine, self.leases.len());
    }

    /// Nothing is under way: everything is free or cached, and the token counts add up.
    pub(crate) fn audit_idle(&self) {
        self.audit();
        let stats = self.stats();
        assert_eq!((stats.leases, stats.operations, stats.reads), (0, 0, 0));
        assert_eq!(stats.prefill_waiting, 0);
        assert!(self.inbound.is_empty());
        for tier in &stats.tiers {
            assert_eq!((tier.slots.leased, tier.slots.draining), (0, 0), "{tier:?}");
            assert_eq!(tier.slots.cached, tier.blocks);
        }
        let c = stats.counters;
        let by_source = c.engine_tokens + c.dram_tokens + c.nvme_tokens + c.peer_tokens;
        assert_eq!(c.queried_tokens, by_source + c.uncached_tokens);
        let decided = c.fetch_verified + c.fetch_absent + c.fetch_corrupt + c.fetch_failed;
        assert_eq!(c.fetch_asked, decided);
        let answered = c.nvme_verified + c.nvme_corrupt + c.nvme_failed + c.nvme_late;
        assert_eq!(c.nvme_reads, answered);
        assert_eq!(c.nvme_writes, c.nvme_written + c.nvme_write_failed);
        assert_eq!(stats.nvme_waiting, 0);
        let ahead = c.prefetch_used + c.prefetch_late + c.prefetch_wasted + c.prefetch_failed;
        assert_eq!(c.prefetch_asked, ahead);
    }
}

fn check_uses(tier: &Tier, leases: &BTreeMap<SlotId, u32>, holds: &BTreeMap<SlotId, u32>) {
    for slot in (0..tier.counts().total()).map(SlotId) {
        let want = [leases, holds].map(|counts| counts.get(&slot).copied().unwrap_or(0));
        assert_eq!(tier.uses(slot), (want[0], want[1]), "leases and holds of {slot:?}");
    }
}
