//! Reads that came in at this node, and the first half of deletions.

use crate::config::{NEAR, OWNERS, SAFE, WIDE};
use crate::door::{Answer, Deleted, Found, Out};
use crate::machine::State;
use crate::put::Caller;
use protocol::id::NodeId;
use protocol::state::{Record, RecordId, StateError, VALUE_MAX};
use protocol::time::{Span, Time};
use protocol::wire::state::{Newest, StateFrame};
use std::collections::BTreeMap;

/// What a read is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    Get(u64),
    /// The version is wanted, to delete above it.
    Delete(u64),
    /// The version is wanted, to write above it.
    Put {
        call: u64,
        value: Vec<u8>,
        ttl: Span,
    },
}

/// A read under way.
#[derive(Debug)]
pub(crate) struct Read {
    purpose: Purpose,
    id: RecordId,
    /// Who was asked, and whether for the value too.
    asked: BTreeMap<NodeId, bool>,
    /// What each holds.
    answers: BTreeMap<NodeId, Option<Newest>>,
    /// The newest record whose value has come.
    best: Option<Record>,
    /// When those that may know more are waited for no longer; and whether they are.
    hurry_at: Option<Time>,
    is_patient: bool,
    retry_at: Time,
    pause: Span,
    until: Time,
    /// When the call must have an answer, with the write that follows.
    call_until: Time,
}

impl Read {
    pub(crate) fn due(&self) -> Time {
        self.retry_at.min(self.until).min(self.hurry_at.unwrap_or(self.until))
    }

    fn newest(&self) -> Option<Newest> {
        self.answers.values().flatten().max_by_key(|newest| newest.version).copied()
    }

    /// Whether what is known of the newest write is enough to answer with it.
    fn has_newest(&self) -> bool {
        self.newest().is_some_and(|newest| {
            let version_only = newest.deleted || !matches!(self.purpose, Purpose::Get(_));
            version_only || self.best.as_ref().is_some_and(|best| best.version == newest.version)
        })
    }

    /// Whether what was heard is enough while those are silent who may know of something newer. A
    /// copy may be told then, as unconfirmed; that there is nothing must be known.
    fn is_enough_unconfirmed(&self) -> bool {
        match self.purpose {
            Purpose::Put { .. } => true,
            Purpose::Get(_) | Purpose::Delete(_) => {
                self.newest().is_some_and(|newest| !newest.deleted)
            }
        }
    }
}

impl State {
    pub(crate) fn begin_read(
        &mut self,
        now: Time,
        purpose: Purpose,
        id: RecordId,
        until: Time,
        out: &mut Vec<Out>,
    ) {
        let op = self.number();
        // Who looks before it writes leaves time for that.
        let writes = !matches!(purpose, Purpose::Get(_));
        let patience = Span(until.since(now).0 / if writes { 2 } else { 1 });
        let own = self.table.get(now, &id);
        let (newest, best) = (own.map(|own| own.newest()), own.map(|own| own.record(now, id)));
        let read = Read {
            purpose,
            id,
            asked: BTreeMap::new(),
            answers: BTreeMap::from([(self.config.node, newest)]),
            best,
            is_patient: true,
            hurry_at: (!self.is_settled(now)).then_some(now + self.config.hurry_after),
            retry_at: now + self.config.retry_after,
            pause: self.config.retry_after,
            until: now + patience,
            call_until: until,
        };
        self.reads.insert(op, read);
        self.go_on_reading(now, op, out);
    }

    fn ask(&mut self, op: u64, whom: NodeId, value: bool, out: &mut Vec<Out>) {
        let Some(read) = self.reads.get_mut(&op) else { return };
        read.asked.insert(whom, value);
        let (id, than) = (read.id, read.best.as_ref().map(|best| best.version));
        out.push(Out::Send { to: whom, frame: StateFrame::Get { op, id, than, value } });
    }

