//! What the router keeps of one origin: its place in the history and its lanes.

use crate::index::{Added, Lane, LaneId, MAX_GRANULES, Writer};
use protocol::block::StorageId;
use protocol::event::{BucketDigests, EventRun, Holder, INDEX_GRANULE, Seq, SetDigest};
use protocol::hash::PrefixHash;
use protocol::id::{Incarnation, NodeId};
use protocol::time::Time;
use std::collections::BTreeMap;

/// Names handled together, so that their cache misses overlap.
const BATCH: usize = 16;

/// Granule number of a prefix of `tokens` tokens, `None` unless it ends at one (shorter blocks are
/// not indexed) within the indexed length.
pub(crate) fn granule_of(tokens: u32) -> Option<u16> {
    let whole = tokens.is_multiple_of(INDEX_GRANULE);
    let granule = usize::try_from(tokens / INDEX_GRANULE).unwrap_or(usize::MAX);
    (whole && (1..=MAX_GRANULES).contains(&granule)).then(|| u16::try_from(granule).ok())?
}

/// One lane of an origin with what the origin holds there.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) lane: LaneId,
    pub(crate) digest: SetDigest,
    /// The same set by buckets: 2 KB, so that a tier is cleared without looking at its entries.
    pub(crate) buckets: BucketDigests,
}

/// Whether our set agrees with what the origin says it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Agreement {
    Agrees,
    /// It does not; told at this time.
    Differs(Time),
    /// It cannot: entries were dropped for want of room.
    Partial,
}

/// One origin in one life.
pub(crate) struct Origin {
    pub(crate) incarnation: Incarnation,
    /// Last batch taken in.
    pub(crate) seq: Seq,
    /// Its link, for the next batch's `previous`.
    pub(crate) link: [u8; 32],
    /// What the origin said it holds after that batch.
    pub(crate) said: SetDigest,
    pub(crate) agreement: Agreement,
    pub(crate) lanes: BTreeMap<(Holder, StorageId), Held>,
}

impl Origin {
    pub(crate) fn new(incarnation: Incarnation) -> Self {
        Self {
            incarnation,
            seq: Seq(0),
            link: [0; 32],
            said: SetDigest::default(),
            agreement: Agreement::Agrees,
            lanes: BTreeMap::new(),
        }
    }

    /// Digest of what we keep of it.
    pub(crate) fn digest(&self) -> SetDigest {
        self.lanes.values().fold(SetDigest::default(), |sum, held| sum.plus(held.digest))
    }

    /// Digests of the buckets of what we keep of it.
    pub(crate) fn buckets(&self) -> BucketDigests {
        let mut sum = BucketDigests::default();
        self.lanes.values().for_each(|held| sum.join(&held.buckets));
        sum
    }

    /// The lane of a holder; a new one is not shown to readers before [`Self::publish`].
    pub(crate) fn lane(
        &mut self,
        writer: &mut Writer,
        holder: Holder,
        storage: StorageId,
    ) -> Option<LaneId> {
        if let Some(held) = self.lanes.get(&(holder, storage)) {
            return Some(held.lane);
        }
        let Some(lane) = writer.new_lane() else {
            self.agreement = Agreement::Partial;
            return None;
        };
        let (digest, buckets) = (SetDigest::default(), BucketDigests::default());
        self.lanes.insert((holder, storage), Held { lane, digest, buckets });
        Some(lane)
    }

    /// Shows all lanes to readers.
    pub(crate) fn publish(&self, writer: &mut Writer, node: NodeId) {
        let incarnation = self.incarnation;
        let lane = |(key, held): (&(Holder, StorageId), &Held)| {
            (held.lane, Lane { node, incarnation, holder: key.0, storage: key.1 })
        };
        writer.publish(&self.lanes.iter().map(lane).collect::<Vec<_>>());
    }

    /// Takes everything of this life out of the index.
    pub(crate) fn retire(&self, writer: &mut Writer) {
        writer.retire(&self.lanes.values().map(|held| held.lane).collect::<Vec<_>>());
    }

    /// Takes all lanes of a holder out of the index.
    pub(crate) fn clear(&mut self, writer: &mut Writer, holder: Holder) {
        let gone: Vec<LaneId> = self
            .lanes
            .iter()
            .filter(|((of, _), _)| *of == holder)
            .map(|(_, held)| held.lane)
            .collect();
        writer.retire(&gone);
        self.lanes.retain(|(of, _), _| *of != holder);
    }

    /// One entry comes.
    pub(crate) fn add(
        &mut self,
        writer: &mut Writer,
        node: &NodeId,
        key: (Holder, StorageId),
        hash: PrefixHash,
        granule: u16,
    ) {
        let Some(held) = self.lanes.get_mut(&key) else {
            return;
        };
        match writer.add(held.lane, hash, granule) {
            Added::New => {
                let entry = SetDigest::of(node, key.0, key.1, hash);
                held.digest = held.digest.plus(entry);
                held.buckets.add(hash, entry);
            }
            Added::Held => {}
            Added::Full => self.agreement = Agreement::Partial,
        }
    }

    /// One entry goes.
    pub(crate) fn remove(
        &mut self,
        writer: &mut Writer,
        node: &NodeId,
        key: (Holder, StorageId),
        hash: PrefixHash,
    ) {
        if let Some(held) = self.lanes.get_mut(&key)
            && writer.remove(held.lane, hash)
        {
            let entry = SetDigest::of(node, key.0, key.1, hash);
            held.digest = held.digest.minus(entry);
            held.buckets.remove(hash, entry);
        }
    }

    /// Applies a run of changes. True when a lane was made, which [`Self::publish`] must show.
    /// Announcements of prefills under way are not entries and change nothing here.
    pub(crate) fn apply(&mut self, writer: &mut Writer, node: &NodeId, run: &EventRun) -> bool {
        match run {
            EventRun::Stored { storage, holder, first, hashes } => {
                let before = self.lanes.len();
                let Some(granule) = granule_of(*first) else {
                    return false;
                };
                if hashes.is_empty() || self.lane(writer, *holder, *storage).is_none() {
                    return false;
                }
                let mut granules = granule..=u16::MAX;
                for batch in hashes.chunks(BATCH) {
                    writer.touch(batch);
                    for (hash, granule) in batch.iter().zip(&mut granules) {
                        self.add(writer, node, (*holder, *storage), *hash, granule);
                    }
                }
                self.lanes.len() > before
            }
            EventRun::Removed { storage, holder, first, hashes } => {
                if granule_of(*first).is_some() {
                    for batch in hashes.chunks(BATCH) {
                        writer.touch(batch);
                        for hash in batch {
                            self.remove(writer, node, (*holder, *storage), *hash);
                        }
                    }
                }
                false
            }
            EventRun::Cleared { holder } => {
                self.clear(writer, *holder);
                false
            }
            EventRun::Computing { .. } => false,
        }
    }
}
