//! The engine's thread: takes what came in, runs one step, tells what happened; again.

mod choice;
mod copy;
mod load;
mod pulse;
mod warm_up;

pub(crate) use pulse::Pulse;

use crate::decoder::{Decoder, Scratch, Slice};
use crate::early::Early;
use crate::guided::Helpers;
use crate::inbox::{Command, Inbox};
use crate::meter::{Meter, Step};
use crate::outlet::Outlet;
use crate::pool::KvPool;
use crate::schedule::{Part, Plan, Schedule};
use crate::sequence::Sequence;
use choice::{Choice, End, choice, stopped};
use kernels::Pool;
use load::Reporter;
use protocol::block::SlotRef;
use protocol::hash::Token;
use protocol::op::{EngineEvent, EngineOp, LeaseId, OpId};
use protocol::prompt::{Finish, FinishReason, Refusal, Started, StreamItem};
use protocol::time::{Span, Time};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::Sender;

/// How often channels are looked at while nothing can run: readers and their leaving send no
/// message.
const POLL: Duration = Duration::from_millis(5);

/// Everything the engine's thread owns.
pub(crate) struct Worker {
    decoder: Decoder,
    pool: KvPool,
    dram: Arc<Pool>,
    schedule: Schedule,
    inbox: Arc<Inbox>,
    helpers: Arc<Helpers>,
    pulse: Arc<Pulse>,
    events: Sender<EngineEvent>,
    early: Early,
    /// Exports that were asked for, oldest first; done between steps.
    exports: VecDeque<Export>,
    /// Ways out of ended sequences that still hold items.
    drains: Vec<Outlet>,
    scratch: Scratch,
    meter: Meter,
    reporter: Reporter,
    context: usize,
    epoch: Instant,
}

/// A copy of a slot to DRAM.
struct Export {
    op: OpId,
    from: SlotRef,
    to: SlotRef,
}

impl Worker {
    pub(crate) fn new(
        decoder: Decoder,
        pool: KvPool,
        dram: Arc<Pool>,
        schedule: Schedule,
        helpers: Arc<Helpers>,
        pulse: Arc<Pulse>,
        events: Sender<EngineEvent>,
    ) -> Self {
        Self {
            decoder,
            pool,
            dram,
            schedule,
            inbox: Arc::clone(helpers.inbox()),
            helpers,
            pulse,
            events,
            early: Early::default(),
            exports: VecDeque::new(),
            drains: Vec::new(),
            scratch: Scratch::default(),
            meter: Meter::default(),
            reporter: Reporter::default(),
            context: 0,
            epoch: Instant::now(),
        }
    }

    /// The longest context in tokens, and the instant to which times of leases refer.
    pub(crate) fn set_limits(&mut self, context: usize, epoch: Instant) {
        self.context = context;
        self.epoch = epoch;
    }

    /// Runs until the owner leaves or something panics; then fails what is left. `chunk` is the
    /// length of the prompt pieces to measure with.
    pub(crate) fn run_to_end(&mut self, chunk: usize) {
        let ran = catch_unwind(AssertUnwindSafe(|| {
            self.warm_up(chunk);
            self.run();
        }));
        match ran {
            Ok(()) => self.fail_all(&Refusal::Gone),
            Err(panic) => {
                let reason = format!("the engine's thread panicked: {}", message(&*panic));
                tracing::error!(%reason, "engine died");
                self.pulse.die(reason.clone());
                self.fail_all(&Refusal::Failed(reason.clone()));
                self.tell(EngineEvent::Died(reason));
            }
        }
        while !self.drains.is_empty() {
            self.flush_drains();
            std::thread::sleep(POLL);
        }
    }

    fn run(&mut self) {
        let mut commands = VecDeque::new();
        while self.inbox.take(&mut commands) {
            for command in commands.drain(..) {
                self.obey(command);
            }
            self.sweep();
            let now = Instant::now();
            for _ in 0..self.schedule.admit(now) {
                self.inbox.job_left();
            }
            for sequence in self.schedule.running_mut() {
                sequence.begin_grammar(&self.helpers);
            }
            self.choose_held(now);
            self.ask_for_room(now);
            match self.schedule.plan(now) {
                Plan::Step(parts) => {
                    self.pulse.begin(now);
                    self.step(&parts, now);
                    self.pulse.beat(Instant::now(), self.meter.interval_p99());
                    self.export_some();
                    self.report_load();
                }
                Plan::Stuck(index) => self.finish(index, FinishReason::ContextFull, 0),
                Plan::Idle(until) => {
                    self.pulse.rest();
                    self.export_some();
                    self.idle(until, now);
                }
            }
        }
        self.drains.extend(Command::refuse_all(commands, &Refusal::Gone));
    }

