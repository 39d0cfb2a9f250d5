//! The machine: its state, its one door, its clock.

use crate::config::{Config, OPS_MAX};
use crate::counters::{Counters, Stats};
use crate::disk::Disk;
use crate::door::{Answer, In, Out};
use crate::get::{Purpose, Read};
use crate::put::Write;
use crate::shared::Sums;
use crate::sync::Comparing;
use crate::table::Table;
use crate::turns::{Call, Turns, Wish};
use crate::view::{News, View};
use protocol::id::NodeId;
use protocol::machine::Machine;
use protocol::state::{DELETED_TTL, Record, RecordId, StateError, TTL_MAX, VALUE_MAX};
use protocol::time::{Span, Time};
use protocol::wire::state::StateFrame;
use std::collections::BTreeMap;

/// Between two tries of what the disk did not take, and two looks for what has expired.
const SWEEP_EVERY: Span = Span::secs(1);

/// One node's machine of replicated records.
#[derive(Debug)]
pub struct State {
    pub(crate) config: Config,
    pub(crate) counters: Counters,
    pub(crate) view: View,
    pub(crate) table: Table,
    pub(crate) disk: Disk,
    pub(crate) turns: Turns,
    pub(crate) writes: BTreeMap<u64, Write>,
    pub(crate) reads: BTreeMap<u64, Read>,
    pub(crate) sync: Comparing,
    pub(crate) sums: Sums,
    /// It was told that other owners have all.
    pub(crate) handed_over: bool,
    /// Until then earlier owners may know more than those of now.
    unsettled_until: Time,
    sweep_at: Time,
    last: u64,
}

impl State {
    /// A machine that begins at `now` with what the disk held, also where its time is over.
    pub fn new(config: Config, now: Time, records: Vec<Record>) -> Self {
        let mut new = Self {
            counters: Counters::default(),
            view: View::new(config.node),
            table: Table::new(config.limit),
            disk: Disk::default(),
            turns: Turns::default(),
            writes: BTreeMap::new(),
            reads: BTreeMap::new(),
            sync: Comparing::new(now),
            sums: Sums::default(),
            handed_over: false,
            unsettled_until: now + config.settle_after,
            sweep_at: now + SWEEP_EVERY,
            last: config.incarnation.nonce,
            config,
        };
        let mut evicted = Vec::new();
        for record in records {
            let (id, is_sound) = (record.id, Self::is_sound(&record));
            if !is_sound || !new.table.restore(now, record, &mut evicted) {
                evicted.push(id);
            }
        }
        new.counters.evicted = evicted.len() as u64;
        for id in evicted {
            let is_held = new.table.get(now, &id).is_some();
            new.disk.later(id, is_held);
        }
        new
    }

