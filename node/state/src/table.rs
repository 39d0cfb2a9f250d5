//! The records held here, by name, by end of life, and by what goes first where there is no room.

use crate::config::{Limit, RECORD_BYTES};
use crate::counters::{Held, Stats};
use protocol::id::NodeId;
use protocol::state::{DELETED_TTL, Record, RecordId, RecordKey, RecordKind, TTL_MAX, Version};
use protocol::time::Time;
use protocol::wire::state::Newest;
use std::collections::{BTreeMap, BTreeSet};

/// Most that wait for one write; others ask again.
const WAITERS_MAX: usize = 64;

/// Who waits for a write to be durable here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waiter {
    /// An operation of this node.
    Own(u64),
    /// Another node's, by its number there.
    Put(NodeId, u64),
    /// A node that pushed it.
    Push(NodeId),
}

/// A record as it is held.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) version: Version,
    pub(crate) deleted: bool,
    pub(crate) value: Vec<u8>,
    pub(crate) expires: Time,
    /// Since when this write is here.
    pub(crate) since: Time,
    /// Number of the disk's write while it is not durable.
    pub(crate) writing: Option<u64>,
    pub(crate) waiters: Vec<Waiter>,
    /// [`protocol::state::mix`] of it.
    pub(crate) mix: u128,
}

impl Entry {
    pub(crate) fn newest(&self) -> Newest {
        Newest { version: self.version, deleted: self.deleted }
    }

    /// As it is told to others.
    pub(crate) fn record(&self, now: Time, id: RecordId) -> Record {
        let ttl = self.expires.since(now);
        let (version, deleted, value) = (self.version, self.deleted, self.value.clone());
        Record { id, version, deleted, ttl, value }
    }

    pub(crate) fn is_durable(&self) -> bool {
        self.writing.is_none()
    }
}

/// What becomes of a record that comes in.
#[derive(Debug)]
pub(crate) enum Taken {
    /// It is the newest now. Those who waited for the write before it wait in vain.
    New(Vec<Waiter>),
    /// It is here already.
    Same,
    /// A later write is here.
    Older(Version),
    /// It would have to go first.
    NoRoom,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Table {
    limit: Limit,
    entries: BTreeMap<RecordId, Entry>,
    ends: BTreeSet<(Time, RecordId)>,
    /// Deletions come after all others of their kind.
    goes_first: BTreeSet<(RecordKind, bool, Time, RecordId)>,
    used: BTreeMap<RecordKind, Held>,
}

/// The first id of a bucket, and the last.
pub(crate) fn bucket_ends(bucket: u8) -> (RecordId, RecordId) {
    let (mut first, mut last) = ([0; 16], [0xff; 16]);
    [first[0], last[0]] = [bucket; 2];
    let low = RecordKey { place: first, name: [0; 16] };
    let high = RecordKey { place: last, name: [0xff; 16] };
    (
        RecordId { key: low, kind: RecordKind::Response },
        RecordId { key: high, kind: RecordKind::Quota },
    )
}

impl Table {
    pub(crate) fn new(limit: Limit) -> Self {
        Self {
            limit,
            entries: BTreeMap::new(),
            ends: BTreeSet::new(),
            goes_first: BTreeSet::new(),
            used: BTreeMap::new(),
        }
    }

    pub(crate) fn get(&self, now: Time, id: &RecordId) -> Option<&Entry> {
        self.entries.get(id).filter(|entry| entry.expires > now)
    }

    pub(crate) fn get_mut(&mut self, id: &RecordId) -> Option<&mut Entry> {
        self.entries.get_mut(id)
    }

    /// The records after one and up to another, in order.
    pub(crate) fn range(
        &self,
        now: Time,
        from: RecordId,
        upto: RecordId,
    ) -> impl Iterator<Item = (&RecordId, &Entry)> {
        // An inverted range, which a peer may ask for, is empty.
        let ends = (from <= upto).then_some(from..=upto);
        let entries = ends.into_iter().flat_map(|ends| self.entries.range(ends));
        entries.filter(move |(_, entry)| entry.expires > now)
    }

