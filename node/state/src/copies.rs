//! Records coming to this node's own table and disk, from wherever.

use crate::door::{DiskOp, Out};
use crate::machine::State;
use crate::table::{Taken, Waiter};
use protocol::state::{Record, RecordId, Version};
use protocol::time::{Span, Time};
use protocol::wire::state::{Holding, StateFrame};

/// What becomes of a record that is to be kept here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Copy {
    /// It is durable.
    Durable,
    /// It will be, or not; the waiter hears of it.
    Writing,
    /// A later write is here.
    Older(Version),
    /// There is no room.
    NoRoom,
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
        let (id, mut evicted) = (record.id, Vec::new());
        let kept = record.clone();
        let taken = self.table.take(now, record, waiter, &mut evicted);
        self.counters.evicted += evicted.len() as u64;
        out.extend(evicted.into_iter().map(|id| Out::Disk(DiskOp::Erase(id))));
        match taken {
            Taken::New(in_vain) => {
                let version = kept.version;
                self.write(kept, out);
                self.superseded(now, (id, version), in_vain, out);
                Copy::Writing
            }
            Taken::Same => match self.table.get_mut(&id) {
                Some(entry) if entry.is_durable() => Copy::Durable,
                // The disk did not take it, or has not answered: it hears when it has.
                _ => Copy::Writing,
            },
            Taken::Older(version) => Copy::Older(version),
            Taken::NoRoom => {
                self.counters.refused += 1;
                Copy::NoRoom
            }
        }
    }

    fn write(&mut self, record: Record, out: &mut Vec<Out>) {
        let write = self.number();
        if let Some(entry) = self.table.get_mut(&record.id) {
            entry.writing = Some(write);
            self.writing.insert(write, record.id);
        }
        out.push(Out::Disk(DiskOp::Write { write, record }));
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

    /// The disk has answered.
    pub(crate) fn written(&mut self, now: Time, write: u64, durable: bool, out: &mut Vec<Out>) {
        let Some(id) = self.writing.remove(&write) else { return };
        let Some(entry) = self.table.get_mut(&id).filter(|entry| entry.writing == Some(write))
        else {
            return; // replaced or gone by now
        };
        if !durable {
            // It stays readable, and is tried again; nobody is told that it is kept.
            self.counters.disk_failed += 1;
            self.unwritten.insert(id);
            let waiters = std::mem::take(&mut entry.waiters);
            for waiter in waiters {
                match waiter {
                    Waiter::Own(op) => self.put_refused(self.config.node, op),
                    Waiter::Put(to, op) => {
                        out.push(Out::Send { to, frame: StateFrame::NotKept { op } });
                    }
                    Waiter::Push(_) => {}
                }
            }
            return;
        }
        entry.writing = None;
        let version = entry.version;
        for waiter in std::mem::take(&mut entry.waiters) {
            match waiter {
                Waiter::Own(op) => self.put_kept(now, self.config.node, op, out),
                Waiter::Put(to, op) => {
                    self.counters.acks += 1;
                    out.push(Out::Send { to, frame: StateFrame::Kept { op } });
                }
                Waiter::Push(to) => {
                    let frame = StateFrame::Holds(vec![Holding { id, version }]);
                    out.push(Out::Send { to, frame });
                }
            }
        }
    }

    /// Writes again what the disk did not take.
    pub(crate) fn write_again(&mut self, now: Time, out: &mut Vec<Out>) {
        for id in std::mem::take(&mut self.unwritten) {
            let Some(entry) = self.table.get(now, &id).filter(|entry| !entry.is_durable()) else {
                continue;
            };
            let record = entry.record(now, id);
            self.write(record, out);
        }
    }

    /// Drops a record from here.
    pub(crate) fn drop_copy(&mut self, id: RecordId, out: &mut Vec<Out>) {
        if self.table.remove(&id).is_some() {
            out.push(Out::Disk(DiskOp::Erase(id)));
        }
    }

    /// Drops the records whose time is over.
    pub(crate) fn expire(&mut self, now: Time, out: &mut Vec<Out>) {
        while let Some(id) = self.table.expired(now) {
            self.counters.expired += 1;
            self.drop_copy(id, out);
        }
    }

    /// Whether a record from a peer may be kept at all.
    pub(crate) fn is_proper(record: &Record) -> bool {
        let fits = record.value.len() <= protocol::state::VALUE_MAX;
        let says_so = !record.deleted || record.value.is_empty();
        fits && says_so && record.ttl > Span::ZERO && record.version.counter < u64::MAX
    }
}
