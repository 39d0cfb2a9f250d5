//! The tier over any disk and index: slots, reads, writes. No threads of its own, no clock; several
//! threads may call it.

use super::commit::{Dirty, Entry};
use super::disk::{Disk, DiskError, FileId};
use super::index::Index;
use super::layout::Layout;
use super::lock;
use super::record::{Record, RecordKey, seal, unseal};
use protocol::block::{BlockKey, Claim, ContentDigest, SignedDigest, SlotId, StorageId};
use protocol::disk::DiskBlock;
use protocol::hash::PrefixHash;
use protocol::trust::UnixTime;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

/// Errors in a row, of one kind, after which the disk counts as failing.
const ERRORS_MAX: u32 = 5;

/// A block to write.
#[derive(Clone, Copy, Debug)]
pub struct WriteJob<'a> {
    /// Where.
    pub slot: SlotId,
    /// What.
    pub block: &'a DiskBlock,
    /// Its bytes; written without a copy when they lie at a multiple of a page.
    pub bytes: &'a [u8],
}

/// Blocks whose bytes are written but not durable.
#[derive(Debug)]
#[must_use = "what is staged is to be settled"]
pub struct Staged {
    tickets: Vec<u64>,
    answers: Vec<Result<(), WriteError>>,
}

/// Why a block is not on disk.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WriteError {
    /// It does not belong there: a fault of the caller.
    #[error("{0}")]
    Refused(&'static str),
    /// The disk failed.
    #[error(transparent)]
    Failed(#[from] DiskError),
}

/// Why a block was not read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReadError {
    /// The slot holds other bytes; its record is gone.
    #[error("the slot holds other bytes than its record says")]
    Corrupt,
    /// The disk failed.
    #[error(transparent)]
    Failed(#[from] DiskError),
}

/// What has happened since it was opened.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Blocks written durably.
    pub written: u64,
    /// Bytes of them, without padding.
    pub written_bytes: u64,
    /// Bytes given to the disk for blocks, padding and failed writes included.
    pub data_bytes: u64,
    /// Blocks read and verified.
    pub read: u64,
    /// Bytes of them.
    pub read_bytes: u64,
    /// Blocks that were not what their record said.
    pub corrupt: u64,
    /// Reads that the disk failed.
    pub read_errors: u64,
    /// Writes that the disk failed.
    pub write_errors: u64,
    /// Blocks that found no room on a full disk.
    pub full: u64,
    /// Index batches committed.
    pub commits: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Life {
    Free,
    Writing,
    /// Holds a block; whether its producer's signature has been checked in this life.
    Live {
        checked: bool,
    },
}

/// A slot in memory: 32 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    prefix: PrefixHash,
    tokens: u32,
    pub(super) life: Life,
}

impl Slot {
    const FREE: Self = Self { prefix: PrefixHash(0), tokens: 0, life: Life::Free };

    fn key(&self, slot: SlotId) -> RecordKey {
        RecordKey { tokens: self.tokens, prefix: self.prefix, slot }
    }
}

pub(super) struct State {
    pub(super) slots: Vec<Slot>,
    pub(super) live: u32,
    pub(super) counters: Counters,
    /// What waits for the next commit.
    pub(super) dirty: Dirty,
    /// Slots whose former record may still be there after a crash.
    pub(super) undead: BTreeSet<SlotId>,
    /// Extents whose sync failed.
    pub(super) dead: BTreeSet<FileId>,
    /// Bytes reserved per extent.
    reserved: BTreeMap<FileId, u64>,
    read_errors: u32,
    write_errors: u32,
    /// Why the disk must not be used any more.
    failing: Option<String>,
}

/// An NVMe tier on a disk and an index. See the module's text for its promises.
pub struct Nvme<D, I> {
    pub(super) disk: D,
    pub(super) index: I,
    layout: Layout,
    storage: StorageId,
    pub(super) state: Mutex<State>,
    /// Held by the thread that commits for all.
    pub(super) leader: Mutex<()>,
    /// Held while an extent grows.
    growth: Mutex<()>,
}

impl State {
    /// Notes an error of the disk.
    fn failed(&mut self, write: bool, error: &DiskError) {
        let (run, total) = if write {
            (&mut self.write_errors, &mut self.counters.write_errors)
        } else {
            (&mut self.read_errors, &mut self.counters.read_errors)
        };
        *total += 1;
        *run += 1;
        let run = *run;
        if run >= ERRORS_MAX {
            let verb = if write { "write" } else { "read" };
            self.give_up(format!("{run} {verb}s in a row failed: {error}"));
        }
    }

