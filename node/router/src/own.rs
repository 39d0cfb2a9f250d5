//! This node's own entries: shown to readers in the tick they happen, while the batches that tell
//! the peers come later. Kept apart is how the live set differs from the batched one, so that a
//! snapshot of our own set is exact at its batch.

use crate::index::{LaneId, Writer};
use crate::origin::{Origin, granule_of};
use protocol::block::StorageId;
use protocol::event::{BlockEvent, EventRun, Holder, INDEX_GRANULE};
use protocol::hash::PrefixHash;
use protocol::id::NodeId;
use std::collections::BTreeMap;

/// Differences kept at most (some seconds of the busiest engine). Beyond that gossip is stuck: our
/// own set is then not handed out any more.
const MAX_AHEAD: usize = 1 << 18;

/// An entry whose batched state differs from the live one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ahead {
    /// Whether the batched set has it; the live set does the contrary.
    batched: bool,
    granule: u16,
}

type Key = (Holder, StorageId, PrefixHash);

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Own {
    /// Own events are told at once; own batches then only confirm.
    live: bool,
    ahead: BTreeMap<Key, Ahead>,
    /// Tiers that were cleared live and not yet in a batch.
    cleared: BTreeMap<Holder, u32>,
    /// Too many differences were seen.
    lost: bool,
}

impl Own {
    pub(crate) fn is_live(&self) -> bool {
        self.live
    }

    /// Whether a snapshot of the batched set can be cut now.
    pub(crate) fn is_exact(&self) -> bool {
        !self.lost && self.cleared.is_empty()
    }

    /// Notes that the batched state of an entry is `batched` and the live state `live`.
    fn note(&mut self, key: Key, granule: u16, batched: bool, live: bool) {
        if batched == live {
            self.ahead.remove(&key);
        } else if self.ahead.len() < MAX_AHEAD {
            self.ahead.insert(key, Ahead { batched, granule });
        } else {
            self.lost = true;
        }
    }

    /// An event of the own store, at once.
    pub(crate) fn event(
        &mut self,
        origin: &mut Origin,
        writer: &mut Writer,
        node: &NodeId,
        event: &BlockEvent,
    ) {
        self.live = true;
        let (prefix, tokens, storage, holder, stored) = match event {
            BlockEvent::Stored { prefix, tokens, storage, holder } => {
                (*prefix, *tokens, *storage, *holder, true)
            }
            BlockEvent::Removed { prefix, tokens, storage, holder } => {
                (*prefix, *tokens, *storage, *holder, false)
            }
            BlockEvent::Cleared { holder } => {
                origin.clear(writer, *holder);
                self.ahead.retain(|(of, _, _), _| of != holder);
                *self.cleared.entry(*holder).or_default() += 1;
                return;
            }
        };
        let Some(granule) = granule_of(tokens) else {
            return;
        };
        let lanes = origin.lanes.len();
        let Some(lane) = origin.lane(writer, holder, storage) else {
            return;
        };
        if origin.lanes.len() > lanes {
            origin.publish(writer, *node);
        }
        let before = writer.contains(lane, prefix);
        if stored {
            origin.add(writer, node, (holder, storage), prefix, granule);
        } else {
            origin.remove(writer, node, (holder, storage), prefix);
        }
        let after = writer.contains(lane, prefix);
        if before != after {
            let key = (holder, storage, prefix);
            let batched = self.ahead.get(&key).map_or(before, |ahead| ahead.batched);
            self.note(key, granule, batched, after);
        }
    }

    /// A run of an own batch: confirms what the live set has known already.
    pub(crate) fn batched(&mut self, origin: &Origin, writer: &Writer, run: &EventRun) {
        match run {
            EventRun::Stored { storage, holder, first, hashes } => {
                self.confirm(origin, writer, (*holder, *storage), *first, hashes, true);
            }
            EventRun::Removed { storage, holder, first, hashes } => {
                self.confirm(origin, writer, (*holder, *storage), *first, hashes, false);
            }
            EventRun::Cleared { holder } => {
                self.batched_clear(origin, writer, *holder);
                if let Some(open) = self.cleared.get_mut(holder) {
                    *open -= 1;
                    if *open == 0 {
                        self.cleared.remove(holder);
                    }
                }
            }
            EventRun::Computing { .. } => {}
        }
    }

    /// The batched set has nothing in a tier: whatever is live there was stored since. One pass
    /// over the table, once per engine that died.
    fn batched_clear(&mut self, origin: &Origin, writer: &Writer, holder: Holder) {
        self.ahead.retain(|(of, _, _), _| *of != holder);
        let lanes: BTreeMap<LaneId, StorageId> = origin
            .lanes
            .iter()
            .filter(|((of, _), _)| *of == holder)
            .map(|((_, storage), held)| (held.lane, *storage))
            .collect();
        if lanes.is_empty() {
            return;
        }
        writer.scan(|lane, granule, hash| {
            if let Some(storage) = lanes.get(&lane) {
                self.note((holder, *storage, hash), granule, false, true);
            }
        });
    }

    fn confirm(
        &mut self,
        origin: &Origin,
        writer: &Writer,
        (holder, storage): (Holder, StorageId),
        first: u32,
        hashes: &[PrefixHash],
        batched: bool,
    ) {
        let held = origin.lanes.get(&(holder, storage));
        for (number, hash) in (0..).zip(hashes) {
            let tokens = u32::saturating_mul(number, INDEX_GRANULE).saturating_add(first);
            let Some(granule) = granule_of(tokens) else {
                return;
            };
            let live = held.is_some_and(|held| writer.contains(held.lane, *hash));
            self.note((holder, storage, *hash), granule, batched, live);
        }
    }

    /// Turns the live set into the batched one.
    pub(crate) fn rewind(&self, set: &mut BTreeMap<(Holder, StorageId), Vec<(u16, PrefixHash)>>) {
        for ((holder, storage), entries) in set.iter_mut() {
            let unsaid = |hash: &PrefixHash| {
                self.ahead.get(&(*holder, *storage, *hash)).is_some_and(|ahead| !ahead.batched)
            };
            entries.retain(|(_, hash)| !unsaid(hash));
        }
        for ((holder, storage, hash), ahead) in self.ahead.iter().filter(|(_, a)| a.batched) {
            set.entry((*holder, *storage)).or_default().push((ahead.granule, *hash));
        }
    }
}