    /// Ends a read that knows enough, or asks whoever may know more.
    fn go_on_reading(&mut self, now: Time, op: u64, out: &mut Vec<Out>) {
        let Some(read) = self.reads.get(&op) else { return };
        let place = read.id.key.place;
        let owners = self.view.owners(&place);
        let unasked: Vec<NodeId> = owners
            .iter()
            .filter(|owner| **owner != self.config.node && !read.asked.contains_key(*owner))
            .copied()
            .collect();
        let answered = owners.iter().filter(|owner| read.answers.contains_key(*owner)).count();
        // One owner sends the value along, unless it is here.
        let mut value = read.best.is_none()
            && matches!(&read.purpose, Purpose::Get(_))
            && !read.asked.values().any(|value| *value);
        for owner in unasked {
            self.ask(op, owner, value, out);
            value = false;
        }
        if answered < SAFE.min(owners.len()) {
            return;
        }
        let Some(read) = self.reads.get(&op) else { return };
        let newest = read.newest();
        // What was deleted may have been written again by those that were nearest before they died.
        let is_deletion =
            |newest: Newest| newest.deleted && !crate::floor::is_floor(&newest.version);
        let heard_of_it = newest.is_some_and(is_deletion) && {
            let near = self.view.nearest(&place, OWNERS);
            let heard = near.iter().filter(|node| read.answers.contains_key(*node)).count();
            heard >= SAFE.min(near.len())
        };
        if self.is_settled(now) && newest.is_some_and(|newest| !newest.deleted || heard_of_it) {
            return self.answer_newest(now, op, true, out);
        }
        // Owners of before may have it or know better, or one that was cut off.
        let living = self.view.living(&place, WIDE);
        let silent: Vec<NodeId> =
            living.into_iter().filter(|node| !read.answers.contains_key(node)).collect();
        if silent.is_empty() {
            let near = self.view.nearest(&place, NEAR);
            let missing = near.iter().filter(|node| !read.answers.contains_key(*node)).count();
            // With all that live and all but one of those that may, no safe write is overlooked, even
            // if the disk of one of its owners was lost.
            let is_copy = newest.is_some_and(|newest| !newest.deleted);
            return match newest {
                Some(_) if is_copy || missing <= 1 => {
                    self.answer_newest(now, op, missing <= 1, out);
                }
                None if missing <= 1 => self.end_read(now, op, true, out),
                _ => self.without_the_silent(now, op, out),
            };
        }
        for node in silent {
            if self.reads.get(&op).is_some_and(|read| !read.asked.contains_key(&node)) {
                self.ask(op, node, false, out);
            }
        }
        self.without_the_silent(now, op, out);
    }

    /// Two owners have answered, and others might know more: they are waited for only so long.
    fn without_the_silent(&mut self, now: Time, op: u64, out: &mut Vec<Out>) {
        let Some(read) = self.reads.get(&op) else { return };
        if read.is_patient || !read.is_enough_unconfirmed() {
            return;
        }
        match read.newest() {
            Some(_) => self.answer_newest(now, op, false, out),
            None => self.end_read(now, op, false, out),
        }
    }

    /// Answers with the newest write that was heard of, once its value is here.
    fn answer_newest(&mut self, now: Time, op: u64, confirmed: bool, out: &mut Vec<Out>) {
        let Some(read) = self.reads.get(&op) else { return };
        let Some(newest) = read.newest() else { return };
        if read.has_newest() {
            return self.end_read(now, op, confirmed, out);
        }
        let holds = |(node, held): (&NodeId, &Option<Newest>)| {
            held.is_some_and(|held| held.version == newest.version).then_some(*node)
        };
        let mut holders = read.answers.iter().filter_map(holds);
        let fresh = holders.find(|holder| read.asked.get(holder) != Some(&true));
        if let Some(holder) = fresh.filter(|holder| *holder != self.config.node) {
            self.ask(op, holder, true, out);
        }
    }

    /// A node says what it holds.
    pub(crate) fn got(
        &mut self,
        now: Time,
        from: NodeId,
        op: u64,
        (newest, record): (Option<Newest>, Option<Record>),
        out: &mut Vec<Out>,
    ) {
        let Some(read) = self.reads.get_mut(&op) else { return };
        if !read.asked.contains_key(&from) {
            self.counters.improper += 1;
            return;
        }
        if let Some(record) = record {
            let told = newest.map(|newest| (newest.version, newest.deleted));
            let same = record.id == read.id && told == Some((record.version, record.deleted));
            if !same || record.value.len() > VALUE_MAX || !Self::is_proper(&record) {
                self.counters.improper += 1;
                return;
            }
            if read.best.as_ref().is_none_or(|best| best.version < record.version) {
                read.best = Some(record);
            }
        }
        let before = read.answers.entry(from).or_default();
        let later = |newest: &Option<Newest>| newest.map(|newest| newest.version);
        if later(&newest) >= later(before) {
            *before = newest;
        }
        self.go_on_reading(now, op, out);
    }