    /// The disk is not to be used until it is opened again.
    pub(super) fn give_up(&mut self, reason: String) {
        self.failing.get_or_insert(reason);
    }

    pub(super) fn slot_mut(&mut self, slot: SlotId) -> Option<&mut Slot> {
        self.slots.get_mut(slot.0 as usize)
    }

    fn slot(&self, slot: SlotId) -> Option<Slot> {
        self.slots.get(slot.0 as usize).copied()
    }

    /// The record key of a slot that holds the block of `prefix`.
    pub(super) fn holds(&self, slot: SlotId, prefix: PrefixHash) -> Option<(RecordKey, bool)> {
        let held = self.slot(slot)?;
        match held.life {
            Life::Live { checked } if held.prefix == prefix => Some((held.key(slot), checked)),
            _ => None,
        }
    }

    /// Takes a slot's block away; its record's removal waits for the next commit.
    fn release(&mut self, slot: SlotId, prefix: PrefixHash) -> bool {
        let Some((key, _)) = self.holds(slot, prefix) else { return false };
        if let Some(held) = self.slot_mut(slot) {
            *held = Slot::FREE;
        }
        self.live = self.live.saturating_sub(1);
        self.dirty.keeps.remove(&slot);
        self.dirty.deletes.push(key);
        self.undead.insert(slot);
        true
    }
}

impl<D: Disk, I: Index> Nvme<D, I> {
    pub(super) fn assemble(
        disk: D,
        index: I,
        layout: Layout,
        storage: StorageId,
        found: &[RecordKey],
        reserved: BTreeMap<FileId, u64>,
    ) -> Self {
        let mut slots = vec![Slot::FREE; layout.slots as usize];
        for key in found {
            if let Some(slot) = slots.get_mut(key.slot.0 as usize) {
                let life = Life::Live { checked: false };
                *slot = Slot { prefix: key.prefix, tokens: key.tokens, life };
            }
        }
        let state = State {
            slots,
            live: u32::try_from(found.len()).unwrap_or(u32::MAX),
            counters: Counters::default(),
            dirty: Dirty::default(),
            undead: BTreeSet::new(),
            dead: BTreeSet::new(),
            reserved,
            read_errors: 0,
            write_errors: 0,
            failing: None,
        };
        let (state, leader, growth) = (Mutex::new(state), Mutex::new(()), Mutex::new(()));
        Self { disk, index, layout, storage, state, leader, growth }
    }

    /// Where slots lie.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The disk.
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// The index.
    pub fn index(&self) -> &I {
        &self.index
    }

    /// Blocks held.
    pub fn blocks(&self) -> u32 {
        lock(&self.state).live
    }

    /// Bytes reserved for blocks.
    pub fn data_bytes(&self) -> u64 {
        lock(&self.state).reserved.values().sum()
    }

    /// What has happened.
    pub fn counters(&self) -> Counters {
        lock(&self.state).counters
    }

    /// Why the disk must not be used any more; drop the tier then and open it again.
    pub fn failing(&self) -> Option<String> {
        lock(&self.state).failing.clone()
    }

    /// Extents whose sync failed; hand them to [`super::OpenOptions::abandoned`].
    pub fn abandoned(&self) -> BTreeSet<FileId> {
        lock(&self.state).dead.clone()
    }

    /// Whether removals or claims wait for a commit ([`Nvme::flush`]).
    pub fn is_dirty(&self) -> bool {
        lock(&self.state).dirty.waits()
    }

