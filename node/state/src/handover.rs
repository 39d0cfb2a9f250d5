//! Records held by a node that is no owner: handed over, and let go of when all owners have them.

use crate::config::LIST_MAX;
use crate::door::Out;
use crate::machine::State;
use crate::shared::durable;
use crate::table::{Entry, bucket_ends};
use crate::view::Owners;
use protocol::id::NodeId;
use protocol::time::{Span, Time};
use protocol::wire::state::{Holding, StateFrame};
use std::collections::BTreeMap;

/// Between two comparisons while this node leaves.
const LEAVE_EVERY: Span = Span::millis(100);

/// Whether all owners that are there, as of a state of the members, have said that they have it.
fn all_have(entry: &Entry, of: u64, owners: &Owners) -> bool {
    let (had_of, had_by) = &entry.had_by;
    *had_of == of && !owners.is_empty() && owners.iter().all(|owner| had_by.contains(owner))
}

impl State {
    /// Hands everything over.
    pub(crate) fn leave(&mut self, now: Time) {
        self.view.leave();
        self.sync.begin(now);
    }

    pub(crate) fn comparison_pause(&self) -> Span {
        if self.view.is_leaving() { LEAVE_EVERY } else { self.config.sync_every }
    }

    /// Offers what this node does not own to those who do, and drops what they have had for a while.
    pub(crate) fn hand_over_bucket(&mut self, now: Time, bucket: u8, out: &mut Vec<Out>) {
        let of = self.view.changes();
        let drops = !self.view.is_leaving();
        let mut offers: BTreeMap<NodeId, Vec<Holding>> = BTreeMap::new();
        let mut gone = Vec::new();
        for (id, entry, owners) in durable(&self.table, &mut self.view, now, bucket_ends(bucket)) {
            if owners.contains(&self.config.node) {
                continue;
            }
            if all_have(entry, of, &owners) {
                if drops && now.since(entry.since) >= self.config.drop_after {
                    gone.push(*id);
                }
                continue;
            }
            for owner in owners.iter() {
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
            self.drop_copy(now, id, out);
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
        let of = self.view.changes();
        for Holding { id, version } in held {
            let owners = self.view.owners(&id.key.place);
            // Of what this node owns it does not matter who else has it.
            if owners.contains(&self.config.node) || !owners.contains(&from) {
                continue;
            }
            let Some(entry) = self.table.get_mut(&id).filter(|own| own.version <= version) else {
                continue;
            };
            if entry.had_by.0 != of {
                entry.had_by = (of, Vec::new());
            }
            if !entry.had_by.1.contains(&from) {
                entry.had_by.1.push(from);
            }
        }
    }

    /// Tells once that nothing here is without other owners.
    pub(crate) fn maybe_handed_over(&mut self, now: Time, out: &mut Vec<Out>) {
        if !self.view.is_leaving() || self.handed_over {
            return;
        }
        let (first, last) = (bucket_ends(0).0, bucket_ends(255).1);
        let (alone, of) = (self.view.known() == 0, self.view.changes());
        let mut held = durable(&self.table, &mut self.view, now, (first, last));
        if alone || held.all(|(_, entry, owners)| all_have(entry, of, &owners)) {
            self.handed_over = true;
            out.push(Out::HandedOver);
        }
    }
}

#[cfg(test)]
mod tests;
