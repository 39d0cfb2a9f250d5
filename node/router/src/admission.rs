//! The queue in front of one engine, on its own node: who is admitted next, who waits, who is
//! refused.
//!
//! **Order.** Strict tier first (higher tiers always before lower ones). Within a tier by due time:
//! arrival, minus [`Config::ageing`] per unit of priority, so that waiting raises a request as
//! priority does. The credit or debit of priority is at most half the [`Config::starvation`] bound.
//! Due times are compared in steps of [`Config::step`]; within one step the least uncached work
//! goes first, then the earlier arrival.
//!
//! **Starvation bound.** Within its tier, no request is overtaken by one that arrives more than
//! `starvation + step` later, whatever their priorities and sizes.
//!
//! **Bounds.** At most [`Config::max_waiting`] requests with [`Config::max_waiting_tokens`] uncached
//! tokens wait. Over that, the lowest class (tier, then priority; of equals the latest) is refused
//! with [`Refusal::Busy`]; a newcomer is refused itself unless it is of a higher class. One request
//! larger than the token bound may wait alone.

use protocol::id::RequestId;
use protocol::machine::Machine;
use protocol::prompt::Refusal;
use protocol::time::{Span, Time};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

#[cfg(test)]
mod tests;

/// Settings of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Requests that may run at once. For a guest engine: what it runs plus one step.
    pub window: u32,
    /// Requests that may wait.
    pub max_waiting: usize,
    /// Uncached prompt tokens that may wait.
    pub max_waiting_tokens: u64,
    /// Waiting time that one unit of priority is worth.
    pub ageing: Span,
    /// See the module's documentation.
    pub starvation: Span,
    /// Arrivals this close together are ordered by work.
    pub step: Span,
}

impl Default for Config {
    /// 16 at once, 256 waiting with 2 million tokens, one second per unit of priority, a bound of
    /// 60 seconds, steps of 250 ms.
    fn default() -> Self {
        Self {
            window: 16,
            max_waiting: 256,
            max_waiting_tokens: 2_000_000,
            ageing: Span::secs(1),
            starvation: Span::secs(60),
            step: Span::millis(250),
        }
    }
}

/// What can happen to a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum In {
    /// A request wants to run.
    Arrive(Arrival),
    /// An admitted request has ended, in whatever way.
    Done(RequestId),
    /// The caller went away: forgotten if it waits, [`In::Done`] if it runs.
    Cancel(RequestId),
    /// Another running limit.
    Window(u32),
}

/// A request that wants to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// The request.
    pub id: RequestId,
    /// Strict tier; higher first.
    pub strict: u32,
    /// Priority; higher sooner, may be negative.
    pub priority: i32,
    /// Prompt tokens that are expected to be computed.
    pub uncached: u32,
}

/// What a queue decides. Every arrival gets exactly one answer, unless it is cancelled first.
#[derive(Clone, PartialEq, Debug)]
pub enum Out {
    /// It runs now.
    Admit(RequestId),
    /// It does not.
    Refuse(RequestId, Refusal),
}

/// Order of admission: tier, due step, work, arrival; unique by the number of the arrival.
type Key = (Reverse<u32>, i64, u32, u64);
/// Order of shedding, lowest class first and of equals the latest.
type Class = (u32, i32, Reverse<u64>);

#[derive(Clone, Copy, Debug)]
struct Waiting {
    arrival: Arrival,
    key: Key,
    class: Class,
}

/// Counters and sizes, for metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Requests running now.
    pub running: u64,
    /// Requests waiting now.
    pub waiting: u64,
    /// Their uncached tokens.
    pub waiting_tokens: u64,
    /// Admitted so far.
    pub admitted: u64,
    /// Refused so far.
    pub refused: u64,
    /// Cancelled while they waited.
    pub cancelled: u64,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Queue {
    config: Config,
    order: BTreeMap<Key, RequestId>,
    classes: BTreeMap<Class, RequestId>,
    waiting: BTreeMap<RequestId, Waiting>,
    running: BTreeMap<RequestId, Time>,
    tokens: u64,
    arrivals: u64,
    /// Smoothed time that a request runs, milliseconds; 0 before the first has ended.
    runs_ms: f64,
    stats: Stats,
}