    fn idle(&mut self, until: Option<Instant>, now: Instant) {
        let reported = self.report_load();
        let nobody = self.schedule.running().is_empty() && self.drains.is_empty();
        let poll = (!nobody).then_some(now + POLL);
        if self.exports.is_empty() {
            self.inbox.wait([until, poll, reported].into_iter().flatten().min());
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Job(job) => {
                let epoch = self.epoch;
                let instant = |time: Time| {
                    epoch.checked_add(Duration::from_nanos(time.0)).unwrap_or_else(Instant::now)
                };
                let mut sequence = Sequence::new(*job, self.context, instant);
                let notes = self.early.claim(sequence.lease);
                for (index, slot) in notes.imported {
                    if sequence.importable(index as usize, slot) {
                        sequence.imported(index as usize);
                    }
                }
                notes.missed.iter().for_each(|index| sequence.missed(*index as usize));
                let lease = sequence.lease;
                self.schedule.add(sequence);
                if notes.aborted {
                    self.abort(lease);
                }
            }
            Command::Op(EngineOp::Import { op, lease, index, to, from, digest }) => {
                let copied = self.import(lease, index, to, from, digest);
                self.tell(EngineEvent::Imported { op, copied });
            }
            Command::Op(EngineOp::Export { op, from, to }) => {
                self.exports.push_back(Export { op, from, to });
            }
            Command::Op(EngineOp::Missed { lease, index }) => match self.schedule.find(lease) {
                Some(sequence) => sequence.missed(index as usize),
                None => {
                    if let Some(notes) = self.early.notes(lease) {
                        notes.missed.push(index);
                    }
                }
            },
            Command::Op(EngineOp::Grant { lease, slots }) => {
                let known = slots.iter().all(|slot| (slot.slot.0 as usize) < self.pool.slots());
                match self.schedule.find(lease) {
                    Some(sequence) if known => sequence.grant(slots, Instant::now()),
                    Some(_) => tracing::error!(?lease, "granted slots are outside the pool"),
                    None => {}
                }
            }
            Command::Op(EngineOp::Abort { lease }) => self.abort(lease),
        }
    }

    fn abort(&mut self, lease: LeaseId) {
        if self.schedule.find(lease).is_none() {
            if let Some(notes) = self.early.notes(lease) {
                notes.aborted = true;
            }
            return;
        }
        let (running, waiting) = self.schedule.extract(|sequence| sequence.lease == lease);
        for _ in &waiting {
            self.inbox.job_left();
        }
        for sequence in running.into_iter().chain(waiting) {
            let output = sequence.generated() as u32;
            self.end(sequence, FinishReason::Cancelled, output);
        }
    }

    /// Removes sequences whose reader left.
    fn sweep(&mut self) {
        self.flush_drains();
        let (running, waiting) = self.schedule.extract(|sequence| sequence.outlet.is_closed());
        for _ in &waiting {
            self.inbox.job_left();
        }
        for sequence in running.into_iter().chain(waiting) {
            tracing::debug!(request = %sequence.request, "the reader left");
            self.early.ended(sequence.lease);
            drop(sequence);
            self.schedule.room_comes(Instant::now());
        }
    }

    fn flush_drains(&mut self) {
        self.drains.retain_mut(|outlet| !outlet.flush());
    }

    fn ask_for_room(&mut self, now: Instant) {
        let wanted = |sequence: &mut Sequence| {
            let blocks = sequence.room_wanted(now)?;
            Some(EngineEvent::NeedSlots { lease: sequence.lease, blocks })
        };
        let asks: Vec<_> = self.schedule.running_mut().iter_mut().filter_map(wanted).collect();
        asks.into_iter().for_each(|ask| self.tell(ask));
    }

    /// Computes one step and deals with each part's result.
    fn step(&mut self, parts: &[Part], begun: Instant) {
        let rows = Rows::of(parts, self.schedule.running());
        let slices = rows.slices(parts, self.schedule.running());
        let logits = self.decoder.forward(&mut self.pool, &slices, &mut self.scratch);
        let wanted: Vec<bool> = slices.iter().map(|slice| slice.logits).collect();
        let mut chosen = logits.chunks_exact(self.decoder.vocab());
        let running = self.schedule.running_mut();
        let choices: Vec<Choice> = parts
            .iter()
            .zip(wanted)
            .map(|(part, wanted)| {
                let logits = if wanted { chosen.next() } else { None };
                match (running.get_mut(part.sequence), logits) {
                    (Some(sequence), Some(logits)) => choice(sequence, logits),
                    _ => Choice::None,
                }
            })
            .collect();
        let now = Instant::now();
        self.meter.step(rows.measured(now.saturating_duration_since(begun)));
        parts.iter().for_each(|part| self.seal(part));
        let choices = parts.iter().map(|part| part.sequence).zip(choices).collect();
        self.carry_out(choices, now);
    }

    /// Tells the blocks that a part filled.
    fn seal(&mut self, part: &Part) {
        let Some(sequence) = self.schedule.running_mut().get_mut(part.sequence) else { return };
        let Some(last) = part.positions.last() else { return };
        let lease = sequence.lease;
        for (index, tokens) in sequence.computed(*last) {
            self.tell(EngineEvent::Sealed { lease, index, tokens });
        }
    }

