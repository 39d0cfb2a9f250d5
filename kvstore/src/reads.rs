//! Peers' reads: blocks of DRAM lent until the peer has read them or its time is over.

use crate::messages::Out;
use crate::store::Store;
use protocol::block::{BlockKey, SlotId};
use protocol::op::{ReadId, Readable};
use protocol::time::{Span, Time};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug)]
struct Loan {
    slots: Vec<SlotId>,
    until: Time,
}

/// The reads now.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    loans: BTreeMap<ReadId, Loan>,
    ends: BTreeSet<(Time, ReadId)>,
    /// Slots lent, one counted for each loan.
    lent: usize,
}

impl Reads {
    pub(crate) fn len(&self) -> usize {
        self.loans.len()
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        self.ends.first().map(|(time, _)| *time)
    }

    fn end(&mut self, read: ReadId) -> Option<Vec<SlotId>> {
        let loan = self.loans.remove(&read)?;
        self.ends.remove(&(loan.until, read));
        self.lent -= loan.slots.len();
        Some(loan.slots)
    }
}

impl Store {
    /// Lends what is here. At most half of DRAM is lent at once, so that readers cannot stop
    /// writers; beyond that, and beyond the limit of reads, blocks count as absent.
    pub(crate) fn read(
        &mut self,
        now: Time,
        read: ReadId,
        keys: &[BlockKey],
        within: Span,
        out: &mut Vec<Out>,
    ) {
        let fresh = self.reads.len() < self.limits.reads && !self.reads.loans.contains_key(&read);
        let most = if fresh { self.dram.counts().total() as usize / 2 } else { 0 };
        let mut slots = Vec::new();
        let mut blocks = Vec::new();
        for key in keys.iter().take(protocol::wire::blocks::BLOCKS_MAX) {
            let room = self.reads.lent + slots.len() < most;
            let found = self.dram.find(key).filter(|_| room);
            let place = found.and_then(|slot| {
                let signed = self.dram.signed(slot)?.clone();
                Some((self.dram.current(slot), signed))
            });
            if let Some((slot, _)) = &place {
                self.dram.hold(slot.slot);
                self.dram.touch(slot.slot);
                slots.push(slot.slot);
            }
            blocks.push(Readable { key: *key, place });
        }
        self.counters.read_blocks += slots.len() as u64;
        self.counters.read_absent += (keys.len() - slots.len()) as u64;
        if !slots.is_empty() {
            let until = now + within.min(self.limits.read);
            self.reads.lent += slots.len();
            self.reads.ends.insert((until, read));
            self.reads.loans.insert(read, Loan { slots, until });
        }
        out.push(Out::ReadGranted { read, blocks });
    }

    /// Ends a read. Unknown ones are ignored: a read of which nothing was here has no loan, and
    /// a late one has lost it.
    pub(crate) fn read_done(&mut self, read: ReadId) {
        for slot in self.reads.end(read).unwrap_or_default() {
            self.dram.unhold(slot);
        }
    }

    pub(crate) fn expire_reads(&mut self, now: Time) {
        while let Some((_, read)) = self.reads.ends.first().copied().filter(|(t, _)| *t <= now) {
            self.counters.read_expired += 1;
            self.read_done(read);
        }
    }
}

#[cfg(test)]
impl Reads {
    /// DRAM slots lent.
    pub(crate) fn holds(&self) -> Vec<SlotId> {
        assert_eq!(self.ends.len(), self.loans.len());
        let slots: Vec<SlotId> = self.loans.values().flat_map(|l| l.slots.clone()).collect();
        assert_eq!(self.lent, slots.len());
        slots
    }
}
