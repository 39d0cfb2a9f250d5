//! What the router would keep, in its plainest form; checks the promises of [`gossip::Out`].

use protocol::block::StorageId;
use protocol::event::{EventBatch, EventRun, Holder, Seq, SetDigest, Snapshot};
use protocol::hash::PrefixHash;
use protocol::id::{Incarnation, NodeId};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) type Entry = (Holder, StorageId, PrefixHash);

#[derive(Debug, Default)]
pub(crate) struct Origin {
    pub(crate) incarnation: Incarnation,
    pub(crate) seq: Seq,
    link: [u8; 32],
    digest: SetDigest,
    pub(crate) entries: BTreeSet<Entry>,
}

#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(crate) origins: BTreeMap<NodeId, Origin>,
    pub(crate) snapshots: usize,
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

fn plus(a: SetDigest, b: SetDigest) -> SetDigest {
    SetDigest { count: a.count.wrapping_add(b.count), mix: a.mix.wrapping_add(b.mix) }
}

impl Index {
    pub(crate) fn learn(&mut self, batch: &EventBatch) {
        let origin = self.origins.entry(batch.origin).or_default();
        if origin.seq == Seq(0) {
            origin.incarnation = batch.incarnation;
        }
        assert_eq!(origin.incarnation, batch.incarnation, "Forget comes before another life");
        assert_eq!(origin.seq.0 + 1, batch.seq.0, "in order, without a gap");
        assert_eq!(origin.link, batch.previous);
        origin.seq = batch.seq;
        origin.link = batch.link();
        let runs = protocol::wire::decode(&batch.payload).unwrap();
        let change = apply(&batch.origin, &mut origin.entries, runs);
        origin.digest = plus(origin.digest, change);
        assert_eq!(origin.digest, batch.digest);
    }

    pub(crate) fn learn_snapshot(&mut self, snapshot: Snapshot) {
        self.snapshots += 1;
        let mut entries = BTreeSet::new();
        let digest = apply(&snapshot.origin, &mut entries, snapshot.runs);
        assert_eq!(digest, snapshot.digest);
        self.origins.insert(
            snapshot.origin,
            Origin {
                incarnation: snapshot.incarnation,
                seq: snapshot.watermark,
                link: snapshot.link,
                digest: snapshot.digest,
                entries,
            },
        );
    }

    pub(crate) fn forget(&mut self, node: &NodeId, incarnation: Incarnation) {
        if self.origins.get(node).is_some_and(|origin| origin.incarnation == incarnation) {
            self.origins.remove(node);
        }
    }

    pub(crate) fn cut(&self, wanted: Option<NodeId>) -> Vec<Snapshot> {
        self.origins
            .iter()
            .filter(|(node, _)| wanted.is_none_or(|wanted| wanted == **node))
            .map(|(node, origin)| Snapshot {
                origin: *node,
                incarnation: origin.incarnation,
                watermark: origin.seq,
                link: origin.link,
                digest: origin.digest,
                runs: origin
                    .entries
                    .iter()
                    .map(|(holder, storage, prefix)| EventRun::Stored {
                        storage: *storage,
                        holder: *holder,
                        first: 64,
                        hashes: vec![*prefix],
                    })
                    .collect(),
            })
            .collect()
    }

    pub(crate) fn entries(&self, node: &NodeId) -> BTreeSet<Entry> {
        self.origins.get(node).map(|origin| origin.entries.clone()).unwrap_or_default()
    }
}
