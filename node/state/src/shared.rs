//! What this node shares with other owners, one by one and in sums.

use crate::machine::State;
use crate::table::{Entry, Table, bucket_ends};
use crate::view::{Owners, View};
use protocol::id::NodeId;
use protocol::state::{RecordId, Version};
use protocol::time::Time;
use protocol::wire::state::{Holding, Summary};
use std::collections::BTreeMap;

/// The durable records between two ids, in order, each with its owners.
pub(crate) fn durable<'a>(
    table: &'a Table,
    view: &'a mut View,
    now: Time,
    (first, last): (RecordId, RecordId),
) -> impl Iterator<Item = (&'a RecordId, &'a Entry, Owners)> {
    let records = table.range(now, first, last).filter(|(_, entry)| entry.is_durable());
    records.map(|(id, entry)| (id, entry, view.owners(&id.key.place)))
}

/// A record as owners compare it.
#[derive(Clone, Copy)]
struct Compared {
    id: RecordId,
    version: Version,
    mix: u128,
}

/// Calls `each` with what this node owns between two ids and holds durably, or counts as held since
/// there was no room for it.
fn each_owned(
    (table, view, me): (&Table, &mut View, NodeId),
    now: Time,
    ends: (RecordId, RecordId),
    mut each: impl FnMut(Compared, &Owners),
) {
    let counts = |id: &RecordId| table.refused.version(id);
    for (id, entry, owners) in durable(table, view, now, ends) {
        let is_later = counts(id).is_some_and(|version| version > entry.version);
        if owners.contains(&me) && !is_later {
            each(Compared { id: *id, version: entry.version, mix: entry.mix }, &owners);
        }
    }
    for refusal in table.refused.range(ends.0, ends.1) {
        let (id, version) = (refusal.place.3, refusal.version);
        let held = table.get(now, &id).filter(|entry| entry.is_durable());
        let owners = view.owners(&id.key.place);
        if owners.contains(&me) && held.is_none_or(|held| held.version < version) {
            each(Compared { id, version, mix: refusal.mix }, &owners);
        }
    }
}

/// Sums that hold until the members change, or something in their bucket does.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    of: u64,
    buckets: BTreeMap<u8, BTreeMap<NodeId, Summary>>,
}

impl State {
    /// What is shared of a bucket, by peer.
    pub(crate) fn sums(&mut self, now: Time, bucket: u8) -> &BTreeMap<NodeId, Summary> {
        let me = self.config.node;
        if self.sums.of != self.view.changes() {
            self.sums = Sums { of: self.view.changes(), buckets: BTreeMap::new() };
        }
        if self.table.has_changed(bucket) {
            self.sums.buckets.remove(&bucket);
        }
        let (table, view) = (&self.table, &mut self.view);
        self.sums.buckets.entry(bucket).or_insert_with(|| {
            let mut sums: BTreeMap<NodeId, Summary> = BTreeMap::new();
            each_owned((table, view, me), now, bucket_ends(bucket), |compared, owners| {
                for owner in owners.iter().filter(|owner| **owner != me) {
                    let sum = sums.entry(*owner).or_insert(Summary { bucket, count: 0, digest: 0 });
                    sum.count = sum.count.saturating_add(1);
                    sum.digest = sum.digest.wrapping_add(compared.mix);
                }
            });
            sums
        })
    }

    /// What is shared with a peer, from one id to another, in order.
    pub(crate) fn shared(
        &mut self,
        now: Time,
        with: NodeId,
        ends: (RecordId, RecordId),
    ) -> Vec<Holding> {
        let mut held = Vec::new();
        let parts = (&self.table, &mut self.view, self.config.node);
        each_owned(parts, now, ends, |compared, owners| {
            if owners.contains(&with) {
                held.push(Holding { id: compared.id, version: compared.version });
            }
        });
        held.sort_unstable_by_key(|holding| holding.id);
        held
    }
}
