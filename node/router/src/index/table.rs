//! The table itself: prefix name → set of lanes, in buckets of one cache line.
//!
//! Open addressing over buckets of five slots. A bucket counts the entries that had to move on
//! past it, so a search stops at the first bucket that nobody passed and removal leaves no
//! tombstone (the scheme of Folly's F14 tables). One writer, any number of readers, no locks:
//! an entry never moves inside a table; growth builds another table.
//!
//! A slot stores 64 bits of the name, and its bucket implies some twenty more of the other half:
//! at ten million entries a false match is expected once in about 10^12 look-ups of unknown names.
//! The writer keeps the other half beside the table and compares all 128 bits.

use super::LANE_SET_EMPTY;
use protocol::hash::PrefixHash;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Slots in a bucket: five keys, five sets and the counter fill one line of 64 bytes.
pub(super) const SLOTS: usize = 5;

/// Names looked at together, so that their cache misses overlap.
pub(super) const BATCH: usize = 16;

/// A name split for the table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Name {
    /// The stored half; never 0, which marks a free slot.
    pub(super) key: u64,
    /// The half that chooses the bucket.
    pub(super) home: u64,
}

impl Name {
    pub(super) fn of(hash: PrefixHash) -> Self {
        let key = (hash.0 >> 64) as u64;
        Self { key: if key == 0 { 1 } else { key }, home: hash.0 as u64 }
    }

    /// The bucket where a search begins: the high bits of `home`, so that tables of any size keep
    /// entries in one order and a rebuild writes nearly in sequence.
    fn bucket(self, buckets: usize) -> usize {
        ((u128::from(self.home) * buckets as u128) >> 64) as usize
    }
}

/// One cache line.
#[repr(align(64))]
#[derive(Default)]
struct Bucket {
    keys: [AtomicU64; SLOTS],
    sets: [AtomicU32; SLOTS],
    /// Entries that were placed further on because this bucket was full.
    passed: AtomicU32,
}

/// Where an entry lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Spot {
    bucket: usize,
    slot: usize,
}

impl Spot {
    /// Number of the slot in the whole table.
    pub(super) fn index(self) -> usize {
        self.bucket * SLOTS + self.slot
    }
}

/// What a reader found, and how to see that it still holds.
pub(super) struct Found<'a> {
    /// The set's number.
    pub(super) set: u32,
    key: u64,
    key_cell: &'a AtomicU64,
    set_cell: &'a AtomicU32,
}

impl Found<'_> {
    /// Whether the entry still names the same set: asked after the set's content was read. If it
    /// does, the content belonged to this name (sets are rewritten only after the last entry let
    /// go of them, and the writer's stores are ordered).
    pub(super) fn still_holds(&self) -> bool {
        self.set_cell.load(Ordering::Acquire) == self.set
            && self.key_cell.load(Ordering::Acquire) == self.key
    }
}

/// See the module's documentation.
pub(super) struct Table {
    buckets: Box<[Bucket]>,
}

impl Table {
    /// An empty table for at least `slots` slots.
    pub(super) fn new(slots: usize) -> Self {
        let buckets = slots.div_ceil(SLOTS).max(4);
        Self { buckets: std::iter::repeat_with(Bucket::default).take(buckets).collect() }
    }

    /// Slots in all.
    pub(super) fn capacity(&self) -> usize {
        self.buckets.len() * SLOTS
    }

    /// Bytes that the buckets take.
    pub(super) fn bytes(&self) -> usize {
        self.buckets.len() * size_of::<Bucket>()
    }

    /// Loads the buckets of `hashes` (at most [`BATCH`] are worth it): the loads do not depend on
    /// one another, so the processor overlaps their cache misses.
    pub(super) fn touch(&self, hashes: &[PrefixHash]) {
        let mut sum = 0;
        for hash in hashes {
            if let Some(bucket) = self.buckets.get(Name::of(*hash).bucket(self.buckets.len())) {
                sum ^= bucket.passed.load(Ordering::Relaxed);
            }
        }
        std::hint::black_box(sum);
    }

    fn next(&self, bucket: usize) -> usize {
        if bucket + 1 == self.buckets.len() { 0 } else { bucket + 1 }
    }

