//! Records held by a node that is no owner: handed over, and let go of when all owners have them.

use crate::config::LIST_MAX;
use crate::door::Out;
use crate::machine::State;
use crate::table::bucket_ends;
use protocol::id::NodeId;
use protocol::state::{RecordId, Version};
use protocol::time::{Span, Time};
use protocol::wire::state::{Holding, StateFrame};
use std::collections::{BTreeMap, BTreeSet};

/// Between two comparisons while this node leaves.
const LEAVE_EVERY: Span = Span::millis(100);

/// Which owners have what this node hands over.
#[derive(Debug, Default)]
pub(crate) struct Handover {
    has: BTreeMap<RecordId, (Version, BTreeSet<NodeId>)>,
    told: bool,
}

impl Handover {
    /// Owners have changed.
    pub(crate) fn clear(&mut self) {
        self.has.clear();
    }
}

impl State {
    /// Hands everything over.
    pub(crate) fn leave(&mut self, now: Time) {
        self.view.leave();
        self.sync.begin(now);
        self.handover.clear();
    }

    pub(crate) fn comparison_pause(&self) -> Span {
        if self.view.is_leaving() { LEAVE_EVERY } else { self.config.sync_every }
    }

    fn all_have(&self, id: &RecordId, version: Version, owners: &[NodeId]) -> bool {
        let has = self.handover.has.get(id).filter(|(of, _)| *of >= version);
        !owners.is_empty()
            && has.is_some_and(|(_, nodes)| owners.iter().all(|owner| nodes.contains(owner)))
    }

    /// Offers what this node does not own to those who do, and drops what they have had for a while.
    pub(crate) fn hand_over_bucket(&mut self, now: Time, bucket: u8, out: &mut Vec<Out>) {
        let (first, last) = bucket_ends(bucket);
        let mut owners = (None, Vec::new());
        let mut offers: BTreeMap<NodeId, Vec<Holding>> = BTreeMap::new();
        let mut gone = Vec::new();
        for (id, entry) in self.table.range(now, first, last) {
            let place = id.key.place;
            if owners.0 != Some(place) {
                owners = (Some(place), self.view.owners(&place));
            }
            if owners.1.contains(&self.config.node) || !entry.is_durable() {
                continue;
            }
            if self.all_have(id, entry.version, &owners.1) {
                if now.since(entry.since) >= self.config.drop_after && !self.view.is_leaving() {
                    gone.push(*id);
                }
                continue;
            }
            for owner in &owners.1 {
                let offer = offers.entry(*owner).or_default();
                if offer.len() < LIST_MAX {
                    offer.push(Holding { id: *id, version: entry.version });
                }
            }
        }
        for (to, held) in offers {
            out.push(Out::Send { to, frame: StateFrame::Offer(held) });
        }
        for id in gone {
            self.counters.handed_over += 1;
            self.handover.has.remove(&id);
            self.drop_copy(id, out);
        }
    }

    /// A node that is no owner offers records.
    pub(crate) fn offered(
        &mut self,
        now: Time,
        from: NodeId,
        held: &[Holding],
        out: &mut Vec<Out>,
    ) {
        if held.len() > LIST_MAX {
            self.counters.improper += 1;
            return;
        }
        let lacking = self.lacking(now, held);
        let have = |holding: &&Holding| {
            let own = self.table.get(now, &holding.id).filter(|own| own.is_durable());
            own.is_some_and(|own| own.version >= holding.version)
        };
        let holds: Vec<Holding> = held.iter().filter(have).copied().collect();
        for (ids, frame) in
            [(lacking.len(), StateFrame::Want(lacking)), (holds.len(), StateFrame::Holds(holds))]
        {
            if ids > 0 {
                out.push(Out::Send { to: from, frame });
            }
        }
    }

    /// A node says that it holds these, durably.
    pub(crate) fn holds(&mut self, from: NodeId, held: Vec<Holding>) {
        if held.len() > LIST_MAX {
            self.counters.improper += 1;
            return;
        }
        for Holding { id, version } in held {
            let Some(own) = self.table.get_mut(&id).map(|own| own.version) else { continue };
            if version < own {
                continue;
            }
            let has = self.handover.has.entry(id).or_insert((own, BTreeSet::new()));
            if has.0 != own {
                *has = (own, BTreeSet::new());
            }
            has.1.insert(from);
        }
    }

    /// Tells once that nothing here is without other owners.
    pub(crate) fn maybe_handed_over(&mut self, now: Time, out: &mut Vec<Out>) {
        if !self.view.is_leaving() || self.handover.told {
            return;
        }
        let (first, last) = (bucket_ends(0).0, bucket_ends(255).1);
        let alone = self.view.known() == 0;
        let done = alone
            || self.table.range(now, first, last).all(|(id, entry)| {
                let owners = self.view.owners(&id.key.place);
                !entry.is_durable() || self.all_have(id, entry.version, &owners)
            });
        if done {
            self.handover.told = true;
            out.push(Out::HandedOver);
        }
    }
}
