//! Repair of a set that differs from what its origin signed: only the buckets that differ travel.

use crate::machine::{Out, Router};
use crate::origin::{Agreement, Held, Origin, granule_of};
use crate::snapshot;
use protocol::block::StorageId;
use protocol::event::{
    BUCKETS, BucketDigests, Buckets, BucketsWanted, EventBatch, EventRun, Holder, INDEX_GRANULE,
    Seq, bucket_of,
};
use protocol::hash::PrefixHash;
use protocol::time::Time;
use protocol::wire;
use std::collections::BTreeMap;

#[cfg(test)]
mod tests;

type Content = BTreeMap<(Holder, StorageId, PrefixHash), u16>;

/// Which buckets, for quick look-up.
struct Picked([bool; BUCKETS]);

impl Picked {
    fn new(buckets: &[u8]) -> Self {
        let mut picked = [false; BUCKETS];
        for bucket in buckets {
            if let Some(flag) = picked.get_mut(usize::from(*bucket)) {
                *flag = true;
            }
        }
        Self(picked)
    }

    fn has(&self, hash: PrefixHash) -> bool {
        self.0.get(usize::from(bucket_of(hash))).copied().unwrap_or_default()
    }
}

/// The entries of runs of `Stored` that lie in the picked buckets.
fn content(runs: &[EventRun], picked: &Picked) -> Content {
    let mut content = Content::new();
    for run in runs {
        let EventRun::Stored { storage, holder, first, hashes } = run else {
            continue;
        };
        for (number, hash) in (0u32..).zip(hashes).filter(|(_, hash)| picked.has(**hash)) {
            let tokens = number.saturating_mul(INDEX_GRANULE).saturating_add(*first);
            if let Some(granule) = granule_of(tokens) {
                content.insert((*holder, *storage, *hash), granule);
            }
        }
    }
    content
}

impl Router {
    /// What a peer needs to mend its set: the buckets in which it differed from the origin at its
    /// own place in the history, as they are at ours.
    pub(crate) fn cut_buckets(
        &mut self,
        wanted: &BucketsWanted,
        later: &[EventBatch],
    ) -> Option<Buckets> {
        let unwilling = self.luck.strikes(4);
        let theirs = BucketDigests::from_slice(&wanted.digests)?;
        let origin = self.origins.get(&wanted.origin)?;
        let ours_too = later.last().map_or(wanted.seq, |last| last.seq) == origin.seq;
        let exact = origin.agreement == Agreement::Agrees && wanted.origin != self.config.node;
        if unwilling || !exact || !ours_too || origin.incarnation != wanted.incarnation {
            return None;
        }
        let mut then = origin.buckets();
        // Where the way back is closed, all buckets count as different.
        let comparable = then.undo(later);
        let buckets =
            if comparable { then.differing(&theirs) } else { (0..=u8::MAX).collect::<Vec<u8>>() };
        let picked = Picked::new(&buckets);
        let mut lanes =
            snapshot::collect(&self.writer, std::iter::once(origin), |hash| picked.has(hash));
        let mut runs = Vec::new();
        for (key, held) in &origin.lanes {
            let entries = lanes.remove(&held.lane).unwrap_or_default();
            snapshot::runs(*key, entries, &mut runs);
        }
        Some(Buckets {
            origin: wanted.origin,
            incarnation: origin.incarnation,
            watermark: origin.seq,
            link: origin.link,
            digest: origin.said,
            buckets,
            part: 0,
            parts: 1,
            runs,
        })
    }

    /// Replaces buckets of an origin's set, applies again what came after them, and compares.
    pub(crate) fn learn_buckets(
        &mut self,
        now: Time,
        buckets: &Buckets,
        later: &[EventBatch],
        outbox: &mut Vec<Out>,
    ) {
        let node = buckets.origin;
        let end: Seq = later.last().map_or(buckets.watermark, |last| last.seq);
        let Some(origin) = self.origins.get_mut(&node).filter(|origin| {
            node != self.config.node
                && origin.incarnation == buckets.incarnation
                && origin.seq == end
        }) else {
            self.stats.stale += 1;
            return;
        };
        let writer = &mut self.writer;
        let picked = Picked::new(&buckets.buckets);
        let wanted = content(&buckets.runs, &picked);
        for (key, hash) in surplus(writer, origin, &picked, &wanted) {
            origin.remove(writer, &node, key, hash);
        }
        for ((holder, storage, hash), granule) in wanted {
            if origin.lane(writer, holder, storage).is_some() {
                origin.add(writer, &node, (holder, storage), hash, granule);
            }
        }
        for batch in later {
            for run in wire::decode::<Vec<EventRun>>(&batch.payload).unwrap_or_default() {
                origin.apply(writer, &node, &run);
            }
        }
        origin.publish(writer, node);
        self.stats.mended += 1;
        if let Agreement::Differs(_) = origin.agreement {
            // A repair that did not help is told at once.
            origin.agreement = Agreement::Agrees;
        }
        self.compare(now, node, outbox);
    }
}

/// What we have in the picked buckets and should not.
fn surplus(
    writer: &crate::index::Writer,
    origin: &Origin,
    picked: &Picked,
    wanted: &Content,
) -> Vec<((Holder, StorageId), PrefixHash)> {
    let held = snapshot::collect(writer, std::iter::once(origin), |hash| picked.has(hash));
    let key_of = |lane| {
        let of = |(_, held): &(&(Holder, StorageId), &Held)| held.lane == lane;
        origin.lanes.iter().find(of).map(|(key, _)| *key)
    };
    let mut surplus = Vec::new();
    for (lane, entries) in held {
        let Some((holder, storage)) = key_of(lane) else {
            continue;
        };
        let extra =
            entries.iter().filter(|(_, hash)| !wanted.contains_key(&(holder, storage, *hash)));
        surplus.extend(extra.map(|(_, hash)| ((holder, storage), *hash)));
    }
    surplus
}
