//! Cutting whole sets for newcomers.

use crate::index::{LaneId, Writer};
use crate::origin::{Agreement, Origin};
use crate::own::Own;
use protocol::block::StorageId;
use protocol::event::{EventRun, Holder, INDEX_GRANULE, Snapshot};
use protocol::hash::PrefixHash;
use protocol::id::NodeId;
use std::collections::BTreeMap;

pub(crate) type Entries = Vec<(u16, PrefixHash)>;
type Sets = BTreeMap<(Holder, StorageId), Entries>;

/// Packs entries into runs. A run is a row of lengths, each one granule longer: it needs no chain,
/// so any entry of the next length continues it.
pub(crate) fn runs(key: (Holder, StorageId), mut entries: Entries, into: &mut Vec<EventRun>) {
    entries.sort_unstable_by(|a, b| b.cmp(a));
    let mut by_length: BTreeMap<u16, Vec<PrefixHash>> = BTreeMap::new();
    for (granule, hash) in entries {
        by_length.entry(granule).or_default().push(hash);
    }
    while let Some(first) = by_length.keys().next().copied() {
        let (mut hashes, mut granule) = (Vec::new(), first);
        while let Some(left) = by_length.get_mut(&granule) {
            hashes.extend(left.pop());
            if left.is_empty() {
                by_length.remove(&granule);
            }
            let Some(next) = granule.checked_add(1) else {
                break;
            };
            granule = next;
        }
        let first = u32::from(first) * INDEX_GRANULE;
        into.push(EventRun::Stored { storage: key.1, holder: key.0, first, hashes });
    }
}

/// Everything that some origins hold, in one pass over the table; only prefixes that `wanted` lets
/// through.
pub(crate) fn collect<'a>(
    writer: &Writer,
    origins: impl Iterator<Item = &'a Origin>,
    wanted: impl Fn(PrefixHash) -> bool,
) -> BTreeMap<LaneId, Entries> {
    let mut lanes: BTreeMap<LaneId, Entries> = origins
        .flat_map(|origin| origin.lanes.values())
        .map(|held| (held.lane, Vec::new()))
        .collect();
    writer.scan(|lane, granule, hash| {
        if wanted(hash)
            && let Some(entries) = lanes.get_mut(&lane)
        {
            entries.push((granule, hash));
        }
    });
    lanes
}

/// The sets of `only`, or of all origins when it is empty. Origins whose set does not agree with
/// their own digest, or that nothing is known of, are left out: another donor may do better.
pub(crate) fn cut(
    writer: &Writer,
    origins: &BTreeMap<NodeId, Origin>,
    own: (&NodeId, &Own),
    only: &[NodeId],
) -> Vec<Snapshot> {
    let wanted = |(node, origin): &(&NodeId, &Origin)| {
        let exact = if **node == *own.0 && own.1.is_live() {
            own.1.is_exact()
        } else {
            origin.agreement == Agreement::Agrees
        };
        (only.is_empty() || only.contains(node)) && origin.seq.0 > 0 && exact
    };
    let wanted: Vec<(&NodeId, &Origin)> = origins.iter().filter(wanted).collect();
    let mut lanes = collect(writer, wanted.iter().map(|(_, origin)| *origin), |_| true);
    let snapshot = |(node, origin): (&NodeId, &Origin)| {
        let take = |(key, held): (&(Holder, StorageId), &crate::origin::Held)| {
            (*key, lanes.remove(&held.lane).unwrap_or_default())
        };
        let mut sets: Sets = origin.lanes.iter().map(take).collect();
        if node == own.0 {
            own.1.rewind(&mut sets);
        }
        let mut packed = Vec::new();
        for (key, entries) in sets {
            runs(key, entries, &mut packed);
        }
        Snapshot {
            origin: *node,
            incarnation: origin.incarnation,
            watermark: origin.seq,
            link: origin.link,
            digest: origin.said,
            runs: packed,
        }
    };
    wanted.into_iter().map(snapshot).collect()
}
