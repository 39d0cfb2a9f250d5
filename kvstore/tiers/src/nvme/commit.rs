//! Group commit: one thread makes durable what all threads have written.
//!
//! Whoever holds the leader's lock takes everything that waits, syncs the extents it touches, and
//! commits one index batch; the others find their answers when they get the lock.

use super::core::{Life, Nvme, State};
use super::disk::{Disk, DiskError, FileId};
use super::index::{Batch, Index};
use super::lock;
use super::record::{Record, RecordKey, seal, unseal};
use protocol::block::{Claim, SlotId};
use protocol::hash::PrefixHash;
use protocol::trust::UnixTime;
use std::collections::{BTreeMap, BTreeSet};

/// Most changed claims in one commit: each costs a look-up.
const KEEPS_MAX: usize = 1024;

/// A block whose bytes are written but not synced.
pub(super) struct Entry {
    pub(super) key: RecordKey,
    pub(super) value: Vec<u8>,
    pub(super) extent: FileId,
}

/// What waits for the next commit, and answers that wait for their askers.
#[derive(Default)]
pub(super) struct Dirty {
    /// Records to remove.
    pub(super) deletes: Vec<RecordKey>,
    /// New claims of blocks.
    pub(super) keeps: BTreeMap<SlotId, (PrefixHash, Vec<Claim>, UnixTime)>,
    entries: Vec<(u64, Entry)>,
    next: u64,
    answers: BTreeMap<u64, Result<(), DiskError>>,
}

impl Dirty {
    pub(super) fn waits(&self) -> bool {
        !self.deletes.is_empty() || !self.keeps.is_empty()
    }
}

/// What one leader commits.
struct Round {
    deletes: Vec<RecordKey>,
    keeps: Vec<(RecordKey, Vec<Claim>, UnixTime)>,
    entries: Vec<(u64, Entry)>,
}

impl Round {
    fn take(state: &mut State) -> Self {
        let dirty = &mut state.dirty;
        let deletes = std::mem::take(&mut dirty.deletes);
        let entries = std::mem::take(&mut dirty.entries);
        let later = dirty.keeps.keys().nth(KEEPS_MAX).copied();
        let rest = later.map(|slot| dirty.keeps.split_off(&slot)).unwrap_or_default();
        let keeps = std::mem::replace(&mut dirty.keeps, rest);
        let keeps = keeps.into_iter().filter_map(|(slot, (prefix, claims, at))| {
            Some((state.holds(slot, prefix)?.0, claims, at))
        });
        Self { deletes, keeps: keeps.collect(), entries }
    }
}

impl<D: Disk, I: Index> Nvme<D, I> {
    /// Makes removals and claims durable that wait for it.
    ///
    /// # Errors
    /// The index failed: the tier is to be opened again ([`Nvme::failing`]).
    pub fn flush(&self) -> Result<(), DiskError> {
        let _leader = lock(&self.leader);
        self.lead()
    }

    /// Puts entries in line for the next commit; their tickets, in order.
    pub(super) fn enqueue(&self, entries: Vec<Entry>) -> Vec<u64> {
        let mut state = lock(&self.state);
        let first = state.dirty.next;
        state.dirty.next += entries.len() as u64;
        let tickets = first..state.dirty.next;
        state.dirty.entries.extend(tickets.clone().zip(entries));
        tickets.collect()
    }

    /// Makes the entries of these tickets durable, together with whatever else waits; answers in
    /// their order.
    pub(super) fn commit(&self, tickets: &[u64]) -> Vec<Result<(), DiskError>> {
        if tickets.is_empty() {
            return Vec::new();
        }
        let _leader = lock(&self.leader);
        let answered = {
            let state = lock(&self.state);
            tickets.iter().all(|ticket| state.dirty.answers.contains_key(ticket))
        };
        if !answered {
            // Its error is every entry's answer.
            let _ = self.lead();
        }
        let mut state = lock(&self.state);
        let unknown = || Err(DiskError::Io("the commit was lost".to_owned()));
        let answer = |ticket| state.dirty.answers.remove(ticket).unwrap_or_else(unknown);
        tickets.iter().map(answer).collect()
    }

