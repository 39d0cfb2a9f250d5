//! Clients of replicated records: each makes one call at a time, at any node.

use crate::dice::Dice;
use crate::mail::{Event, Mail};
use crate::scenario::Scenario;
use crate::world::World;
use protocol::state::{RecordId, RecordKey, RecordKind};
use protocol::time::Span;
use state::{Answer, Found, In};

/// Names that the clerks share; small, so that calls meet.
const NAMES_MAX: usize = 48;
/// Longer than any clock is wrong in a run.
const TTL: Span = Span::secs(20 * 24 * 3600);
/// Pause between two calls.
const PAUSE_MAX: Span = Span::millis(400);
/// After a node died with a call.
const CUT_OFF: Span = Span::millis(200);

/// What a clerk wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    Put(Vec<u8>),
    Get,
    Delete,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    number: u64,
    host: usize,
    /// Of the last questions of a run, which must be answered rightly.
    is_probe: bool,
    clerk: Option<usize>,
}

/// All clerks.
pub(crate) struct Clerks {
    count: u32,
    calls: Vec<Call>,
    names: Vec<RecordId>,
    last: u64,
    dice: Dice,
}

impl Clerks {
    pub(crate) fn new(scenario: &Scenario, seed: u64) -> Self {
        let (count, dice) = (scenario.workload.clerks, Dice::new(seed, "clerks"));
        Self { count, calls: Vec::new(), names: Vec::new(), last: 0, dice }
    }

    /// Whether a call has no answer.
    pub(crate) fn waiting(&self) -> Option<usize> {
        self.calls.first().map(|call| call.host)
    }

    /// Names that were used.
    pub(crate) fn names(&self) -> &[RecordId] {
        &self.names
    }

    fn new_name(&mut self) -> RecordId {
        let (place, name) = (self.dice.below(12), self.dice.any());
        let spread = u128::from(place + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        let key = RecordKey { place: spread.to_le_bytes(), name: u128::from(name).to_le_bytes() };
        let id = RecordId { key, kind: RecordKind::Response };
        if self.names.len() < NAMES_MAX {
            self.names.push(id);
        } else {
            let at = self.dice.index(NAMES_MAX);
            if let Some(name) = self.names.get(at) {
                return *name;
            }
        }
        id
    }

    fn any_name(&mut self) -> RecordId {
        let at = self.dice.index(self.names.len());
        match self.names.get(at).copied() {
            Some(id) => id,
            None => self.new_name(),
        }
    }

    /// A value that no other write has.
    fn value(&mut self) -> Vec<u8> {
        let long = self.dice.share(0.05);
        let more = self.dice.index(if long { 20_000 } else { 200 });
        let mut value = self.last.to_le_bytes().to_vec();
        value.resize(8 + more, self.last as u8);
        value
    }
}

impl World {
    pub(crate) fn start_clerks(&mut self) {
        for clerk in 0..self.clerks.count as usize {
            let after = Span::secs(1) + self.clerks.dice.span(Span::ZERO, PAUSE_MAX);
            self.plan(self.now + after, Event::Clerk(clerk));
        }
    }

    /// A clerk makes its next call.
    pub(crate) fn clerk_acts(&mut self, clerk: usize) {
        if !self.stormy {
            return;
        }
        let up: Vec<usize> = self.up();
        let at = self.clerks.dice.index(up.len());
        let is_fine = |h: &&usize| self.hosts.get(**h).is_some_and(|host| !host.is_twin);
        let Some(h) = up.get(at).filter(is_fine).copied() else {
            return self.plan(self.now + CUT_OFF, Event::Clerk(clerk));
        };
        let (id, wish) = match self.clerks.dice.below(100) {
            0..30 => (self.clerks.new_name(), Wish::Put(self.clerks.value())),
            30..45 => (self.clerks.any_name(), Wish::Put(self.clerks.value())),
            45..85 => (self.clerks.any_name(), Wish::Get),
            _ => (self.clerks.any_name(), Wish::Delete),
        };
        self.call_records(h, Some(clerk), (id, wish), false);
    }

