//! Writes that came in at this node, on their way to the owners.

use crate::config::{BUMPS_MAX, SAFE};
use crate::copies::Copy;
use crate::door::{Answer, Deleted, Out};
use crate::machine::State;
use crate::table::Waiter;
use protocol::id::NodeId;
use protocol::state::{Kept, Record, StateError, Version};
use protocol::time::{Span, Time};
use protocol::wire::state::StateFrame;
use std::collections::BTreeSet;

/// Who waits for a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Caller {
    Put(u64),
    Delete(u64),
}

/// A write under way.
#[derive(Debug)]
pub(crate) struct Write {
    caller: Caller,
    record: Record,
    /// Asked as owners, this node too.
    asked: BTreeSet<NodeId>,
    acks: BTreeSet<NodeId>,
    refused: BTreeSet<NodeId>,
    /// It is durable here, though this is no owner.
    aside: bool,
    bumps: u32,
    begun: Time,
    retry_at: Time,
    pause: Span,
    until: Time,
    fallback_at: Option<Time>,
}

impl Write {
    pub(crate) fn due(&self) -> Time {
        self.retry_at.min(self.until).min(self.fallback_at.unwrap_or(self.until))
    }
}

impl State {
    /// A version above what was seen, unlike any other.
    pub(crate) fn version_above(&mut self, counter: u64) -> Version {
        let write = self.number();
        Version { counter: counter.saturating_add(1), writer: self.config.node, write }
    }

    pub(crate) fn begin_write(
        &mut self,
        now: Time,
        caller: Caller,
        record: Record,
        until: Time,
        out: &mut Vec<Out>,
    ) {
        let op = self.number();
        let half = Span(until.since(now).0 / 2);
        let write = Write {
            caller,
            record,
            asked: BTreeSet::new(),
            acks: BTreeSet::new(),
            refused: BTreeSet::new(),
            aside: false,
            bumps: 0,
            begun: now,
            retry_at: now + self.config.retry_after,
            pause: self.config.retry_after,
            until,
            fallback_at: Some(now + self.config.fallback_after.min(half)),
        };
        self.writes.insert(op, write);
        self.ask_owners(now, op, out);
    }

    /// Sends a write to the owners that have not acknowledged it.
    fn ask_owners(&mut self, now: Time, op: u64, out: &mut Vec<Out>) {
        let Some(write) = self.writes.get(&op) else { return };
        let owners = self.view.owners(&write.record.id.key.place);
        for owner in owners.iter().copied() {
            let Some(write) = self.writes.get_mut(&op) else { return };
            if write.acks.contains(&owner) || write.refused.contains(&owner) {
                continue;
            }
            if !write.asked.insert(owner) {
                self.counters.retries += u64::from(owner != self.config.node);
            }
            let mut record = write.record.clone();
            record.ttl = left(&write.record, now.since(write.begun));
            if owner == self.config.node {
                self.keep_own(now, op, record, out);
            } else {
                out.push(Out::Send { to: owner, frame: StateFrame::Put { op, record } });
            }
        }
    }

    fn keep_own(&mut self, now: Time, op: u64, record: Record, out: &mut Vec<Out>) {
        let me = self.config.node;
        let waits = self.table.get(now, &record.id);
        let waits = waits.is_some_and(|held| held.waiters.contains(&Waiter::Own(op)));
        if waits {
            return; // the disk is slow
        }
        match self.keep(now, record, Some(Waiter::Own(op)), out) {
            Copy::Durable => self.put_kept(now, me, op, out),
            Copy::Older(version) => self.put_newer(now, me, op, version, out),
            Copy::NoRoom(_) => self.put_refused(me, op),
            Copy::Writing => {}
        }
    }

