//! The own history: what this node holds, told as signed batches.

use crate::config::{BATCH_HASHES, Keep};
use crate::ring::Ring;
use crate::runs::Runs;
use protocol::block::StorageId;
use protocol::event::{
    BlockEvent, BucketDigests, Buckets, EventBatch, EventRun, Holder, INDEX_GRANULE, Seq,
    SetDigest, Snapshot, bucket_of,
};
use protocol::hash::PrefixHash;
use protocol::id::{Incarnation, NodeId};
use protocol::sign::{Keypair, Signature};
use std::collections::{BTreeMap, VecDeque};

type Key = (Holder, StorageId, PrefixHash);

/// A held entry: its prefix's length, and its place in the order of arrival, so that chains
/// that arrived together are told together again.
#[derive(Clone, Copy, Debug)]
struct Held {
    tokens: u32,
    order: u64,
}

/// What this node holds and has told.
#[derive(Debug)]
pub(crate) struct OwnLog {
    keypair: Keypair,
    node: NodeId,
    incarnation: Incarnation,
    held: BTreeMap<Key, Held>,
    order: u64,
    /// Of `held`, so ahead of the last batch while changes wait.
    digest: SetDigest,
    buckets: BucketDigests,
    runs: Runs,
    /// Batches that are full but not yet signed, each with the digest after it.
    full: VecDeque<(Vec<EventRun>, SetDigest)>,
    head: Seq,
    head_link: [u8; 32],
    head_digest: SetDigest,
    ring: Ring,
    /// Stands in the field until a batch is signed.
    unsigned: Signature,
}

impl OwnLog {
    pub(crate) fn new(keypair: Keypair, incarnation: Incarnation, keep: Keep) -> Self {
        Self {
            node: keypair.node(),
            unsigned: keypair.sign(b""),
            keypair,
            incarnation,
            held: BTreeMap::new(),
            order: 0,
            digest: SetDigest::default(),
            buckets: BucketDigests::default(),
            runs: Runs::default(),
            full: VecDeque::new(),
            head: Seq(0),
            head_link: [0; 32],
            head_digest: SetDigest::default(),
            ring: Ring::new(keep),
        }
    }

    pub(crate) fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// The last batch and the digest after it.
    pub(crate) fn head(&self) -> (Seq, SetDigest) {
        (self.head, self.head_digest)
    }

    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Takes a change; false when it changes nothing that others are told.
    pub(crate) fn event(&mut self, event: &BlockEvent) -> bool {
        let changed = match *event {
            BlockEvent::Stored { prefix, tokens, storage, holder } => {
                self.stored((holder, storage, prefix), tokens)
            }
            BlockEvent::Removed { prefix, storage, holder, .. } => {
                self.removed((holder, storage, prefix))
            }
            BlockEvent::Cleared { holder } => self.cleared(holder),
        };
        if self.runs.hashes() >= BATCH_HASHES {
            self.full.push_back((self.runs.take(), self.digest));
        }
        changed
    }

    fn stored(&mut self, key: Key, tokens: u32) -> bool {
        if tokens == 0 || !tokens.is_multiple_of(INDEX_GRANULE) || self.held.contains_key(&key) {
            return false;
        }
        self.order += 1;
        self.held.insert(key, Held { tokens, order: self.order });
        let entry = SetDigest::of(&self.node, key.0, key.1, key.2);
        self.digest = self.digest.plus(entry);
        self.buckets.add(key.2, entry);
        self.runs.push(true, (key.0, key.1), tokens, key.2);
        true
    }

    fn removed(&mut self, key: Key) -> bool {
        let Some(held) = self.held.remove(&key) else {
            return false;
        };
        self.count_out(&key);
        self.runs.push(false, (key.0, key.1), held.tokens, key.2);
        true
    }

    fn count_out(&mut self, key: &Key) {
        let entry = SetDigest::of(&self.node, key.0, key.1, key.2);
        self.digest = self.digest.minus(entry);
        self.buckets.remove(key.2, entry);
    }

