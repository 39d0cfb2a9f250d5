//! The machine.

mod ops;
mod report;
mod step;
#[cfg(test)]
mod tests;

use crate::early::Early;
use crate::sequence::{Ending, Sequence};
use crate::slots::Slots;
use crate::{Config, ConfigError, In, Job, Out, Pattern, Stats};
use protocol::block::{SlotId, SlotRef};
use protocol::machine::Machine;
use protocol::op::{Copied, EngineEvent, EngineSpec, LeaseId, OpId};
use protocol::prompt::{Finish, FinishReason, Refusal, StreamItem};
use protocol::time::{Span, Time};
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;
use report::Reporter;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use step::Step;

/// Jobs that may wait; beyond it submitters are told to come again.
const JOBS_MAX: usize = 1024;
/// After so long.
const RETRY_AFTER: Span = Span::secs(1);

/// Order of sequences everywhere: higher priority, then earlier arrival, then as they came.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Place {
    priority: Reverse<i32>,
    arrived: Time,
    number: u64,
}

/// A copy from DRAM that is being read.
#[derive(Clone, Copy)]
struct Import {
    lease: LeaseId,
    index: u32,
    to: SlotRef,
}

/// A mock engine. See the crate's documentation.
pub struct Engine {
    config: Config,
    block: usize,
    slots: Slots,
    waiting: BTreeMap<Place, Box<Sequence>>,
    running: BTreeMap<Place, Box<Sequence>>,
    /// Of each lease in either map.
    places: BTreeMap<LeaseId, Place>,
    /// Jobs so far: the next one's number.
    jobs: u64,
    early: Early,
    reads: BTreeMap<OpId, Import>,
    writes: BTreeSet<OpId>,
    /// What is being computed.
    step: Option<Step>,
    /// When a pause may end; known while nothing is computed.
    wake: Option<Time>,
    reporter: Reporter,
    rng: ChaCha8Rng,
    stats: Stats,
}

