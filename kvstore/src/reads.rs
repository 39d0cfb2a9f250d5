//! Peers' reads: blocks lent from DRAM until the peer has read them or its time is over.
//!
//! Blocks that are only on NVMe are brought up first, within half of the read's time, so that the
//! other half is left to send them. Other reads do not wait for that: each is answered when all it
//! asked for is decided, or when that half is over, with what there is then.

use crate::inbound::Cause;
use crate::messages::Out;
use crate::store::Store;
use protocol::block::{BlockKey, SignedDigest, SlotId, SlotRef};
use protocol::op::{ReadId, Readable};
use protocol::time::{Span, Time};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug)]
struct Loan {
    /// What is lent; each slot is held once.
    lent: BTreeMap<BlockKey, (SlotRef, SignedDigest)>,
    until: Time,
    /// Until it is answered.
    asked: Option<Asked>,
    /// Blocks on their way because of this read.
    brings: Vec<BlockKey>,
}

/// A read that waits for blocks from NVMe.
#[derive(Debug)]
struct Asked {
    keys: Vec<BlockKey>,
    /// What it waits for.
    waits: BTreeSet<BlockKey>,
    /// Answered then at the latest.
    by: Time,
}

/// The reads now.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    loans: BTreeMap<ReadId, Loan>,
    /// When loans end.
    ends: BTreeSet<(Time, ReadId)>,
    /// When reads that wait are answered.
    answers: BTreeSet<(Time, ReadId)>,
    /// Slots lent, one counted for each loan.
    lent: usize,
    /// Blocks brought up, or on their way, for reads now.
    staged: usize,
}

impl Reads {
    pub(crate) fn len(&self) -> usize {
        self.loans.len()
    }

    pub(crate) fn contains(&self, read: ReadId) -> bool {
        self.loans.contains_key(&read)
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        let [ends, answers] = [&self.ends, &self.answers].map(|times| times.first().map(|t| t.0));
        ends.into_iter().chain(answers).min()
    }

    /// A block is on its way because of this read.
    pub(crate) fn brings(&mut self, read: ReadId, key: BlockKey) {
        if let Some(loan) = self.loans.get_mut(&read) {
            loan.brings.push(key);
            self.staged += 1;
        }
    }

    fn end(&mut self, read: ReadId) -> Option<Loan> {
        let loan = self.loans.remove(&read)?;
        self.ends.remove(&(loan.until, read));
        if let Some(asked) = &loan.asked {
            self.answers.remove(&(asked.by, read));
        }
        self.lent -= loan.lent.len();
        self.staged -= loan.brings.len();
        Some(loan)
    }
}

impl Store {
    /// Lends what is here, and brings up what is on NVMe. At most half of DRAM is lent at once, so
    /// that readers cannot stop writers, and a stated share of it is used for blocks from NVMe;
    /// beyond that, and beyond the limit of reads, blocks count as absent.
    pub(crate) fn read(
        &mut self,
        now: Time,
        read: ReadId,
        mut keys: Vec<BlockKey>,
        within: Span,
        out: &mut Vec<Out>,
    ) {
        keys.truncate(protocol::wire::blocks::BLOCKS_MAX);
        let fresh = self.reads.len() < self.limits.reads && !self.reads.contains(read);
        if !fresh || self.buggify.denies_read() {
            return self.answer(read, &keys, &BTreeMap::new(), out);
        }
        let within = within.min(self.limits.read);
        let (until, by) = (now + within, now + Span(within.0 / 2));
        let (lent, waits) = (BTreeMap::new(), BTreeSet::new());
        let asked = Some(Asked { keys: keys.clone(), waits, by });
        self.reads.ends.insert((until, read));
        self.reads.answers.insert((by, read));
        self.reads.loans.insert(read, Loan { lent, until, asked, brings: Vec::new() });
        // What is here is held before anything is brought up, because that may evict.
        let (here, absent): (Vec<_>, Vec<_>) =
            keys.into_iter().map(|key| (key, self.readable(&key))).partition(|(_, p)| p.is_some());
        for (key, place) in here {
            if let Some((slot, signed)) = place {
                self.lend(read, key, slot, signed);
            }
        }
        for (key, _) in absent {
            if by > now
                && self.stage(read, &key, by, out)
                && let Some(asked) = self.asked(read)
            {
                asked.waits.insert(key);
            }
        }
        self.grant_if_decided(read, out);
    }

    fn asked(&mut self, read: ReadId) -> Option<&mut Asked> {
        self.reads.loans.get_mut(&read)?.asked.as_mut()
    }

    /// A block whose bytes are in DRAM, whether or not its parent is.
    fn readable(&mut self, key: &BlockKey) -> Option<(SlotId, SignedDigest)> {
        if let Some(slot) = self.dram.find(key) {
            self.dram.touch(slot);
            return Some((slot, self.dram.signed(slot)?.clone()));
        }
        self.inbound.arrived(key).map(|(slot, signed)| (slot, signed.clone()))
    }

