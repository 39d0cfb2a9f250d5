//! What was dropped here for want of room, or refused when a peer pushed it.
//!
//! It counts as held when owners compare: else those that have it would push it again with each
//! comparison, for ever. Nobody is told that it is durable here; but nothing older is taken.

use crate::config::REFUSED_MAX;
use crate::table::bucket_ends;
use protocol::state::{RecordId, RecordKind, Version};
use protocol::time::Time;
use std::collections::{BTreeMap, BTreeSet};

/// Where a record stands among those that go first: deletions have their own room.
pub(crate) type Place = (RecordKind, bool, Time, RecordId);

/// A record that is not here for want of room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    pub(crate) place: Place,
    pub(crate) version: Version,
    /// What it would take.
    pub(crate) bytes: u64,
    /// [`protocol::state::mix`] of it.
    pub(crate) mix: u128,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    by_id: BTreeMap<RecordId, Refusal>,
    places: BTreeSet<Place>,
    ends: BTreeSet<(Time, RecordId)>,
}

impl Refused {
    pub(crate) fn insert(&mut self, refusal: Refusal) {
        let (.., end, id) = refusal.place;
        if self.version(&id).is_some_and(|version| version > refusal.version) {
            return;
        }
        self.remove(&id);
        if self.by_id.len() < REFUSED_MAX {
            self.places.insert(refusal.place);
            self.ends.insert((end, id));
            self.by_id.insert(id, refusal);
        }
    }

    /// True when there was one.
    pub(crate) fn remove(&mut self, id: &RecordId) -> bool {
        let Some(refusal) = self.by_id.remove(id) else { return false };
        self.places.remove(&refusal.place);
        self.ends.remove(&(refusal.place.2, *id));
        true
    }

    /// Which write was refused.
    pub(crate) fn version(&self, id: &RecordId) -> Option<Version> {
        self.by_id.get(id).map(|refusal| refusal.version)
    }

    /// Those from one id to another, in order.
    pub(crate) fn range(&self, first: RecordId, last: RecordId) -> impl Iterator<Item = &Refusal> {
        let ends = (first <= last).then_some(first..=last);
        ends.into_iter().flat_map(|ends| self.by_id.range(ends)).map(|(_, refusal)| refusal)
    }

    /// Those whose time is over.
    pub(crate) fn expired(&self, now: Time) -> Vec<RecordId> {
        let over = self.ends.iter().take_while(|(end, _)| *end <= now);
        over.map(|(_, id)| *id).collect()
    }

    /// Those of a class that would find so much room, the longest-lived first.
    pub(crate) fn fitting(
        &self,
        (kind, deleted): (RecordKind, bool),
        (mut records, mut bytes): (u64, u64),
    ) -> Vec<RecordId> {
        let first = (kind, deleted, Time::ZERO, bucket_ends(0).0);
        let last = (kind, deleted, Time(u64::MAX), bucket_ends(u8::MAX).1);
        let mut found = Vec::new();
        for (.., id) in self.places.range(first..=last).rev() {
            let takes = self.by_id.get(id).map_or(0, |refusal| refusal.bytes);
            if records == 0 || takes > bytes {
                break;
            }
            (records, bytes) = (records - 1, bytes - takes);
            found.push(*id);
        }
        found
    }
}
