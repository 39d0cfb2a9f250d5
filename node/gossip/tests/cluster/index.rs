//! What the router would keep, in its plainest form; checks the promises of [`gossip::Out`].

use gossip::In;
use protocol::block::StorageId;
use protocol::event::{
    BucketDigests, Buckets, BucketsWanted, EventBatch, EventRun, Holder, Seq, SetDigest, Snapshot,
    bucket_of,
};
use protocol::hash::PrefixHash;
use protocol::id::{Incarnation, NodeId};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) type Entry = (Holder, StorageId, PrefixHash);

#[derive(Debug, Default)]
pub(crate) struct Origin {
    pub(crate) incarnation: Incarnation,
    pub(crate) seq: Seq,
    pub(crate) link: [u8; 32],
    /// What the origin said.
    pub(crate) said: SetDigest,
    pub(crate) entries: BTreeSet<Entry>,
    /// Of the entries.
    found: SetDigest,
}

#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(crate) origins: BTreeMap<NodeId, Origin>,
    pub(crate) snapshots: usize,
    pub(crate) mended: usize,
    /// Times a set was not what its origin said.
    pub(crate) mismatches: usize,
}

/// Applies runs to a set; returns the change of its digest.
pub(crate) fn apply(
    node: &NodeId,
    entries: &mut BTreeSet<Entry>,
    runs: Vec<EventRun>,
) -> SetDigest {
    let mut change = SetDigest::default();
    for run in runs {
        match run {
            EventRun::Stored { storage, holder, hashes, .. } => {
                for hash in hashes {
                    if entries.insert((holder, storage, hash)) {
                        change.add(node, holder, storage, hash);
                    }
                }
            }
            EventRun::Removed { storage, holder, hashes, .. } => {
                for hash in hashes {
                    if entries.remove(&(holder, storage, hash)) {
                        change.remove(node, holder, storage, hash);
                    }
                }
            }
            EventRun::Cleared { holder } => {
                for (_, storage, hash) in entries.extract_if(.., |entry| entry.0 == holder) {
                    change.remove(node, holder, storage, hash);
                }
            }
            EventRun::Computing { .. } => {}
        }
    }
    change
}

fn as_runs(entries: impl Iterator<Item = Entry>) -> Vec<EventRun> {
    let run = |(holder, storage, prefix)| EventRun::Stored {
        storage,
        holder,
        first: 64,
        hashes: vec![prefix],
    };
    entries.map(run).collect()
}

impl Origin {
    fn buckets(&self, node: &NodeId) -> BucketDigests {
        let mut buckets = BucketDigests::default();
        for (holder, storage, prefix) in &self.entries {
            buckets.add(*prefix, SetDigest::of(node, *holder, *storage, *prefix));
        }
        buckets
    }

    fn apply(&mut self, batch: &EventBatch) {
        let runs = protocol::wire::decode(&batch.payload).unwrap();
        self.found = self.found.plus(apply(&batch.origin, &mut self.entries, runs));
    }
}

impl Index {
    /// What the router would tell gossip if the set is not what the origin said.
    fn compare(&mut self, node: &NodeId) -> Option<In> {
        let origin = self.origins.get(node)?;
        let differs = origin.said != origin.found;
        self.mismatches += usize::from(differs);
        differs.then(|| In::Diverged {
            origin: *node,
            incarnation: origin.incarnation,
            seq: origin.seq,
            buckets: origin.buckets(node),
        })
    }

    pub(crate) fn learn(&mut self, batch: &EventBatch) -> Option<In> {
        let origin = self.origins.entry(batch.origin).or_default();
        if origin.seq == Seq(0) {
            origin.incarnation = batch.incarnation;
        }
        assert_eq!(origin.incarnation, batch.incarnation, "Forget comes before another life");
        assert_eq!(origin.seq.0 + 1, batch.seq.0, "in order, without a gap");
        assert_eq!(origin.link, batch.previous);
        origin.seq = batch.seq;
        origin.link = batch.link();
        origin.said = batch.digest;
        origin.apply(batch);
        self.compare(&batch.origin)
    }