    fn lend(&mut self, read: ReadId, key: BlockKey, slot: SlotId, signed: SignedDigest) {
        let most = self.dram.counts().total() as usize / 2;
        let place = self.dram.current(slot);
        let room = self.reads.lent < most;
        let Some(loan) = self.reads.loans.get_mut(&read).filter(|_| room) else {
            return;
        };
        if loan.lent.insert(key, (place, signed)).is_none() {
            self.reads.lent += 1;
            self.dram.hold(slot);
        }
    }

    /// Brings a block up from NVMe for a read; false when it does not come.
    fn stage(&mut self, read: ReadId, key: &BlockKey, by: Time, out: &mut Vec<Out>) -> bool {
        if self.inbound.contains(key) {
            return self.inbound.wait(key, read);
        }
        let share = self.dram.counts().total() / self.limits.stage_share.max(1);
        self.reads.staged < share.max(1) as usize
            && self.load(key, Cause::Read(read), by, out).is_some()
            && self.inbound.wait(key, read)
    }

    /// A block that a read waits for has come, or will not.
    pub(crate) fn staged(
        &mut self,
        read: ReadId,
        key: &BlockKey,
        place: Option<(SlotId, SignedDigest)>,
        out: &mut Vec<Out>,
    ) {
        let Some(asked) = self.asked(read) else {
            return;
        };
        asked.waits.remove(key);
        if let Some((slot, signed)) = place {
            self.counters.read_staged += 1;
            self.lend(read, *key, slot, signed);
        }
        self.grant_if_decided(read, out);
    }

    fn grant_if_decided(&mut self, read: ReadId, out: &mut Vec<Out>) {
        if self.asked(read).is_some_and(|asked| asked.waits.is_empty()) {
            self.grant(read, out);
        }
    }

    /// Answers a read with what there is.
    fn grant(&mut self, read: ReadId, out: &mut Vec<Out>) {
        let Some(loan) = self.reads.loans.get_mut(&read) else {
            return;
        };
        let Some(asked) = loan.asked.take() else {
            return;
        };
        self.reads.answers.remove(&(asked.by, read));
        self.counters.read_partial += u64::from(!asked.waits.is_empty());
        let lent = loan.lent.clone();
        self.answer(read, &asked.keys, &lent, out);
        if lent.is_empty() {
            self.read_done(read, out);
        }
    }

    fn answer(
        &mut self,
        read: ReadId,
        keys: &[BlockKey],
        lent: &BTreeMap<BlockKey, (SlotRef, SignedDigest)>,
        out: &mut Vec<Out>,
    ) {
        let place = |key: &BlockKey| Readable { key: *key, place: lent.get(key).cloned() };
        let blocks: Vec<Readable> = keys.iter().map(place).collect();
        let found = blocks.iter().filter(|block| block.place.is_some()).count();
        self.counters.read_blocks += found as u64;
        self.counters.read_absent += (blocks.len() - found) as u64;
        out.push(Out::ReadGranted { read, blocks });
    }

    /// Ends a read. Unknown ones are ignored: a read of which nothing was here has no loan, and
    /// a late one has lost it. One that was not answered yet is, with nothing.
    pub(crate) fn read_done(&mut self, read: ReadId, out: &mut Vec<Out>) {
        let Some(loan) = self.reads.end(read) else {
            return;
        };
        if let Some(asked) = &loan.asked {
            self.answer(read, &asked.keys, &BTreeMap::new(), out);
        }
        for (slot, _) in loan.lent.values() {
            self.dram.unhold(slot.slot);
        }
        for key in loan.brings {
            self.inbound.unwait(&key, read);
            self.drop_hopeless(key, out);
        }
    }

    pub(crate) fn expire_reads(&mut self, now: Time, out: &mut Vec<Out>) {
        while let Some((_, read)) = self.reads.answers.first().copied().filter(|(t, _)| *t <= now) {
            self.grant(read, out);
        }
        while let Some((_, read)) = self.reads.ends.first().copied().filter(|(t, _)| *t <= now) {
            self.counters.read_expired += 1;
            self.read_done(read, out);
        }
    }
}

#[cfg(test)]
impl Reads {
    /// DRAM slots lent.
    pub(crate) fn holds(&self) -> Vec<SlotId> {
        assert_eq!(self.ends.len(), self.loans.len());
        let waiting = self.loans.values().filter(|loan| loan.asked.is_some()).count();
        assert_eq!(self.answers.len(), waiting);
        let staged: usize = self.loans.values().map(|loan| loan.brings.len()).sum();
        assert_eq!(self.staged, staged);
        let lent = self.loans.values().flat_map(|loan| loan.lent.values());
        let slots: Vec<SlotId> = lent.map(|(slot, _)| slot.slot).collect();
        assert_eq!(self.lent, slots.len());
        slots
    }
}