    /// One round; the caller holds the leader's lock.
    fn lead(&self) -> Result<(), DiskError> {
        let round = Round::take(&mut lock(&self.state));
        let unsynced = self.sync_extents(&round);
        let mut batch = Batch::default();
        for key in &round.deletes {
            batch.delete(key.encode());
        }
        for (key, claims, at) in round.keeps {
            self.keep_record(&key, &claims, at, &mut batch);
        }
        for (_, entry) in &round.entries {
            if !unsynced.contains_key(&entry.extent) {
                batch.put(entry.key.encode(), entry.value.clone());
            }
        }
        let done = self.commit_batch(&batch);
        // Without room for new records the removals still go through, and make room.
        let removed = match &done {
            Err(DiskError::IndexFull) => {
                let mut batch = Batch::default();
                round.deletes.iter().for_each(|key| batch.delete(key.encode()));
                self.commit_batch(&batch)
            }
            done => done.clone(),
        };
        let mut state = lock(&self.state);
        if removed.is_ok() {
            round.deletes.iter().for_each(|key| {
                state.undead.remove(&key.slot);
            });
        }
        for (ticket, entry) in &round.entries {
            let result = unsynced.get(&entry.extent).cloned().map_or(done.clone(), Err);
            state.settle(entry.key.slot, result.is_ok());
            state.dirty.answers.insert(*ticket, result);
        }
        done
    }

    fn commit_batch(&self, batch: &Batch) -> Result<(), DiskError> {
        if batch.is_empty() {
            return Ok(());
        }
        let done = self.index.commit(batch, true);
        let mut state = lock(&self.state);
        state.counters.commits += 1;
        match &done {
            Ok(()) => {}
            Err(DiskError::IndexFull) => state.counters.full += 1,
            // Nobody knows what is in the index now.
            Err(error) => state.give_up(format!("the index failed: {error}")),
        }
        done
    }

    /// Syncs every extent of the round; those that failed, and why.
    fn sync_extents(&self, round: &Round) -> BTreeMap<FileId, DiskError> {
        let extents: BTreeSet<FileId> =
            round.entries.iter().map(|(_, entry)| entry.extent).collect();
        let mut failed = BTreeMap::new();
        for extent in extents {
            // A sync after a failed one proves nothing.
            let dead = lock(&self.state).dead.contains(&extent);
            let result = match dead {
                true => Err(DiskError::Io("an earlier sync of the extent failed".to_owned())),
                false => self.disk.sync(extent),
            };
            if let Err(error) = result {
                let mut state = lock(&self.state);
                state.dead.insert(extent);
                state.counters.write_errors += 1;
                state.give_up(format!("{extent} could not be synced: {error}"));
                failed.insert(extent, error);
            }
        }
        failed
    }

    /// The record of a block with other claims. A record that cannot be read stays as it is.
    fn keep_record(&self, key: &RecordKey, claims: &[Claim], at: UnixTime, batch: &mut Batch) {
        let name = key.encode();
        let value = self.index.get(&name).ok().flatten();
        let record = value.and_then(|value| unseal::<Record>(&name, &value).ok());
        let Some(mut record) = record else { return };
        record.claim(claims, at);
        if let Some(value) = seal(&name, &record) {
            batch.put(name, value);
        }
    }
}

impl State {
    /// A write has ended.
    fn settle(&mut self, slot: SlotId, durable: bool) {
        if let Some(slot) = self.slot_mut(slot) {
            slot.settle(durable);
        }
        if durable {
            self.live += 1;
            self.counters.written += 1;
        }
    }
}

impl super::core::Slot {
    fn settle(&mut self, durable: bool) {
        // The block manager has signed it or checked its signature before it let it in.
        self.life = if durable { Life::Live { checked: true } } else { Life::Free };
    }
}