impl Engine {
    /// An engine with an empty pool.
    ///
    /// # Errors
    /// Settings that make no sense.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            block: config.spec.storage.block_tokens as usize,
            slots: Slots::new(config.spec.slots),
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            places: BTreeMap::new(),
            jobs: 0,
            early: Early::default(),
            reads: BTreeMap::new(),
            writes: BTreeSet::new(),
            step: None,
            wake: None,
            reporter: Reporter::new(&config),
            rng: ChaCha8Rng::seed_from_u64(config.seed),
            stats: Stats::default(),
            config,
        })
    }

    /// What it is.
    pub fn spec(&self) -> &EngineSpec {
        &self.config.spec
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Whether a step is being computed.
    pub fn is_busy(&self) -> bool {
        self.step.is_some()
    }

    /// What a slot of the pool holds, when it holds a whole block.
    pub fn holds(&self, slot: SlotId) -> Option<Pattern> {
        self.slots.pattern(SlotRef { slot, generation: Default::default() })
    }

    fn sequence(&mut self, lease: LeaseId) -> Option<&mut Sequence> {
        let place = self.places.get(&lease)?;
        let sequence = match self.running.get_mut(place) {
            Some(sequence) => Some(sequence),
            None => self.waiting.get_mut(place),
        };
        sequence.map(Box::as_mut)
    }

    fn submit(&mut self, now: Time, mut job: Box<Job>, out: &mut Vec<Out>) {
        let lease = job.grant.lease;
        if self.places.contains_key(&lease) {
            // Nothing can be said about one of the two without saying it about the other.
            self.stats.violations += 1;
            return;
        }
        if let Err(refusal) = self.admissible(&job) {
            self.stats.refused += 1;
            out.push(Out::Refused(lease, refusal));
            for op in self.early.claim(lease) {
                self.void(op, out);
            }
            self.done(now, lease, out);
            return;
        }
        self.stats.jobs += 1;
        self.jobs += 1;
        let place =
            Place { priority: Reverse(job.priority), arrived: job.arrived, number: self.jobs };
        job.script = job.script.or_else(|| self.config.script.clone());
        let context = self.config.spec.context as usize;
        let sequence = Sequence::new(*job, self.block, context);
        self.places.insert(lease, place);
        self.waiting.insert(place, Box::new(sequence));
        for op in self.early.claim(lease) {
            self.op(now, op, out);
        }
    }

    fn admissible(&mut self, job: &Job) -> Result<(), Refusal> {
        self.config.spec.accepts(self.config.vocabulary, &job.prompt, &job.grant)?;
        if self.waiting.len() >= JOBS_MAX {
            return Err(Refusal::Busy { retry_after: RETRY_AFTER });
        }
        let ready = (job.prompt.len() / self.block).min(job.grant.ready as usize);
        let lost = |slot: &&SlotRef| self.slots.pattern(**slot).is_none();
        if job.grant.slots.iter().take(ready).any(|slot| lost(&slot)) {
            self.stats.violations += 1;
            return Err(Refusal::Failed("a block said to be ready is not in its slot".into()));
        }
        Ok(())
    }

    /// Ends a sequence from outside: now, or when the step that computes it has ended.
    fn end_early(&mut self, now: Time, lease: LeaseId, ending: Ending, out: &mut Vec<Out>) {
        let Some(sequence) = self.sequence(lease) else { return };
        if sequence.in_step {
            sequence.ending = Some(ending);
            return;
        }
        if let Some(place) = self.places.get(&lease).copied() {
            self.end_as(now, place, ending, out);
        }
    }

    fn end_as(&mut self, now: Time, place: Place, ending: Ending, out: &mut Vec<Out>) {
        match ending {
            Ending::Aborted => self.finish(now, place, FinishReason::Cancelled, 0, out),
            Ending::Gone => {
                if let Some(sequence) = self.remove(place) {
                    self.stats.cancelled += 1;
                    self.done(now, sequence.lease, out);
                }
            }
        }
    }

    /// Ends a sequence: its last items, its slots. `hidden` tokens were generated but not shown.
    fn finish(
        &mut self,
        now: Time,
        place: Place,
        reason: FinishReason,
        hidden: u32,
        out: &mut Vec<Out>,
    ) {
        let Some(mut sequence) = self.remove(place) else { return };
        match reason {
            FinishReason::Cancelled => self.stats.cancelled += 1,
            _ => self.stats.finished += 1,
        }
        let lease = sequence.lease;
        let held = sequence.take_held();
        if !held.is_empty() {
            out.push(Out::Item(lease, StreamItem::Tokens(held)));
        }
        let prompt = sequence.sources();
        let output_tokens = sequence.generated() as u32 + hidden;
        let finish = Finish { reason, prompt, output_tokens };
        out.push(Out::Item(lease, StreamItem::Finished(finish)));
        self.done(now, lease, out);
    }

    /// Takes a sequence out and looks whether what it relied on is still there.
    fn remove(&mut self, place: Place) -> Option<Box<Sequence>> {
        let sequence = match self.running.remove(&place) {
            Some(sequence) => {
                self.slots.let_go(sequence.slots());
                sequence
            }
            None => self.waiting.remove(&place)?,
        };
        self.places.remove(&sequence.lease);
        let changed = sequence.relied_on().filter(|(slot, used)| {
            // Bytes that were no pattern are remembered as what they were taken for.
            self.slots.pattern(*slot).unwrap_or(Pattern::TORN) != *used
        });
        self.stats.overwritten += changed.count() as u64;
        Some(sequence)
    }

    /// The last word about a lease. Its slots come back only when it is released, some time later;
    /// the others wait for them instead of ending one after the other.
    fn done(&mut self, now: Time, lease: LeaseId, out: &mut Vec<Out>) {
        for op in self.early.ended(lease) {
            self.void(op, out);
        }
        self.running.values_mut().for_each(|sequence| sequence.room_comes(now));
        out.push(Out::Done(lease));
    }

    fn restart(&mut self, out: &mut Vec<Out>) {
        let reason = "the engine's process died and was started again";
        self.step = None;
        self.reads.clear();
        self.writes.clear();
        self.slots.clear();
        self.early.forget();
        self.places.clear();
        let running = std::mem::take(&mut self.running).into_values();
        let all: Vec<LeaseId> = running
            .chain(std::mem::take(&mut self.waiting).into_values())
            .map(|s| s.lease)
            .collect();
        for lease in &all {
            self.stats.failed += 1;
            let failed = StreamItem::Failed(Refusal::Failed(reason.into()));
            out.push(Out::Item(*lease, failed));
            let _void = self.early.ended(*lease);
        }
        out.push(Out::Event(EngineEvent::Died(reason.into())));
        out.extend(all.into_iter().map(Out::Done));
    }

    fn input(&mut self, now: Time, input: In, out: &mut Vec<Out>) {
        match input {
            In::Submit(job) => self.submit(now, job, out),
            In::Op(op) => self.op(now, op, out),
            In::Gone(lease) => self.end_early(now, lease, Ending::Gone, out),
            In::Blocked(lease, blocked) => {
                if let Some(sequence) = self.sequence(lease) {
                    sequence.blocked = blocked;
                }
            }
            In::Written { op, digest } => {
                if self.writes.remove(&op) {
                    self.stats.exported += u64::from(digest.is_some());
                    out.push(Out::Event(EngineEvent::Exported { op, digest }));
                }
            }
            In::Read { op, pattern } => self.import_read(op, Ok(pattern), out),
            In::Unreadable(op) => self.import_read(op, Err(Copied::Unused), out),
            In::Corrupt(op) => self.import_read(op, Err(Copied::Corrupt), out),
            In::Restart => self.restart(out),
        }
    }
}

impl Machine for Engine {
    type In = In;
    type Out = Out;

    fn handle(&mut self, now: Time, input: In, outbox: &mut Vec<Out>) {
        self.advance(now, outbox);
        self.reporter.changed();
        self.input(now, input, outbox);
        self.plan(now, outbox);
        self.report(now, outbox);
    }

    fn tick(&mut self, now: Time, outbox: &mut Vec<Out>) {
        self.advance(now, outbox);
        self.plan(now, outbox);
        self.report(now, outbox);
    }

    fn deadline(&self) -> Option<Time> {
        let next = self.step.as_ref().map(Step::ends).or(self.wake);
        [next, self.reporter.due()].into_iter().flatten().min()
    }
}