    /// A reader's look-up.
    pub(super) fn find(&self, hash: PrefixHash) -> Option<Found<'_>> {
        let name = Name::of(hash);
        let mut at = name.bucket(self.buckets.len());
        for _ in 0..self.buckets.len() {
            let bucket = self.buckets.get(at)?;
            for (key_cell, set_cell) in bucket.keys.iter().zip(&bucket.sets) {
                if key_cell.load(Ordering::Acquire) == name.key {
                    let set = set_cell.load(Ordering::Acquire);
                    return Some(Found { set, key: name.key, key_cell, set_cell });
                }
            }
            if bucket.passed.load(Ordering::Acquire) == 0 {
                return None;
            }
            at = self.next(at);
        }
        None
    }

    /// The writer's look-up: `same` compares the other half of the name at a spot.
    pub(super) fn locate(&self, name: Name, same: impl Fn(Spot) -> bool) -> Option<Spot> {
        let mut at = name.bucket(self.buckets.len());
        for _ in 0..self.buckets.len() {
            let bucket = self.buckets.get(at)?;
            for (slot, key) in bucket.keys.iter().enumerate() {
                let spot = Spot { bucket: at, slot };
                if key.load(Ordering::Relaxed) == name.key && same(spot) {
                    return Some(spot);
                }
            }
            if bucket.passed.load(Ordering::Relaxed) == 0 {
                return None;
            }
            at = self.next(at);
        }
        None
    }

    /// The set at a spot.
    pub(super) fn set_at(&self, spot: Spot) -> u32 {
        self.buckets
            .get(spot.bucket)
            .and_then(|bucket| bucket.sets.get(spot.slot))
            .map_or(LANE_SET_EMPTY, |set| set.load(Ordering::Relaxed))
    }

    /// Changes the set at a spot. Writer only.
    pub(super) fn put(&self, spot: Spot, set: u32) {
        let cell = self.buckets.get(spot.bucket).and_then(|bucket| bucket.sets.get(spot.slot));
        if let Some(cell) = cell {
            cell.store(set, Ordering::Release);
        }
    }

    /// Takes a free slot for a name that is not in the table. `None` when the table is full.
    /// Writer only.
    pub(super) fn insert(&self, name: Name, set: u32) -> Option<Spot> {
        let spot = self.free_spot(name)?;
        let mut at = name.bucket(self.buckets.len());
        while at != spot.bucket {
            self.buckets.get(at)?.passed.fetch_add(1, Ordering::Release);
            at = self.next(at);
        }
        let bucket = self.buckets.get(spot.bucket)?;
        bucket.sets.get(spot.slot)?.store(set, Ordering::Release);
        bucket.keys.get(spot.slot)?.store(name.key, Ordering::Release);
        Some(spot)
    }

    fn free_spot(&self, name: Name) -> Option<Spot> {
        let mut at = name.bucket(self.buckets.len());
        for _ in 0..self.buckets.len() {
            let keys = &self.buckets.get(at)?.keys;
            if let Some(slot) = keys.iter().position(|key| key.load(Ordering::Relaxed) == 0) {
                return Some(Spot { bucket: at, slot });
            }
            at = self.next(at);
        }
        None
    }

    /// Frees a spot of a name. Writer only.
    pub(super) fn remove(&self, name: Name, spot: Spot) {
        if let Some(bucket) = self.buckets.get(spot.bucket)
            && let Some(key) = bucket.keys.get(spot.slot)
        {
            key.store(0, Ordering::Release);
        }
        let mut at = name.bucket(self.buckets.len());
        while at != spot.bucket {
            let Some(bucket) = self.buckets.get(at) else {
                return;
            };
            bucket.passed.fetch_sub(1, Ordering::Release);
            at = self.next(at);
        }
    }

    /// All entries: spot, stored half, set. Writer only.
    pub(super) fn entries(&self) -> impl Iterator<Item = (Spot, u64, u32)> + '_ {
        self.buckets.iter().enumerate().flat_map(|(number, bucket)| {
            bucket.keys.iter().zip(&bucket.sets).enumerate().filter_map(
                move |(slot, (key, set))| {
                    let key = key.load(Ordering::Relaxed);
                    let spot = Spot { bucket: number, slot };
                    (key != 0).then(|| (spot, key, set.load(Ordering::Relaxed)))
                },
            )
        })
    }
}
