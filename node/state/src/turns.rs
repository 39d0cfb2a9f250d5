//! Writes of one record at one node, one after the other: at once they would outbid each other while
//! the disk works.

use crate::door::{Answer, Out};
use crate::get::Purpose;
use crate::machine::State;
use crate::put::Caller;
use protocol::state::{Record, RecordId, StateError};
use protocol::time::{Span, Time};
use std::collections::{BTreeMap, VecDeque};

/// What a call wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    Put { value: Vec<u8>, ttl: Span },
    Delete,
}

/// A call that writes.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) number: u64,
    pub(crate) id: RecordId,
    pub(crate) wish: Wish,
    pub(crate) until: Time,
}

/// Records that are being written from here, each with the calls that wait for their turn.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    queues: BTreeMap<RecordId, VecDeque<Call>>,
    waiting: usize,
    /// Whose writes have ended.
    freed: Vec<RecordId>,
}

impl Turns {
    /// Calls that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// A write has ended.
    pub(crate) fn end(&mut self, id: RecordId) {
        self.freed.push(id);
    }

    /// Calls wait in the order in which they came, and so in that of their ends.
    pub(crate) fn due(&self) -> Option<Time> {
        self.queues.values().filter_map(|queue| queue.front()).map(|call| call.until).min()
    }

    fn pop(&mut self, id: &RecordId) -> Option<Call> {
        let call = self.queues.get_mut(id)?.pop_front();
        self.waiting -= usize::from(call.is_some());
        call
    }

    fn pop_due(&mut self, now: Time) -> Option<Call> {
        if self.due().is_none_or(|due| due > now) {
            return None;
        }
        let is_due = |queue: &VecDeque<Call>| queue.front().is_some_and(|call| call.until <= now);
        let id = self.queues.iter().find(|(_, queue)| is_due(queue)).map(|(id, _)| *id)?;
        self.pop(&id)
    }
}

impl State {
    /// A call begins, or waits for those before it.
    pub(crate) fn take_turn(&mut self, now: Time, call: Call, out: &mut Vec<Out>) {
        if let Some(queue) = self.turns.queues.get_mut(&call.id) {
            queue.push_back(call);
            self.turns.waiting += 1;
            return;
        }
        self.turns.queues.insert(call.id, VecDeque::new());
        self.begin_call(now, call, out);
    }

    fn begin_call(&mut self, now: Time, call: Call, out: &mut Vec<Out>) {
        let Call { number, id, wish, until } = call;
        match wish {
            Wish::Put { value, ttl } if self.is_settled(now) => {
                let counter = self.table.get(now, &id).map_or(0, |held| held.version.counter);
                let version = self.version_above(counter);
                let record = Record { id, version, deleted: false, ttl, value };
                self.begin_write(now, Caller::Put(number), record, until, out);
            }
            Wish::Put { value, ttl } => {
                self.begin_read(now, Purpose::Put { call: number, value, ttl }, id, until, out);
            }
            Wish::Delete => self.begin_read(now, Purpose::Delete(number), id, until, out),
        }
    }

    /// The next calls for records whose writes have ended begin.
    pub(crate) fn next_turns(&mut self, now: Time, out: &mut Vec<Out>) {
        while let Some(id) = self.turns.freed.pop() {
            match self.turns.pop(&id) {
                Some(call) if call.until <= now => {
                    Self::too_late(call, out);
                    self.turns.end(id);
                }
                Some(call) => self.begin_call(now, call, out),
                None => drop(self.turns.queues.remove(&id)),
            }
        }
    }

    /// Calls whose turn has not come in their time have changed nothing.
    pub(crate) fn tick_turns(&mut self, now: Time, out: &mut Vec<Out>) {
        while let Some(call) = self.turns.pop_due(now) {
            Self::too_late(call, out);
        }
    }

    fn too_late(call: Call, out: &mut Vec<Out>) {
        let answer = match call.wish {
            Wish::Put { .. } => Answer::Put(Err(StateError::Busy)),
            Wish::Delete => Answer::Deleted(Err(StateError::Busy)),
        };
        out.push(Out::Answer { call: call.number, answer });
    }
}