    /// A node has the write on disk.
    pub(crate) fn put_kept(&mut self, _now: Time, from: NodeId, op: u64, out: &mut Vec<Out>) {
        let needed = SAFE.min(self.view.known().max(1));
        let Some(write) = self.writes.get_mut(&op) else { return };
        if !write.asked.contains(&from) {
            write.aside |= from == self.config.node;
            return;
        }
        write.acks.insert(from);
        if write.acks.len() >= needed {
            self.counters.safe += 1;
            self.end_write(op, Ok(Kept::Safe), out);
        }
    }

    /// A node has a later write: this one is made again above it.
    pub(crate) fn put_newer(
        &mut self,
        now: Time,
        from: NodeId,
        op: u64,
        version: Version,
        out: &mut Vec<Out>,
    ) {
        let Some(write) = self.writes.get(&op) else { return };
        let is_asked = write.asked.contains(&from) || from == self.config.node;
        if !is_asked || version <= write.record.version || write.bumps >= BUMPS_MAX {
            return;
        }
        let above = self.version_above(version.counter);
        self.counters.bumps += 1;
        if let Some(write) = self.writes.get_mut(&op) {
            write.bumps += 1;
            write.record.version = above;
            write.asked.clear();
            write.acks.clear();
            write.refused.clear();
            write.aside = false;
        }
        // Acknowledgements of the earlier try may be on their way: it goes on under a new number.
        let renumbered = self.number();
        if let Some(write) = self.writes.remove(&op) {
            self.writes.insert(renumbered, write);
        }
        self.ask_owners(now, renumbered, out);
    }

    /// A node cannot keep the write.
    pub(crate) fn put_refused(&mut self, from: NodeId, op: u64) {
        if let Some(write) = self.writes.get_mut(&op).filter(|write| write.asked.contains(&from)) {
            write.refused.insert(from);
        }
    }

    fn end_write(&mut self, op: u64, result: Result<Kept, StateError>, out: &mut Vec<Out>) {
        let Some(write) = self.writes.remove(&op) else { return };
        let (call, answer) = match write.caller {
            Caller::Put(call) => (call, Answer::Put(result)),
            Caller::Delete(call) => (call, Answer::Deleted(result.map(Deleted::Gone))),
        };
        out.push(Out::Answer { call, answer });
        self.turns.end(write.record.id);
    }

    pub(crate) fn tick_writes(&mut self, now: Time, out: &mut Vec<Out>) {
        let due = self.writes.iter().filter(|(_, write)| write.due() <= now);
        let due: Vec<u64> = due.map(|(op, _)| *op).collect();
        for op in due {
            let Some(write) = self.writes.get_mut(&op) else { continue };
            if write.until <= now {
                let acks = write.acks.len() + usize::from(write.aside);
                let acks = u32::try_from(acks).unwrap_or(u32::MAX);
                let result = match acks {
                    0 => Err(StateError::NotKept),
                    acks => Ok(Kept::Degraded { acks }),
                };
                let counter = match acks {
                    0 => &mut self.counters.not_kept,
                    _ => &mut self.counters.degraded,
                };
                *counter += 1;
                self.end_write(op, result, out);
                continue;
            }
            if write.retry_at <= now {
                write.pause = write.pause * 2;
                write.retry_at = now + write.pause;
                self.ask_owners(now, op, out);
            }
            self.keep_aside(now, op, out);
        }
    }

    /// Keeps a write here that no owner has acknowledged for a while: one copy is better than none.
    fn keep_aside(&mut self, now: Time, op: u64, out: &mut Vec<Out>) {
        let Some(write) = self.writes.get_mut(&op) else { return };
        if write.fallback_at.is_none_or(|at| at > now) {
            return;
        }
        write.fallback_at = None;
        if write.asked.contains(&self.config.node) || !write.acks.is_empty() {
            return;
        }
        let mut record = write.record.clone();
        record.ttl = left(&record, now.since(write.begun));
        self.keep_own(now, op, record, out);
    }
}

/// What remains of a record's life after so long.
fn left(record: &Record, passed: Span) -> Span {
    Span(record.ttl.0.saturating_sub(passed.0)).max(Span(1))
}