    /// Whether something of this bucket or a later one is held, and of which.
    pub(crate) fn next_bucket(&self, bucket: u8) -> Option<u8> {
        let (first, _) = bucket_ends(bucket);
        self.entries.range(first..).next().map(|(id, _)| id.key.place[0])
    }

    fn usage(&mut self, kind: RecordKind) -> &mut Held {
        self.used.entry(kind).or_default()
    }

    fn is_over(&self, kind: RecordKind, more: u64) -> bool {
        let used = self.used.get(&kind).copied().unwrap_or_default();
        let records = used.records + used.deletions;
        let bytes = used.bytes + records * RECORD_BYTES;
        records + 1 > self.limit.records || bytes + more + RECORD_BYTES > self.limit.bytes
    }

    /// Takes a record that lives. `evicted` gets what goes for it.
    pub(crate) fn take(
        &mut self,
        now: Time,
        record: Record,
        waiter: Option<Waiter>,
        evicted: &mut Vec<RecordId>,
    ) -> Taken {
        let id = record.id;
        if let Some(held) = self.entries.get_mut(&id).filter(|held| held.expires > now) {
            if held.version > record.version {
                return Taken::Older(held.version);
            }
            if held.version == record.version {
                let waits =
                    |w: &Waiter| held.waiters.contains(w) || held.waiters.len() >= WAITERS_MAX;
                if let Some(waiter) = waiter.filter(|w| !held.is_durable() && !waits(w)) {
                    held.waiters.push(waiter);
                }
                return Taken::Same;
            }
        }
        let most = if record.deleted { DELETED_TTL } else { TTL_MAX };
        let expires = now + record.ttl.min(most);
        let place = (id.kind, record.deleted, expires, id);
        let before = self.remove(&id);
        while self.is_over(id.kind, record.value.len() as u64) {
            let first = (id.kind, false, Time::ZERO, bucket_ends(0).0);
            let first = self.goes_first.range(first..).next().copied();
            match first.filter(|first| first.0 == id.kind && *first < place) {
                Some((.., goes)) => {
                    self.remove(&goes);
                    evicted.push(goes);
                }
                None => {
                    // What was replaced is on disk still, and is found again at the next start.
                    evicted.extend(before.is_some().then_some(id));
                    return Taken::NoRoom;
                }
            }
        }
        self.ends.insert((expires, id));
        self.goes_first.insert(place);
        let used = self.usage(id.kind);
        used.bytes += record.value.len() as u64;
        *(if record.deleted { &mut used.deletions } else { &mut used.records }) += 1;
        let entry = Entry {
            version: record.version,
            deleted: record.deleted,
            value: record.value,
            expires,
            since: now,
            writing: None,
            waiters: waiter.into_iter().collect(),
            mix: protocol::state::mix(&id, &record.version),
        };
        self.entries.insert(id, entry);
        Taken::New(before.map(|before| before.waiters).unwrap_or_default())
    }

    pub(crate) fn remove(&mut self, id: &RecordId) -> Option<Entry> {
        let entry = self.entries.remove(id)?;
        self.ends.remove(&(entry.expires, *id));
        self.goes_first.remove(&(id.kind, entry.deleted, entry.expires, *id));
        let used = self.usage(id.kind);
        used.bytes = used.bytes.saturating_sub(entry.value.len() as u64);
        let count = if entry.deleted { &mut used.deletions } else { &mut used.records };
        *count = count.saturating_sub(1);
        Some(entry)
    }

    /// A record whose time is over, if there is one.
    pub(crate) fn expired(&self, now: Time) -> Option<RecordId> {
        self.ends.first().filter(|(end, _)| *end <= now).map(|(_, id)| *id)
    }

    /// Adds what is held to `stats`.
    pub(crate) fn count(&self, stats: &mut Stats) {
        for (kind, used) in &self.used {
            if let Some(place) = stats.kinds.get_mut(usize::from(kind.number())) {
                *place = *used;
            }
            stats.records += used.records;
            stats.deletions += used.deletions;
            stats.bytes += used.bytes;
        }
    }
}

#[cfg(test)]
mod tests;
