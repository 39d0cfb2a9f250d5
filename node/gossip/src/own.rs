//! The own history: what this node holds, told as signed batches.

use crate::config::{BATCH_HASHES, Keep};
use crate::ring::Ring;
use crate::runs::Runs;
use protocol::block::StorageId;
use protocol::event::{
    BlockEvent, EventBatch, EventRun, Holder, INDEX_GRANULE, Seq, SetDigest, Snapshot,
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
        self.digest.add(&self.node, key.0, key.1, key.2);
        self.runs.push(true, (key.0, key.1), tokens, key.2);
        true
    }

    fn removed(&mut self, key: Key) -> bool {
        let Some(held) = self.held.remove(&key) else {
            return false;
        };
        self.digest.remove(&self.node, key.0, key.1, key.2);
        self.runs.push(false, (key.0, key.1), held.tokens, key.2);
        true
    }

    fn cleared(&mut self, holder: Holder) -> bool {
        let least = (holder, StorageId(0), PrefixHash(0));
        let most = (holder, StorageId(u64::MAX), PrefixHash(u128::MAX));
        let gone: Vec<Key> = self.held.range(least..=most).map(|(key, _)| *key).collect();
        for key in &gone {
            self.held.remove(key);
            self.digest.remove(&self.node, key.0, key.1, key.2);
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

    /// The held set in order of arrival, as runs.
    fn runs_of_all(&self) -> Runs {
        let mut all: Vec<(&Key, &Held)> = self.held.iter().collect();
        all.sort_unstable_by_key(|(_, held)| held.order);
        let mut runs = Runs::default();
        for (key, held) in all {
            runs.push(true, (key.0, key.1), held.tokens, key.2);
        }
        runs
    }

    /// The whole set at the head. Call after [`Self::flush`], so that nothing waits.
    pub(crate) fn cut(&self) -> Snapshot {
        Snapshot {
            origin: self.node,
            incarnation: self.incarnation,
            watermark: self.head,
            link: self.head_link,
            digest: self.head_digest,
            runs: self.runs_of_all().take(),
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
