//! Orders to this node's disk: bounded, and given again until it has taken them.

use crate::config::{DISK_BYTES_MAX, DISK_OPS_MAX, ERASES_MAX};
use crate::door::{DiskOp, Out};
use crate::machine::State;
use crate::table::{OnDisk, Waiter};
use protocol::state::RecordId;
use protocol::time::Time;
use protocol::wire::state::{Holding, StateFrame};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[derive(Clone, Copy, Debug)]
struct Order {
    id: RecordId,
    bytes: u64,
}

/// What the disk was told and what it will be told. What a record is to be there the table says when
/// its turn comes: so a record waits once, and in its newest version.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    under_way: BTreeMap<u64, Order>,
    bytes: u64,
    /// Their turn comes as others end, in this order; each is there once.
    waiting: BTreeSet<RecordId>,
    turns: VecDeque<RecordId>,
    /// The disk did not take them; their turn comes with the next sweep.
    failed: BTreeSet<RecordId>,
}

impl Disk {
    fn has_room(&self) -> bool {
        self.under_way.len() < DISK_OPS_MAX && self.bytes < DISK_BYTES_MAX
    }

    fn wait(&mut self, id: RecordId) {
        if self.waiting.insert(id) {
            self.turns.push_back(id);
        }
    }

    fn next(&mut self) -> Option<RecordId> {
        let id = self.turns.pop_front()?;
        self.waiting.remove(&id);
        Some(id)
    }

    /// Operations that the disk has not taken.
    pub(crate) fn unwritten(&self) -> u64 {
        (self.under_way.len() + self.waiting.len() + self.failed.len()) as u64
    }

    /// To be erased or written with the next sweep.
    pub(crate) fn later(&mut self, id: RecordId, is_held: bool) {
        if is_held || self.failed.len() < ERASES_MAX {
            self.failed.insert(id);
        }
    }
}

impl State {
    /// The disk is to hold what the table holds under this name, or nothing.
    pub(crate) fn tell_disk(&mut self, now: Time, id: RecordId, out: &mut Vec<Out>) {
        self.disk.failed.remove(&id);
        let is_held = self.table.get_mut(&id).is_some();
        if is_held || self.disk.waiting.len() < ERASES_MAX {
            self.disk.wait(id);
        }
        self.next_to_disk(now, out);
    }

    fn order(&mut self, now: Time, id: RecordId, out: &mut Vec<Out>) {
        let write = self.number();
        let (op, bytes) = match self.table.get_mut(&id) {
            Some(entry) if entry.is_durable() => return,
            Some(entry) => {
                entry.disk = OnDisk::Writing(write);
                let record = entry.record(now, id);
                let bytes = record.value.len() as u64;
                (DiskOp::Write { write, record }, bytes)
            }
            None => (DiskOp::Erase { write, id }, 0),
        };
        self.disk.bytes += bytes;
        self.disk.under_way.insert(write, Order { id, bytes });
        out.push(Out::Disk(op));
    }

    /// The disk has answered.
    pub(crate) fn written(&mut self, now: Time, write: u64, durable: bool, out: &mut Vec<Out>) {
        let Some(order) = self.disk.under_way.remove(&write) else { return };
        self.disk.bytes = self.disk.bytes.saturating_sub(order.bytes);
        let is_held = self.table.get_mut(&order.id).map(|entry| entry.disk);
        match is_held {
            Some(OnDisk::Writing(number)) if number == write => {
                self.record_written(now, order.id, durable, out);
            }
            // Replaced by now; that it waits for its turn, or has been told, is known.
            Some(_) => {}
            None if !durable => {
                self.counters.disk_failed += 1;
                self.disk.later(order.id, false);
            }
            None => {}
        }
        self.next_to_disk(now, out);
    }

    fn record_written(&mut self, now: Time, id: RecordId, durable: bool, out: &mut Vec<Out>) {
        let Some(entry) = self.table.get_mut(&id) else { return };
        let waiters = std::mem::take(&mut entry.waiters);
        let version = entry.version;
        entry.disk = if durable { OnDisk::Durable } else { OnDisk::Not };
        if !durable {
            // It stays readable, and is tried again; nobody is told that it is kept.
            self.counters.disk_failed += 1;
            self.disk.later(id, true);
        }
        for waiter in waiters {
            match (waiter, durable) {
                (Waiter::Own(op), true) => self.put_kept(now, self.config.node, op, out),
                (Waiter::Own(op), false) => self.put_refused(self.config.node, op),
                (Waiter::Put(to, op), true) => {
                    self.counters.acks += 1;
                    out.push(Out::Send { to, frame: StateFrame::Kept { op } });
                }
                (Waiter::Put(to, op), false) => {
                    out.push(Out::Send { to, frame: StateFrame::NotKept { op } });
                }
                (Waiter::Push(to), true) => {
                    let frame = StateFrame::Holds(vec![Holding { id, version }]);
                    out.push(Out::Send { to, frame });
                }
                (Waiter::Push(_), false) => {}
            }
        }
    }

    fn next_to_disk(&mut self, now: Time, out: &mut Vec<Out>) {
        while self.disk.has_room() {
            let Some(id) = self.disk.next() else { return };
            self.order(now, id, out);
        }
    }

    /// Tries again what the disk did not take.
    pub(crate) fn write_again(&mut self, now: Time, out: &mut Vec<Out>) {
        for id in std::mem::take(&mut self.disk.failed) {
            self.disk.wait(id);
        }
        self.next_to_disk(now, out);
    }
}