    /// Writes blocks; when this returns, each is durable with its record, or is not there. Answers
    /// in the order of `jobs`. `now` dates the claims.
    pub fn write(&self, jobs: &[WriteJob<'_>], now: UnixTime) -> Vec<Result<(), WriteError>> {
        self.settle(self.stage(jobs, now))
    }

    /// The first half of [`Nvme::write`]: the bytes are given to the disk, and may be used again.
    /// Every stage must be followed by [`Nvme::settle`]; several stages may be under way, so that
    /// the disk writes one batch while it syncs another.
    pub fn stage(&self, jobs: &[WriteJob<'_>], now: UnixTime) -> Staged {
        let mut answers: Vec<Result<(), WriteError>> =
            jobs.iter().map(|job| self.begin(job)).collect();
        let reused = jobs
            .iter()
            .zip(&answers)
            .any(|(job, answer)| answer.is_ok() && lock(&self.state).undead.contains(&job.slot));
        // The former block's record goes before its bytes.
        let cleared = if reused { self.flush() } else { Ok(()) };
        let mut entries = Vec::with_capacity(jobs.len());
        for (job, answer) in jobs.iter().zip(&mut answers) {
            if answer.is_err() {
                continue;
            }
            match cleared.clone().and_then(|()| self.write_data(job, now)) {
                Ok(entry) => entries.push(entry),
                Err(error) => {
                    self.end(job.slot, Life::Free);
                    *answer = Err(error.into());
                }
            }
        }
        Staged { tickets: self.enqueue(entries), answers }
    }

    /// The second half of [`Nvme::write`]: syncs and records what was staged, this and whatever
    /// other threads have staged meanwhile. Answers in the order of the stage's jobs.
    pub fn settle(&self, staged: Staged) -> Vec<Result<(), WriteError>> {
        let Staged { tickets, mut answers } = staged;
        let mut outcome = self.commit(&tickets).into_iter();
        for answer in answers.iter_mut().filter(|answer| answer.is_ok()) {
            *answer = outcome.next().unwrap_or(Ok(())).map_err(WriteError::Failed);
        }
        let durable = answers.iter().filter(|answer| answer.is_ok()).count() as u64;
        lock(&self.state).counters.written_bytes += durable * self.layout.block_bytes;
        answers
    }

    fn begin(&self, job: &WriteJob<'_>) -> Result<(), WriteError> {
        let refused = |why| Err(WriteError::Refused(why));
        let block = job.block;
        let elsewhere = block.parent.is_some_and(|parent| parent.storage != self.storage);
        if block.key.storage != self.storage || elsewhere {
            return refused("the block is of another storage namespace");
        }
        if block.signed.key != block.key || job.bytes.len() as u64 != self.layout.block_bytes {
            return refused("the block's digest or length is not its own");
        }
        let Some((extent, _)) = self.layout.place(job.slot) else {
            return refused("there is no such slot");
        };
        let mut state = lock(&self.state);
        if let Some(reason) = &state.failing {
            return Err(DiskError::Io(reason.clone()).into());
        }
        if state.dead.contains(&extent) {
            return refused("the slot's extent is abandoned");
        }
        match state.slot_mut(job.slot) {
            Some(slot) if slot.life == Life::Free => {
                let (prefix, tokens) = (block.key.prefix, block.tokens);
                *slot = Slot { prefix, tokens, life: Life::Writing };
                Ok(())
            }
            _ => refused("the slot holds another block"),
        }
    }

    fn end(&self, slot: SlotId, life: Life) {
        if let Some(slot) = lock(&self.state).slot_mut(slot) {
            *slot = if life == Life::Free { Slot::FREE } else { Slot { life, ..*slot } };
        }
    }

    fn write_data(&self, job: &WriteJob<'_>, now: UnixTime) -> Result<Entry, DiskError> {
        let (extent, offset) =
            self.layout.place(job.slot).ok_or(DiskError::Short(FileId::PROBE))?;
        let slot = lock(&self.state).slot(job.slot).unwrap_or(Slot::FREE);
        let key = slot.key(job.slot);
        let sealed = seal(&key.encode(), &Record::new(job.block, now));
        let value =
            sealed.ok_or_else(|| DiskError::Io("the record cannot be encoded".to_owned()))?;
        self.grow(extent, offset + self.layout.stride)?;
        let done = self.disk.write_at(extent, offset, job.bytes);
        let mut state = lock(&self.state);
        state.counters.data_bytes += self.layout.stride;
        match &done {
            Ok(()) => state.write_errors = 0,
            Err(DiskError::Full) => state.counters.full += 1,
            Err(error) => state.failed(true, error),
        }
        done.map(|()| Entry { key, value, extent })
    }

    /// Makes room in an extent up to `end`: for the whole extent where there is room, for one slot
    /// where there is not.
    fn grow(&self, extent: FileId, end: u64) -> Result<(), DiskError> {
        let _growth = lock(&self.growth);
        let have = lock(&self.state).reserved.get(&extent).copied().unwrap_or(0);
        if have >= end {
            return Ok(());
        }
        let whole = self.layout.extent_bytes(extent).max(end);
        let (bytes, done) = match self.disk.reserve(extent, whole) {
            Err(DiskError::Full) => (end, self.disk.reserve(extent, end)),
            done => (whole, done),
        };
        let mut state = lock(&self.state);
        match &done {
            Ok(()) => {
                state.reserved.insert(extent, bytes);
            }
            Err(DiskError::Full) => state.counters.full += 1,
            Err(error) => state.failed(true, error),
        }
        done
    }

    /// Reads the block of a slot into `bytes` (at least a block long; read without a copy when it is
    /// a stride long and lies at a multiple of a page) and verifies it against the digest that its
    /// producer signed. What does not match leaves the tier.
    ///
    /// # Errors
    /// See [`ReadError`]; `bytes` then hold anything.
    pub fn read(
        &self,
        slot: SlotId,
        key: &BlockKey,
        bytes: &mut [u8],
    ) -> Result<SignedDigest, ReadError> {
        let held = lock(&self.state).holds(slot, key.prefix);
        let (at, checked) =
            held.filter(|_| key.storage == self.storage).ok_or(ReadError::Corrupt)?;
        let Some((extent, offset)) = self.layout.place(slot) else {
            return Err(ReadError::Corrupt);
        };
        let name = at.encode();
        let record = self.index.get(&name).map_err(|error| self.read_failed(error))?;
        let record = record.and_then(|value| unseal::<Record>(&name, &value).ok());
        let Some(record) = record else { return Err(self.corrupt(slot, key)) };
        let length = usize::try_from(self.layout.block_bytes).unwrap_or(usize::MAX);
        let stride = usize::try_from(self.layout.stride).unwrap_or(usize::MAX);
        let whole = if bytes.len() >= stride { stride } else { length };
        let Some(target) = bytes.get_mut(..whole) else {
            return Err(DiskError::Io("the buffer is shorter than a block".to_owned()).into());
        };
        match self.disk.read_at(extent, offset, target) {
            Ok(()) => lock(&self.state).read_errors = 0,
            // The file lost what it had: a fault of the file system, not of the medium.
            Err(DiskError::Short(_)) => return Err(self.corrupt(slot, key)),
            Err(error) => return Err(self.read_failed(error)),
        }
        let block = target.get(..length).unwrap_or_default();
        let signed = record.signed(*key);
        let sound = if checked {
            signed.digest == ContentDigest::of(block)
        } else {
            signed.covers(key, block)
        };
        if !sound {
            return Err(self.corrupt(slot, key));
        }
        let mut state = lock(&self.state);
        state.counters.read += 1;
        state.counters.read_bytes += self.layout.block_bytes;
        // Forgotten and written anew meanwhile: then the mark belongs to the new block, whose
        // record the next read checks against its own digest all the same.
        let held = state.holds(slot, key.prefix).filter(|_| !checked);
        if let Some(slot) = held.and_then(|_| state.slot_mut(slot)) {
            slot.life = Life::Live { checked: true };
        }
        Ok(signed)
    }

    fn read_failed(&self, error: DiskError) -> ReadError {
        lock(&self.state).failed(false, &error);
        ReadError::Failed(error)
    }

    fn corrupt(&self, slot: SlotId, key: &BlockKey) -> ReadError {
        let mut state = lock(&self.state);
        state.counters.corrupt += 1;
        state.release(slot, key.prefix);
        ReadError::Corrupt
    }

    /// The slot's block has left. Only memory is touched: its record goes with the next commit, and
    /// in any case before the slot is written again. Nothing when the slot does not hold `key`.
    pub fn forget(&self, slot: SlotId, key: &BlockKey) -> bool {
        key.storage == self.storage && lock(&self.state).release(slot, key.prefix)
    }

    /// The block's claims from `now` on; they reach the disk with the next commit.
    pub fn keep(&self, slot: SlotId, key: &BlockKey, claims: Vec<Claim>, now: UnixTime) {
        let mut state = lock(&self.state);
        if key.storage == self.storage && state.holds(slot, key.prefix).is_some() {
            state.dirty.keeps.insert(slot, (key.prefix, claims, now));
        }
    }
}

impl<D, I> std::fmt::Debug for Nvme<D, I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Nvme({} of {} slots)", lock(&self.state).live, self.layout.slots)
    }
}