impl Queue {
    /// An empty queue.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            order: BTreeMap::new(),
            classes: BTreeMap::new(),
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            tokens: 0,
            arrivals: 0,
            runs_ms: 0.0,
            stats: Stats::default(),
        }
    }

    /// Counters and sizes.
    pub fn stats(&self) -> Stats {
        Stats {
            running: self.running.len() as u64,
            waiting: self.waiting.len() as u64,
            waiting_tokens: self.tokens,
            ..self.stats
        }
    }

    fn key(&self, now: Time, arrival: &Arrival) -> Key {
        let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let half = signed(self.config.starvation.0 / 2);
        let credit = i64::from(arrival.priority)
            .saturating_mul(signed(self.config.ageing.0))
            .clamp(-half, half);
        let due = signed(now.0).saturating_sub(credit);
        let step = due.div_euclid(signed(self.config.step.0).max(1));
        (Reverse(arrival.strict), step, arrival.uncached, self.arrivals)
    }

    fn arrive(&mut self, now: Time, arrival: Arrival, outbox: &mut Vec<Out>) {
        if self.waiting.contains_key(&arrival.id) || self.running.contains_key(&arrival.id) {
            return;
        }
        self.arrivals += 1;
        let class = (arrival.strict, arrival.priority, Reverse(self.arrivals));
        let entry = Waiting { arrival, key: self.key(now, &arrival), class };
        self.order.insert(entry.key, arrival.id);
        self.classes.insert(class, arrival.id);
        self.waiting.insert(arrival.id, entry);
        self.tokens += u64::from(arrival.uncached);
        self.admit(now, outbox);
        self.shed(outbox);
    }

    fn take(&mut self, id: RequestId) -> bool {
        let Some(entry) = self.waiting.remove(&id) else {
            return false;
        };
        self.order.remove(&entry.key);
        self.classes.remove(&entry.class);
        self.tokens -= u64::from(entry.arrival.uncached);
        true
    }

    fn admit(&mut self, now: Time, outbox: &mut Vec<Out>) {
        while self.running.len() < self.config.window as usize
            && let Some((_, id)) = self.order.first_key_value()
        {
            let id = *id;
            self.take(id);
            self.running.insert(id, now);
            self.stats.admitted += 1;
            outbox.push(Out::Admit(id));
        }
    }

    fn is_over(&self) -> bool {
        self.waiting.len() > self.config.max_waiting
            || (self.tokens > self.config.max_waiting_tokens && self.waiting.len() > 1)
    }

    fn shed(&mut self, outbox: &mut Vec<Out>) {
        while self.is_over()
            && let Some((_, id)) = self.classes.first_key_value()
        {
            let id = *id;
            let retry_after = self.retry_after();
            self.take(id);
            self.stats.refused += 1;
            outbox.push(Out::Refuse(id, Refusal::Busy { retry_after }));
        }
    }

    /// When those who wait now will have been admitted, at the measured pace; from 0.1 to 60 s.
    fn retry_after(&self) -> Span {
        let pace = if self.runs_ms > 0.0 { self.runs_ms } else { 1_000.0 };
        let turns = self.waiting.len() as f64 / f64::from(self.config.window.max(1));
        Span::from_ms((pace * turns).clamp(100.0, 60_000.0))
    }

    fn done(&mut self, now: Time, id: RequestId, outbox: &mut Vec<Out>) {
        let Some(since) = self.running.remove(&id) else {
            return;
        };
        let took = now.since(since).as_ms();
        self.runs_ms = if self.runs_ms > 0.0 { self.runs_ms * 0.9 + took * 0.1 } else { took };
        self.admit(now, outbox);
    }

    /// Ids of those who wait, in the order in which they would be admitted.
    pub fn waiting(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.order.values().copied()
    }

    /// Whether the books agree: for tests and the simulator's checkers.
    pub fn is_consistent(&self) -> bool {
        let tokens = self.waiting.values().map(|w| u64::from(w.arrival.uncached)).sum::<u64>();
        let (order, classes): (BTreeSet<_>, BTreeSet<_>) =
            (self.order.values().collect(), self.classes.values().collect());
        tokens == self.tokens
            && order == classes
            && order.into_iter().eq(self.waiting.keys())
            && !self.waiting.keys().any(|id| self.running.contains_key(id))
            && !self.is_over()
    }
}

impl Machine for Queue {
    type In = In;
    type Out = Out;

    fn handle(&mut self, now: Time, input: In, outbox: &mut Vec<Out>) {
        match input {
            In::Arrive(arrival) => self.arrive(now, arrival, outbox),
            In::Done(id) => self.done(now, id, outbox),
            In::Cancel(id) => {
                if self.take(id) {
                    self.stats.cancelled += 1;
                } else {
                    self.done(now, id, outbox);
                }
            }
            In::Window(window) => {
                self.config.window = window;
                self.admit(now, outbox);
            }
        }
    }

    fn tick(&mut self, _now: Time, _outbox: &mut Vec<Out>) {}

    fn deadline(&self) -> Option<Time> {
        None
    }
}