    fn cleared(&mut self, holder: Holder) -> bool {
        let least = (holder, StorageId(0), PrefixHash(0));
        let most = (holder, StorageId(u64::MAX), PrefixHash(u128::MAX));
        let gone: Vec<Key> = self.held.range(least..=most).map(|(key, _)| *key).collect();
        for key in &gone {
            self.held.remove(key);
            self.count_out(key);
        }
        if !gone.is_empty() {
            self.runs.clear(holder);
        }
        !gone.is_empty()
    }

    /// Signs everything that waits.
    pub(crate) fn flush(&mut self) -> Vec<EventBatch> {
        if !self.runs.is_empty() {
            self.full.push_back((self.runs.take(), self.digest));
        }
        let mut made = Vec::with_capacity(self.full.len());
        while let Some((runs, digest)) = self.full.pop_front() {
            let batch = EventBatch {
                origin: self.node,
                incarnation: self.incarnation,
                seq: Seq(self.head.0 + 1),
                previous: self.head_link,
                digest,
                // Within the frame limit by BATCH_HASHES, so encoding cannot fail.
                payload: protocol::wire::encode(&runs).unwrap_or_default(),
                signature: self.unsigned,
            }
            .sign(&self.keypair);
            self.head = batch.seq;
            self.head_link = batch.link();
            self.head_digest = digest;
            self.ring.push(batch.clone());
            made.push(batch);
        }
        made
    }

    /// What is held and wanted, in order of arrival, as runs.
    fn runs_of(&self, wanted: impl Fn(&Key) -> bool) -> Vec<EventRun> {
        let mut all: Vec<(&Key, &Held)> = self.held.iter().filter(|(key, _)| wanted(key)).collect();
        all.sort_unstable_by_key(|(_, held)| held.order);
        let mut runs = Runs::default();
        for (key, held) in all {
            runs.push(true, (key.0, key.1), held.tokens, key.2);
        }
        runs.take()
    }

    /// The whole set at the head. Call after [`Self::flush`], so that nothing waits.
    pub(crate) fn cut(&self) -> Snapshot {
        Snapshot {
            origin: self.node,
            incarnation: self.incarnation,
            watermark: self.head,
            link: self.head_link,
            digest: self.head_digest,
            runs: self.runs_of(|_| true),
        }
    }

    /// The buckets in which a peer's set after batch `seq` differed from this one, as they are at
    /// the head. Call after [`Self::flush`].
    pub(crate) fn cut_buckets(&self, seq: Seq, theirs: &BucketDigests) -> Buckets {
        let mut then = self.buckets.clone();
        let later = self.ring.range(Seq(seq.0.saturating_add(1)), self.head);
        // Where the way back is closed, all buckets count as different.
        let comparable = match later {
            Some(later) => then.undo(later),
            None => seq == self.head,
        };
        let buckets = if comparable { then.differing(theirs) } else { (0..=u8::MAX).collect() };
        let runs = self.runs_of(|key| buckets.contains(&bucket_of(key.2)));
        Buckets {
            origin: self.node,
            incarnation: self.incarnation,
            watermark: self.head,
            link: self.head_link,
            digest: self.head_digest,
            buckets,
            part: 0,
            parts: 1,
            runs,
        }
    }

    /// Starts a new life that holds the same: all of it waits to be told from batch 1 on.
    pub(crate) fn reborn(&mut self, incarnation: Incarnation) {
        let held: Vec<(Key, Held)> = {
            let mut all: Vec<(Key, Held)> = std::mem::take(&mut self.held).into_iter().collect();
            all.sort_unstable_by_key(|(_, held)| held.order);
            all
        };
        self.incarnation = incarnation;
        self.digest = SetDigest::default();
        self.buckets = BucketDigests::default();
        self.runs = Runs::default();
        self.full.clear();
        self.head = Seq(0);
        self.head_link = [0; 32];
        self.head_digest = SetDigest::default();
        self.ring.clear();
        for ((holder, storage, prefix), Held { tokens, .. }) in held {
            self.event(&BlockEvent::Stored { prefix, tokens, storage, holder });
        }
    }
}

#[cfg(test)]
mod tests;
