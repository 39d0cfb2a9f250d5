//! Records coming to this node's own table and disk, from wherever.

use crate::door::Out;
use crate::machine::State;
use crate::refused::Place;
use crate::table::{Taken, Waiter};
use protocol::state::{Record, RecordId, Version};
use protocol::time::{Span, Time};
use protocol::wire::state::StateFrame;

/// What becomes of a record that is to be kept here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Copy {
    /// It is durable.
    Durable,
    /// It will be, or not; the waiter hears of it.
    Writing,
    /// A later write is here.
    Older(Version),
    /// There is no room; it would have stood there among those that go first.
    NoRoom(Place),
}

impl State {
    /// Keeps a record here. Its value and time must have been looked at.
    pub(crate) fn keep(
        &mut self,
        now: Time,
        record: Record,
        waiter: Option<Waiter>,
        out: &mut Vec<Out>,
    ) -> Copy {
        let (id, version, mut evicted) = (record.id, record.version, Vec::new());
        let taken = self.table.take(now, record, waiter, &mut evicted);
        self.counters.evicted += evicted.len() as u64;
        for id in evicted {
            self.tell_disk(now, id, out);
        }
        match taken {
            Taken::New(in_vain) => {
                self.tell_disk(now, id, out);
                self.superseded(now, (id, version), in_vain, out);
                Copy::Writing
            }
            Taken::Same => match self.table.get(now, &id) {
                Some(entry) if entry.is_durable() => Copy::Durable,
                // The disk did not take it, or has not answered: it hears when it has.
                _ => Copy::Writing,
            },
            Taken::Older(version) => Copy::Older(version),
            Taken::NoRoom(place) => {
                self.counters.refused += 1;
                Copy::NoRoom(place)
            }
        }
    }

    /// Those who waited for an earlier write hear of the later one.
    fn superseded(
        &mut self,
        now: Time,
        (id, version): (RecordId, Version),
        waiters: Vec<Waiter>,
        out: &mut Vec<Out>,
    ) {
        for waiter in waiters {
            match waiter {
                Waiter::Own(op) => self.put_newer(now, self.config.node, op, version, out),
                Waiter::Put(to, op) => {
                    out.push(Out::Send { to, frame: StateFrame::Newer { op, version } });
                }
                Waiter::Push(_) => {
                    if let Some(entry) = self.table.get_mut(&id) {
                        entry.waiters.push(waiter);
                    }
                }
            }
        }
    }

    /// Drops a record from here.
    pub(crate) fn drop_copy(&mut self, now: Time, id: RecordId, out: &mut Vec<Out>) {
        if self.table.remove(&id).is_some() {
            self.tell_disk(now, id, out);
        }
    }

    /// Drops the records whose time is over.
    pub(crate) fn expire(&mut self, now: Time, out: &mut Vec<Out>) {
        while let Some(id) = self.table.expired(now) {
            let mut evicted = Vec::new();
            self.table.let_go(now, &id, &mut evicted);
            self.counters.expired += 1;
            self.counters.evicted += evicted.len() as u64;
            evicted.push(id);
            for id in evicted {
                self.tell_disk(now, id, out);
            }
        }
    }

    /// Whether a record from a peer may be kept at all.
    pub(crate) fn is_proper(record: &Record) -> bool {
        Self::is_sound(record) && record.ttl > Span::ZERO
    }

    /// The same of one from this node's disk, where its time may be over.
    pub(crate) fn is_sound(record: &Record) -> bool {
        let fits = record.value.len() <= protocol::state::VALUE_MAX;
        let says_so = !record.deleted || record.value.is_empty();
        fits && says_so && record.version.counter < u64::MAX
    }
}