    /// Notes that a token came, and says so when it is the first.
    fn started(&mut self, index: usize, now: Instant) -> Option<&mut Sequence> {
        let sequence = self.schedule.running_mut().get_mut(index)?;
        match sequence.last_token.replace(now) {
            Some(before) => self.meter.interval(now.saturating_duration_since(before)),
            None => sequence.outlet.send(StreamItem::Started(Started {
                serving_node: sequence.serving_node,
                prompt: sequence.sources(),
                queued: Span(u64::try_from(sequence.queued.as_nanos()).unwrap_or(u64::MAX)),
            })),
        }
        Some(sequence)
    }

    /// Hands a new token to the sequence and its reader; tells whether that was the last.
    fn deliver(&mut self, index: usize, token: Token, now: Instant) -> Option<End> {
        let sequence = self.started(index, now)?;
        if sequence.limits.stop_tokens.contains(&token) {
            return Some(Ok((FinishReason::Stop(token), 1)));
        }
        let over = sequence.push(token);
        sequence.outlet.send(StreamItem::Tokens(vec![token]));
        if over {
            return Some(Ok(stopped(sequence)));
        }
        if !sequence.is_full() {
            return None;
        }
        match sequence.generated() >= sequence.limits.max_tokens as usize {
            true => Some(Ok((FinishReason::Length, 0))),
            false => Some(Ok((FinishReason::ContextFull, 0))),
        }
    }

    fn finish(&mut self, index: usize, reason: FinishReason, hidden: u32) {
        let sequence = self.schedule.remove(index);
        let output = sequence.generated() as u32 + hidden;
        self.end(sequence, reason, output);
    }

    /// Ends a sequence: its last item, its slots.
    fn end(&mut self, mut sequence: Sequence, reason: FinishReason, output_tokens: u32) {
        tracing::debug!(request = %sequence.request, ?reason, output_tokens, "sequence ended");
        let prompt = sequence.sources();
        sequence.outlet.send(StreamItem::Finished(Finish { reason, prompt, output_tokens }));
        self.early.ended(sequence.lease);
        self.drain(sequence);
        self.schedule.room_comes(Instant::now());
    }

    /// Gives up a sequence's slots and keeps what its reader has not taken yet.
    fn drain(&mut self, sequence: Sequence) {
        let outlet = sequence.end();
        if !outlet.is_clear() {
            self.drains.push(outlet);
        }
    }

    /// Fails all sequences, and all jobs that were not looked at.
    fn fail_all(&mut self, refusal: &Refusal) {
        self.inbox.close();
        let mut commands = VecDeque::new();
        self.inbox.take(&mut commands);
        self.drains.extend(Command::refuse_all(commands, refusal));
        let (running, waiting) = self.schedule.extract(|_| true);
        for mut sequence in running.into_iter().chain(waiting) {
            sequence.outlet.send(StreamItem::Failed(refusal.clone()));
            // A guard is foreign code; one that panics must not keep the others.
            let ended = catch_unwind(AssertUnwindSafe(|| sequence.end()));
            if let Ok(outlet) = ended {
                self.drains.push(outlet);
            }
        }
    }

    /// Tells the block manager, waiting while it is busy; a manager that left needs nothing.
    fn tell(&self, event: EngineEvent) {
        let _ = self.events.blocking_send(event);
    }
}

/// The text of a panic.
pub(crate) fn message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("unknown cause")
}

/// The rows of a step in one piece, from which the slices borrow.
struct Rows {
    tokens: Vec<Token>,
    write: Vec<bool>,
    prefill: usize,
    decode: usize,
    context: u64,
}

impl Rows {
    fn of(parts: &[Part], running: &[Sequence]) -> Self {
        let (mut tokens, mut write) = (Vec::new(), Vec::new());
        let (mut prefill, mut decode, mut context) = (0, 0, 0);
        for part in parts {
            let Some(sequence) = running.get(part.sequence) else { continue };
            tokens.extend(part.positions.iter().map(|p| sequence.token(*p as usize)));
            write.extend(part.positions.iter().map(|p| sequence.writes(*p)));
            context += part.positions.iter().map(|p| u64::from(*p) + 1).sum::<u64>();
            match sequence.is_prefilling() {
                true => prefill += part.positions.len(),
                false => decode += part.positions.len(),
            }
        }
        Self { tokens, write, prefill, decode, context }
    }

    fn slices<'a>(&'a self, parts: &'a [Part], running: &'a [Sequence]) -> Vec<Slice<'a>> {
        let (mut tokens, mut write) = (self.tokens.as_slice(), self.write.as_slice());
        let slice = |part: &'a Part| {
            let sequence = running.get(part.sequence)?;
            let count = part.positions.len();
            let (own_tokens, rest) = tokens.split_at_checked(count)?;
            tokens = rest;
            let (own_write, rest) = write.split_at_checked(count)?;
            write = rest;
            Some(Slice {
                tokens: own_tokens,
                positions: &part.positions,
                write: own_write,
                slots: sequence.slots(),
                logits: part.positions.last().is_some_and(|last| sequence.ends_with(*last)),
            })
        };
        parts.iter().filter_map(slice).collect()
    }

    fn measured(&self, elapsed: Duration) -> Step {
        Step { prefill: self.prefill, decode: self.decode, context: self.context, elapsed }
    }
}