    /// Counters since start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What is held and under way now.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats {
            ops: self.ops() as u64,
            unwritten: self.disk.unwritten(),
            pushes: self.sync.pushes() as u64,
            ..Stats::default()
        };
        self.table.count(&mut stats);
        stats
    }

    /// A fresh number for an operation or a write.
    pub(crate) fn number(&mut self) -> u64 {
        self.last = self.last.wrapping_add(1);
        self.last
    }

    fn ops(&self) -> usize {
        self.writes.len() + self.reads.len() + self.turns.waiting()
    }

    fn has_room(&self) -> bool {
        self.ops() < OPS_MAX
    }

    fn take(&mut self, now: Time, input: In, out: &mut Vec<Out>) {
        match input {
            In::Put { call, id, value, ttl } => {
                self.counters.puts += 1;
                let refused = match value.len() {
                    long if long > VALUE_MAX => Some(StateError::TooLong(long)),
                    _ if !self.has_room() => Some(StateError::Busy),
                    _ => None,
                };
                if let Some(error) = refused {
                    return out.push(Out::Answer { call, answer: Answer::Put(Err(error)) });
                }
                let wish = Wish::Put { value, ttl: ttl.min(TTL_MAX).max(Span(1)) };
                let until = now + self.config.within;
                self.take_turn(now, Call { number: call, id, wish, until }, out);
            }
            In::Get { call, id } => {
                self.counters.gets += 1;
                if !self.has_room() {
                    let answer = Answer::Got(Err(StateError::Busy));
                    return out.push(Out::Answer { call, answer });
                }
                let until = now + self.config.within;
                self.begin_read(now, Purpose::Get(call), id, until, out);
            }
            In::Delete { call, id } => {
                self.counters.puts += 1;
                self.counters.deletes += 1;
                if !self.has_room() {
                    let answer = Answer::Deleted(Err(StateError::Busy));
                    return out.push(Out::Answer { call, answer });
                }
                let (wish, until) = (Wish::Delete, now + self.config.within);
                self.take_turn(now, Call { number: call, id, wish, until }, out);
            }
            In::Frame { from, frame } => self.frame(now, from, frame, out),
            In::Known(node) => self.view.introduce(now, node),
            In::Member(view) => {
                let news = self.view.learn(now, &view);
                if news != News::Nothing {
                    self.sync.begin(now);
                }
                if news == News::Owners {
                    self.unsettled_until = now + self.config.settle_after;
                }
            }
            In::Written { write, durable } => self.written(now, write, durable, out),
            In::Leave => self.leave(now),
        }
    }

    /// Whether all that owners of before knew has reached those of now, as far as can be told.
    pub(crate) fn is_settled(&self, now: Time) -> bool {
        self.unsettled_until <= now
    }

    /// A deletion of what was found at `counter`.
    pub(crate) fn deletion(&mut self, id: RecordId, counter: u64) -> Record {
        let version = self.version_above(counter);
        Record { id, version, deleted: true, ttl: DELETED_TTL, value: Vec::new() }
    }

    fn frame(&mut self, now: Time, from: NodeId, frame: StateFrame, out: &mut Vec<Out>) {
        if !self.view.is_member(&from) {
            self.counters.strangers += 1;
            return;
        }
        match frame {
            StateFrame::Put { op, record } => self.asked_to_keep(now, from, (op, record), out),
            StateFrame::Kept { op } => self.put_kept(now, from, op, out),
            StateFrame::Newer { op, version } => self.put_newer(now, from, op, version, out),
            StateFrame::NotKept { op } => self.put_refused(from, op),
            StateFrame::Get { op, id, than, value } => {
                self.asked_for(now, from, (op, id, than, value), out);
            }
            StateFrame::Got { op, newest, record } => {
                self.got(now, from, op, (newest, record), out);
            }
            StateFrame::Digests(summaries) => self.compare(now, from, &summaries, out),
            StateFrame::Range(range) => self.compare_range(now, from, &range, out),
            StateFrame::Want(ids) => self.wanted(now, from, ids),
            StateFrame::Push(records) => self.pushed(now, from, records, out),
            StateFrame::Offer(held) => self.offered(now, from, &held, out),
            StateFrame::Holds(held) => self.holds(from, held),
        }
    }

    fn next(&self) -> Time {
        let writes = self.writes.values().map(|write| write.due());
        let reads = self.reads.values().map(|read| read.due());
        let ops = writes.chain(reads).chain(self.turns.due()).min().unwrap_or(self.sweep_at);
        ops.min(self.sweep_at).min(self.sync.due())
    }
}

impl Machine for State {
    type In = In;
    type Out = Out;

    fn handle(&mut self, now: Time, input: In, outbox: &mut Vec<Out>) {
        self.expire(now, outbox);
        self.take(now, input, outbox);
        self.next_turns(now, outbox);
    }

    fn tick(&mut self, now: Time, outbox: &mut Vec<Out>) {
        self.expire(now, outbox);
        self.tick_writes(now, outbox);
        self.tick_reads(now, outbox);
        self.tick_turns(now, outbox);
        self.next_turns(now, outbox);
        if self.sweep_at <= now {
            self.sweep_at = now + SWEEP_EVERY;
            self.write_again(now, outbox);
            if self.view.forget(now, self.config.forget_after) {
                self.sync.begin(now);
            }
        }
        self.tick_sync(now, outbox);
    }

    fn deadline(&self) -> Option<Time> {
        Some(self.next())
    }
}