    fn call_records(
        &mut self,
        h: usize,
        clerk: Option<usize>,
        (id, wish): (RecordId, Wish),
        is_probe: bool,
    ) {
        self.clerks.last += 1;
        let call = self.clerks.last;
        self.clerks.calls.push(Call { number: call, host: h, is_probe, clerk });
        self.watch.figures.record_calls += 1;
        self.watch.records.begins(self.now, call, id, &wish);
        let input = match wish {
            Wish::Put(value) => In::Put { call, id, value, ttl: TTL },
            Wish::Get => In::Get { call, id },
            Wish::Delete => In::Delete { call, id },
        };
        self.mail(h, Mail::State(Box::new(input)));
    }

    /// A call is answered.
    pub(crate) fn record_answered(&mut self, h: usize, call: u64, answer: Answer) {
        let Some(at) = self.clerks.calls.iter().position(|open| open.number == call) else {
            return self.watch.found("records", h, "a call is answered twice");
        };
        let open = self.clerks.calls.remove(at);
        let is_calm = self.is_agreed();
        self.watch.at(self.now);
        let id = self.watch.records.id_of(call);
        let copies = id.map(|id| self.copies_of(&id)).unwrap_or_default();
        let verdict = self.watch.records.ends(self.now, call, &answer, &copies, is_calm);
        self.watch.judge("records", h, verdict);
        if open.is_probe && matches!(answer, Answer::Got(Err(_))) {
            // Nodes see each other alive and are not all connected yet; it ends with the time to rest.
            if let Some(id) = id {
                self.call_records(h, None, (id, Wish::Get), true);
            }
        } else if open.is_probe {
            let verdict = self.watch.records.probed(&copies, &answer);
            self.watch.judge("records", h, verdict);
        }
        match answer {
            Answer::Put(Ok(protocol::state::Kept::Safe)) => self.watch.figures.records_safe += 1,
            Answer::Got(Ok(Found { confirmed: true, .. })) => {
                self.watch.figures.records_confirmed += 1;
            }
            _ => {}
        }
        if let Some(clerk) = open.clerk {
            let after = self.clerks.dice.span(Span::millis(1), PAUSE_MAX);
            self.plan(self.now + after, Event::Clerk(clerk));
        }
    }

    /// A node died with the calls that came in there.
    pub(crate) fn clerks_cut_off(&mut self, h: usize) {
        let (cut, open) = std::mem::take(&mut self.clerks.calls)
            .into_iter()
            .partition::<Vec<Call>, _>(|call| call.host == h);
        self.clerks.calls = open;
        for call in cut {
            self.watch.records.cut_off(self.now, call.number);
            if let Some(clerk) = call.clerk {
                self.plan(self.now + CUT_OFF, Event::Clerk(clerk));
            }
        }
    }

    /// Every name must be known at every node now.
    pub(crate) fn probe_records(&mut self) {
        for id in self.clerks.names().to_vec() {
            for h in self.up() {
                self.call_records(h, None, (id, Wish::Get), true);
            }
        }
    }

    /// What keeps replicated records from rest.
    pub(crate) fn records_unrest(&self) -> Option<crate::check::Unrest> {
        if let Some(h) = self.clerks.waiting() {
            return Some(("liveness", h, "a call about a record has no answer".into()));
        }
        let up = self.up();
        for h in &up {
            let stats = self.hosts.get(*h)?.live.as_ref()?.state.stats();
            if stats.ops + stats.unwritten + stats.pushes > 0 {
                return Some(("liveness", *h, format!("records are not at rest: {stats:?}")));
            }
        }
        let owners = up.len().min(3);
        for id in self.clerks.names() {
            let copies = self.copies_of(id);
            let Some(newest) = copies.iter().map(|copy| copy.version).max() else { continue };
            let have = copies.iter().filter(|copy| copy.version == newest).count();
            if have < owners {
                let text = format!("{id:?} is on {have} disks of {owners} in its newest version");
                return Some(("records", 0, text));
            }
        }
        None
    }
}