    fn end_read(&mut self, now: Time, op: u64, confirmed: bool, out: &mut Vec<Out>) {
        let Some(read) = self.reads.remove(&op) else { return };
        let newest_seen = read.newest();
        let newest = newest_seen.filter(|newest| !newest.deleted);
        match read.purpose {
            Purpose::Get(call) => {
                self.counters.unconfirmed += u64::from(!confirmed);
                if confirmed {
                    self.repair(now, &read, out);
                }
                let value = newest.and(read.best).map(|best| best.value);
                let answer = Answer::Got(Ok(Found { value, confirmed }));
                out.push(Out::Answer { call, answer });
            }
            Purpose::Put { call, value, ttl } => {
                let counter = newest_seen.map_or(0, |newest| newest.version.counter);
                let version = self.version_above(counter);
                let record = Record { id: read.id, version, deleted: false, ttl, value };
                self.begin_write(now, Caller::Put(call), record, read.call_until, out);
            }
            Purpose::Delete(call) => match newest {
                None => {
                    let answer = Answer::Deleted(Ok(Deleted::Absent));
                    out.push(Out::Answer { call, answer });
                    self.turns.end(read.id);
                }
                Some(newest) => {
                    let record = self.deletion(read.id, newest.version.counter);
                    self.begin_write(now, Caller::Delete(call), record, read.call_until, out);
                }
            },
        }
    }

    /// Gives the newest write to the owners that answered with less.
    fn repair(&mut self, now: Time, read: &Read, out: &mut Vec<Out>) {
        let Some(best) = &read.best else { return };
        if read.newest().is_none_or(|newest| newest.version != best.version) {
            return;
        }
        let owners = self.view.owners(&read.id.key.place);
        for owner in owners.iter().copied() {
            let Some(held) = read.answers.get(&owner) else { continue };
            if held.is_some_and(|held| held.version >= best.version) {
                continue;
            }
            self.counters.read_repairs += 1;
            if owner == self.config.node {
                self.keep(now, best.clone(), None, out);
            } else {
                let frame = StateFrame::Push(vec![best.clone()]);
                out.push(Out::Send { to: owner, frame });
            }
        }
    }

    pub(crate) fn tick_reads(&mut self, now: Time, out: &mut Vec<Out>) {
        let due = self.reads.iter().filter(|(_, read)| read.due() <= now);
        let due: Vec<u64> = due.map(|(op, _)| *op).collect();
        for op in due {
            let Some(read) = self.reads.get_mut(&op) else { continue };
            if read.until <= now {
                if read.has_newest() && read.is_enough_unconfirmed() {
                    self.end_read(now, op, false, out);
                } else {
                    self.give_up_read(now, op, out);
                }
                continue;
            }
            if read.hurry_at.is_some_and(|at| at <= now) {
                (read.hurry_at, read.is_patient) = (None, false);
            }
            if read.retry_at > now {
                self.go_on_reading(now, op, out);
                continue;
            }
            read.pause = read.pause * 2;
            read.retry_at = now + read.pause;
            let newest = read.newest();
            let has_newest = read.has_newest();
            // The silent, and those that should have sent a value.
            let again: Vec<(NodeId, bool)> = read
                .asked
                .iter()
                .filter(|(node, value)| match read.answers.get(*node) {
                    None => true,
                    Some(held) => **value && !has_newest && *held == newest,
                })
                .map(|(node, value)| (*node, *value))
                .collect();
            for (node, value) in again {
                self.counters.retries += 1;
                self.ask(op, node, value, out);
            }
            self.go_on_reading(now, op, out);
        }
    }

    fn give_up_read(&mut self, now: Time, op: u64, out: &mut Vec<Out>) {
        // A write goes on with what is known.
        if self.reads.get(&op).is_some_and(|read| matches!(read.purpose, Purpose::Put { .. })) {
            return self.end_read(now, op, false, out);
        }
        let Some(read) = self.reads.remove(&op) else { return };
        self.counters.unavailable += 1;
        let (call, answer) = match read.purpose {
            Purpose::Get(call) => (call, Answer::Got(Err(StateError::Unavailable))),
            Purpose::Delete(call) => (call, Answer::Deleted(Err(StateError::Unavailable))),
            Purpose::Put { call, .. } => (call, Answer::Put(Err(StateError::NotKept))),
        };
        if !matches!(answer, Answer::Got(_)) {
            self.turns.end(read.id);
        }
        out.push(Out::Answer { call, answer });
    }
}
