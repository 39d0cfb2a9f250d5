//! An origin's set in 256 buckets, so that two holders of it find where they differ without
//! telling each other all of it.

use super::{EventBatch, EventRun, Holder, Seq, SetDigest};
use crate::block::StorageId;
use crate::hash::PrefixHash;
use crate::id::{Incarnation, NodeId};
use serde::{Deserialize, Serialize};

/// Buckets into which an origin's set is divided.
pub const BUCKETS: usize = 256;

/// The bucket of a prefix: the lowest byte of its name. Names are hashes, so buckets fill evenly.
pub const fn bucket_of(prefix: PrefixHash) -> u8 {
    prefix.0.to_le_bytes()[0]
}

/// Digests of all buckets of one set: the low halves of their [`SetDigest::mix`]es, 0 where empty.
///
/// They only find differences among honest nodes. What is put in place of a bucket is checked by
/// the whole set's digest, which its origin signed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BucketDigests(Box<[u64; BUCKETS]>);

impl Default for BucketDigests {
    fn default() -> Self {
        Self(Box::new([0; BUCKETS]))
    }
}

impl BucketDigests {
    /// From a frame; `None` unless there is one digest per bucket.
    pub fn from_slice(digests: &[u64]) -> Option<Self> {
        Some(Self(Box::new(<[u64; BUCKETS]>::try_from(digests).ok()?)))
    }

    /// As a frame carries them.
    pub fn to_vec(&self) -> Vec<u64> {
        self.0.to_vec()
    }

    fn at(&mut self, prefix: PrefixHash) -> Option<&mut u64> {
        self.0.get_mut(usize::from(bucket_of(prefix)))
    }

    /// Counts an entry in; `entry` is its digest ([`SetDigest::of`]).
    pub fn add(&mut self, prefix: PrefixHash, entry: SetDigest) {
        if let Some(bucket) = self.at(prefix) {
            *bucket = bucket.wrapping_add(entry.mix as u64);
        }
    }

    /// Counts an entry out.
    pub fn remove(&mut self, prefix: PrefixHash, entry: SetDigest) {
        if let Some(bucket) = self.at(prefix) {
            *bucket = bucket.wrapping_sub(entry.mix as u64);
        }
    }

    /// Adds the digests of a disjoint set of the same origin.
    pub fn join(&mut self, other: &Self) {
        for (ours, theirs) in self.0.iter_mut().zip(other.0.iter()) {
            *ours = ours.wrapping_add(*theirs);
        }
    }

    /// Turns the digests after `batches` into those before them, so that two nodes compare at one
    /// point of the origin's history. Origins tell real changes only: each `Stored` was absent,
    /// each `Removed` was there. False where that cannot be undone (a tier was cleared, or the
    /// batch cannot be read): the digests are of no use then.
    pub fn undo<'a>(&mut self, batches: impl IntoIterator<Item = &'a EventBatch>) -> bool {
        for batch in batches {
            let Ok(runs) = crate::wire::decode::<Vec<EventRun>>(&batch.payload) else {
                return false;
            };
            for run in &runs {
                match run {
                    EventRun::Stored { storage, holder, hashes, .. } => {
                        self.each(&batch.origin, (*holder, *storage), hashes, Self::remove);
                    }
                    EventRun::Removed { storage, holder, hashes, .. } => {
                        self.each(&batch.origin, (*holder, *storage), hashes, Self::add);
                    }
                    EventRun::Cleared { .. } => return false,
                    EventRun::Computing { .. } => {}
                }
            }
        }
        true
    }

    fn each(
        &mut self,
        origin: &NodeId,
        (holder, storage): (Holder, StorageId),
        hashes: &[PrefixHash],
        change: fn(&mut Self, PrefixHash, SetDigest),
    ) {
        for hash in hashes {
            change(self, *hash, SetDigest::of(origin, holder, storage, *hash));
        }
    }

    /// Buckets in which two sets differ.
    pub fn differing(&self, other: &Self) -> Vec<u8> {
        let pairs = (0..=u8::MAX).zip(self.0.iter().zip(other.0.iter()));
        pairs.filter(|(_, (ours, theirs))| ours != theirs).map(|(bucket, _)| bucket).collect()
    }
}

/// The index of the sender differs from what `origin` signed: it asks for the buckets in which the
/// receiver's differs from its own.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct BucketsWanted {
    /// Whose set.
    pub origin: NodeId,
    /// In which life.
    pub incarnation: Incarnation,
    /// The digests are of the set after this batch.
    pub seq: Seq,
    /// One per bucket ([`BucketDigests`]).
    pub digests: Vec<u64>,
}

/// What some buckets of an origin's set hold at one point of its history, or a part of that.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Buckets {
    /// Whose set.
    pub origin: NodeId,
    /// In which life.
    pub incarnation: Incarnation,
    /// The content is exact after this batch; later batches are replayed on top.
    pub watermark: Seq,
    /// The chain's link at the watermark.
    pub link: [u8; 32],
    /// What the origin signed for the whole set at the watermark.
    pub digest: SetDigest,
    /// Which buckets: the receiver's content of them is replaced. The same in every part.
    pub buckets: Vec<u8>,
    /// Number of this part, from 0.
    pub part: u16,
    /// How many there are, at least 1.
    pub parts: u16,
    /// The content of these buckets that this part carries, as runs of `Stored`.
    pub runs: Vec<EventRun>,
}

#[cfg(test)]
mod tests;
