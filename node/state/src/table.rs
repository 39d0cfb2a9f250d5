//! The records held here, by name, by end of life, and by what goes first where there is no room.

use crate::config::{Limit, RECORD_BYTES};
use crate::counters::{Held, Stats};
use crate::refused::{Place, Refusal, Refused};
use protocol::id::NodeId;
use protocol::state::{DELETED_TTL, Record, RecordId, RecordKey, RecordKind, TTL_MAX, Version};
use protocol::time::{Span, Time};
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

/// How far a record has come on its way to the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OnDisk {
    /// The disk has not been told.
    Not,
    /// It has been told, under this number.
    Writing(u64),
    /// It has it.
    Durable,
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
    pub(crate) disk: OnDisk,
    pub(crate) waiters: Vec<Waiter>,
    /// [`protocol::state::mix`] of it.
    pub(crate) mix: u128,
    /// Owners that have it, where this node is none; as of that state of the members.
    pub(crate) had_by: (u64, Vec<NodeId>),
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
        self.disk == OnDisk::Durable
    }

    fn place(&self, id: RecordId) -> Place {
        (id.kind, self.deleted, self.expires, id)
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
    /// It would have to go first; it would have stood there.
    NoRoom(Place),
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Table {
    limit: Limit,
    entries: BTreeMap<RecordId, Entry>,
    ends: BTreeSet<(Time, RecordId)>,
    goes_first: BTreeSet<Place>,
    used: BTreeMap<RecordKind, Held>,
    pub(crate) refused: Refused,
    /// Buckets in which something changed since it was last asked.
    changed: BTreeSet<u8>,
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
            refused: Refused::default(),
            changed: BTreeSet::new(),
        }
    }

    pub(crate) fn get(&self, now: Time, id: &RecordId) -> Option<&Entry> {
        self.entries.get(id).filter(|entry| entry.expires > now)
    }

    /// Of a record, also of one whose time is over and that is still here.
    pub(crate) fn get_mut(&mut self, id: &RecordId) -> Option<&mut Entry> {
        self.changed.insert(id.key.place[0]);
        self.entries.get_mut(id)
    }

    /// Whether something changed in a bucket since this was asked last.
    pub(crate) fn has_changed(&mut self, bucket: u8) -> bool {
        self.changed.remove(&bucket)
    }

    /// The records after one and up to another, in order.
    pub(crate) fn range(
        &self,
        now: Time,
        first: RecordId,
        last: RecordId,
    ) -> impl Iterator<Item = (&RecordId, &Entry)> {
        // An inverted range, which a peer may ask for, is empty.
        let ends = (first <= last).then_some(first..=last);
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

    /// What must go for a newcomer of so many bytes: those that would expire before it, of its kind,
    /// deletions for deletions. `None`: that is not enough.
    fn victims(&self, newcomer: Place, bytes: u64) -> Option<Vec<RecordId>> {
        let (kind, deleted, _, id) = newcomer;
        let used = self.used.get(&kind).copied().unwrap_or_default();
        let before = self.entries.get(&id).filter(|before| before.deleted == deleted);
        let (held, most) = match deleted {
            true => (used.deletions, self.limit.deletions),
            false => (used.records, self.limit.records),
        };
        let held = held + 1 - u64::from(before.is_some());
        let mut too_many = held.saturating_sub(most);
        let mut too_long = 0;
        if !deleted {
            let replaced = before.map_or(0, |before| before.value.len() as u64);
            let all = used.bytes.saturating_sub(replaced) + bytes + held * RECORD_BYTES;
            too_long = all.saturating_sub(self.limit.bytes);
        }
        let first = (kind, deleted, Time::ZERO, bucket_ends(0).0);
        let mut going = self.goes_first.range(first..newcomer.max(first));
        let mut victims = Vec::new();
        while too_many > 0 || too_long > 0 {
            let (.., goes) = going.find(|place| place.3 != id)?;
            let freed = self.entries.get(goes).map_or(0, |entry| entry.value.len() as u64);
            too_many = too_many.saturating_sub(1);
            too_long = too_long.saturating_sub(freed + RECORD_BYTES);
            victims.push(*goes);
        }
        Some(victims)
    }

    /// Records and bytes for which there is room without anything that must go.
    fn room(&self, kind: RecordKind, deleted: bool) -> (u64, u64) {
        let used = self.used.get(&kind).copied().unwrap_or_default();
        if deleted {
            return (self.limit.deletions.saturating_sub(used.deletions), u64::MAX);
        }
        let bytes = used.bytes + used.records * RECORD_BYTES;
        (self.limit.records.saturating_sub(used.records), self.limit.bytes.saturating_sub(bytes))
    }

    /// Forgets refusals of what would find room by now.
    pub(crate) fn reconsider(&mut self, now: Time) {
        for id in self.refused.expired(now) {
            self.pardon(&id);
        }
        for kind in RecordKind::ALL {
            for deleted in [false, true] {
                let room = self.room(kind, deleted);
                for id in self.refused.fitting((kind, deleted), room) {
                    self.pardon(&id);
                }
            }
        }
    }

    fn pardon(&mut self, id: &RecordId) {
        if self.refused.remove(id) {
            self.changed.insert(id.key.place[0]);
        }
    }

    /// Remembers what there is no room for.
    pub(crate) fn refuse(&mut self, place: Place, version: Version, bytes: u64) {
        let mix = protocol::state::mix(&place.3, &version);
        self.changed.insert(place.3.key.place[0]);
        self.refused.insert(Refusal { place, version, bytes: bytes + RECORD_BYTES, mix });
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
        let refused = self.refused.version(&id).filter(|version| *version > record.version);
        if let Some(held) = self.entries.get_mut(&id).filter(|held| held.expires > now) {
            if held.version > record.version {
                return Taken::Older(refused.unwrap_or(held.version).max(held.version));
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
        if let Some(version) = refused {
            return Taken::Older(version);
        }
        self.place(now, record, waiter, evicted)
    }

    /// Gives a record its place, whatever is there.
    pub(crate) fn place(
        &mut self,
        now: Time,
        record: Record,
        waiter: Option<Waiter>,
        evicted: &mut Vec<RecordId>,
    ) -> Taken {
        let id = record.id;
        let most = if record.deleted { DELETED_TTL } else { TTL_MAX };
        let expires = now + record.ttl.min(most);
        let (place, bytes) = ((id.kind, record.deleted, expires, id), record.value.len() as u64);
        let Some(victims) = self.victims(place, bytes) else {
            // An earlier value stays: nothing says that this write is kept anywhere. But what is
            // known to be deleted goes, also where that cannot be remembered.
            if record.deleted && self.remove(&id).is_some() {
                evicted.push(id);
            }
            return Taken::NoRoom(place);
        };
        for goes in victims {
            if let Some(entry) = self.let_go(now, &goes, evicted) {
                self.refuse(entry.place(goes), entry.version, entry.value.len() as u64);
                evicted.push(goes);
            }
        }
        let before = self.remove(&id);
        if self.refused.version(&id).is_some_and(|version| version <= record.version) {
            self.pardon(&id);
        }
        self.changed.insert(id.key.place[0]);
        self.ends.insert((expires, id));
        self.goes_first.insert(place);
        let used = self.usage(id.kind);
        used.bytes += bytes;
        *(if record.deleted { &mut used.deletions } else { &mut used.records }) += 1;
        let entry = Entry {
            version: record.version,
            deleted: record.deleted,
            value: record.value,
            expires,
            since: now,
            disk: OnDisk::Not,
            waiters: waiter.into_iter().collect(),
            mix: protocol::state::mix(&id, &record.version),
            had_by: (0, Vec::new()),
        };
        self.entries.insert(id, entry);
        Taken::New(before.map(|before| before.waiters).unwrap_or_default())
    }

    /// Takes a record that was found on disk. False when the disk is to hold something else, or
    /// nothing: its time is over, or there is no room for it.
    pub(crate) fn restore(
        &mut self,
        now: Time,
        record: Record,
        evicted: &mut Vec<RecordId>,
    ) -> bool {
        let (id, version, deleted) = (record.id, record.version, record.deleted);
        let lives = record.ttl > Span::ZERO;
        match lives.then(|| self.take(now, record, None, evicted)) {
            Some(Taken::New(_)) => {
                if let Some(entry) = self.entries.get_mut(&id) {
                    entry.disk = OnDisk::Durable;
                }
                true
            }
            Some(Taken::Same | Taken::Older(_)) => true,
            Some(Taken::NoRoom(_)) | None => {
                if !deleted {
                    self.leave_floor(now, (id, version), DELETED_TTL, evicted);
                }
                false
            }
        }
    }

    pub(crate) fn remove(&mut self, id: &RecordId) -> Option<Entry> {
        let entry = self.entries.remove(id)?;
        self.changed.insert(id.key.place[0]);
        self.ends.remove(&(entry.expires, *id));
        self.goes_first.remove(&entry.place(*id));
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