    pub(crate) fn learn_snapshot(&mut self, snapshot: Snapshot) -> Option<In> {
        self.snapshots += 1;
        let node = snapshot.origin;
        let mut entries = BTreeSet::new();
        let found = apply(&node, &mut entries, snapshot.runs);
        let origin = Origin {
            incarnation: snapshot.incarnation,
            seq: snapshot.watermark,
            link: snapshot.link,
            said: snapshot.digest,
            entries,
            found,
        };
        self.origins.insert(node, origin);
        self.compare(&node)
    }

    pub(crate) fn learn_buckets(&mut self, buckets: Buckets, later: &[EventBatch]) -> Option<In> {
        let node = buckets.origin;
        let origin = self.origins.get_mut(&node).unwrap();
        let end = later.last().map_or(buckets.watermark, |batch| batch.seq);
        assert_eq!((origin.incarnation, origin.seq), (buckets.incarnation, end));
        let mut link = buckets.link;
        for (seq, batch) in (buckets.watermark.0 + 1..).zip(later) {
            assert_eq!((batch.seq.0, batch.previous), (seq, link));
            link = batch.link();
        }
        let named: BTreeSet<u8> = buckets.buckets.iter().copied().collect();
        origin.entries.retain(|entry| !named.contains(&bucket_of(entry.2)));
        apply(&node, &mut origin.entries, buckets.runs);
        later.iter().for_each(|batch| origin.apply(batch));
        origin.found = SetDigest::default();
        for (holder, storage, prefix) in &origin.entries {
            origin.found.add(&node, *holder, *storage, *prefix);
        }
        self.mended += 1;
        self.compare(&node)
    }

    /// Whether an origin's set is what it said.
    pub(crate) fn is_exact(&self, node: &NodeId) -> bool {
        self.origins.get(node).is_none_or(|origin| origin.said == origin.found)
    }

    /// Loses an entry of an origin, and notices.
    pub(crate) fn lose(&mut self, node: &NodeId) -> Option<In> {
        let origin = self.origins.get_mut(node)?;
        let (holder, storage, prefix) = origin.entries.pop_first()?;
        origin.found.remove(node, holder, storage, prefix);
        self.compare(node)
    }

    pub(crate) fn forget(&mut self, node: &NodeId, incarnation: Incarnation) {
        if self.origins.get(node).is_some_and(|origin| origin.incarnation == incarnation) {
            self.origins.remove(node);
        }
    }

    /// The sets of some, or of all when none are named.
    pub(crate) fn cut(&self, wanted: &[NodeId]) -> Vec<Snapshot> {
        self.origins
            .iter()
            .filter(|(node, origin)| {
                (wanted.is_empty() || wanted.contains(node)) && origin.said == origin.found
            })
            .map(|(node, origin)| Snapshot {
                origin: *node,
                incarnation: origin.incarnation,
                watermark: origin.seq,
                link: origin.link,
                digest: origin.said,
                runs: as_runs(origin.entries.iter().copied()),
            })
            .collect()
    }

    pub(crate) fn cut_buckets(
        &self,
        wanted: &BucketsWanted,
        later: &[EventBatch],
    ) -> Option<Buckets> {
        let node = wanted.origin;
        let origin = self.origins.get(&node).filter(|origin| {
            origin.incarnation == wanted.incarnation && origin.said == origin.found
        })?;
        let end = later.last().map_or(wanted.seq, |batch| batch.seq);
        assert_eq!(origin.seq, end, "asked with all that came since");
        let mut then = origin.buckets(&node);
        let theirs = BucketDigests::from_slice(&wanted.digests)?;
        let buckets =
            if then.undo(later) { then.differing(&theirs) } else { (0..=u8::MAX).collect() };
        let inside = |entry: &&Entry| buckets.contains(&bucket_of(entry.2));
        Some(Buckets {
            origin: node,
            incarnation: origin.incarnation,
            watermark: origin.seq,
            link: origin.link,
            digest: origin.said,
            part: 0,
            parts: 1,
            runs: as_runs(origin.entries.iter().filter(inside).copied()),
            buckets,
        })
    }

    pub(crate) fn entries(&self, node: &NodeId) -> BTreeSet<Entry> {
        self.origins.get(node).map(|origin| origin.entries.clone()).unwrap_or_default()
    }
}
