//! A block manager in small: leases slots, answers operations, and looks at every output.

use crate::*;
use protocol::block::{ContentDigest, Generation, SlotId, SlotRef};
use protocol::hash::{HASH_VERSION, RoutingNamespace, Token};
use protocol::id::{EngineId, NodeId, RequestId};
use protocol::machine::Machine;
use protocol::op::{
    Arriving, ArrivingFrom, EngineEvent, EngineOp, EngineSpec, Grant, LeaseId, OpId,
};
use protocol::prompt::{FinishReason, Limits, PromptSources, Refusal, Sampling, StreamItem};
use protocol::time::{Span, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub(crate) const BLOCK: usize = 16;
pub(crate) const STOP: Token = Token(9);

pub(crate) fn config(slots: u32) -> Config {
    let routing = RoutingNamespace {
        weights: [1; 32],
        tokenizer: [2; 32],
        lora: None,
        hash_version: HASH_VERSION,
    };
    let spec = EngineSpec {
        engine: EngineId(0),
        kind: "mock".into(),
        model: "m".into(),
        routing,
        storage: storage_namespace(BLOCK as u32, 64),
        slots,
        context: 1_000,
    };
    Config::new(spec, 5_000, STOP)
}

pub(crate) fn tokens(seed: u32, count: usize) -> Vec<Token> {
    (0..count as u32).map(|i| Token((seed * 131 + i * 7) % 4_000 + 10)).collect()
}

/// What DRAM slots hold: their number is an index into this.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dram {
    Holds(Pattern),
    Torn,
    Stale,
    Changed,
}

/// What came out for a lease.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) items: Vec<StreamItem>,
    pub(crate) refused: Option<Refusal>,
    pub(crate) done: bool,
}

impl Seen {
    pub(crate) fn ends(&self) -> usize {
        let end = |i: &&StreamItem| matches!(i, StreamItem::Finished(_) | StreamItem::Failed(_));
        self.items.iter().filter(end).count() + usize::from(self.refused.is_some())
    }

    pub(crate) fn chunks(&self) -> Vec<Vec<Token>> {
        let chunk = |item: &StreamItem| match item {
            StreamItem::Tokens(tokens) => Some(tokens.clone()),
            _ => None,
        };
        self.items.iter().filter_map(chunk).collect()
    }

    pub(crate) fn answer(&self) -> Vec<Token> {
        self.chunks().concat()
    }

    pub(crate) fn reason(&self) -> Option<FinishReason> {
        match self.items.last() {
            Some(StreamItem::Finished(finish)) => Some(finish.reason),
            _ => None,
        }
    }

    pub(crate) fn sources(&self) -> PromptSources {
        match self.items.last() {
            Some(StreamItem::Finished(finish)) => finish.prompt,
            other => panic!("not finished: {other:?}"),
        }
    }
}

pub(crate) struct Rig {
    pub(crate) engine: Engine,
    pub(crate) now: Time,
    pub(crate) seen: BTreeMap<LeaseId, Seen>,
    pub(crate) events: Vec<EngineEvent>,
    pub(crate) dram: Vec<Dram>,
    /// Whether more slots are given when asked for.
    pub(crate) generous: bool,
    /// Everything that came out, in words.
    pub(crate) log: Vec<String>,
    free: VecDeque<SlotRef>,
    leased: BTreeMap<LeaseId, Vec<SlotRef>>,
    /// Sealed blocks per lease, by index.
    pub(crate) sealed: BTreeMap<LeaseId, u32>,
    /// Leases whose slots are kept when they are done.
    kept: BTreeSet<LeaseId>,
    next: u64,
}

impl Rig {
    pub(crate) fn new(config: Config) -> Self {
        let slot = |slot| SlotRef { slot: SlotId(slot), generation: Generation(1) };
        let free = (0..config.spec.slots).map(slot).collect();
        Self {
            engine: Engine::new(config).unwrap(),
            now: Time::ZERO,
            seen: BTreeMap::new(),
            events: Vec::new(),
            dram: Vec::new(),
            generous: true,
            log: Vec::new(),
            free,
            leased: BTreeMap::new(),
            sealed: BTreeMap::new(),
            kept: BTreeSet::new(),
            next: 0,
        }
    }

    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    fn take(&mut self, count: usize) -> Option<Vec<SlotRef>> {
        (self.free.len() >= count).then(|| self.free.drain(..count).collect())
    }

    /// A job over new slots for its prompt and one more; `None` when there is no room. Its first
    /// blocks are those that a kept lease sealed, when one is given.
    pub(crate) fn job(
        &mut self,
        prompt: Vec<Token>,
        max_tokens: u32,
        shared: Option<(LeaseId, u32)>,
    ) -> Option<Job> {
        let blocks = prompt.len().div_ceil(BLOCK) + 1;
        let mut slots = Vec::new();
        if let Some((lease, ready)) = shared {
            slots.extend(self.leased[&lease].iter().take(ready as usize));
        }
        let ready = slots.len();
        slots.extend(self.take(blocks.saturating_sub(ready))?);
        self.next += 1;
        let lease = LeaseId(self.next);
        self.leased.insert(lease, slots[ready..].to_vec());
        Some(Job {
            request: RequestId(u128::from(self.next)),
            grant: Grant { lease, slots, ready: ready as u32, arriving: Vec::new() },
            prompt: prompt.into(),
            sampling: Sampling::GREEDY,
            limits: Limits { max_tokens, stop_tokens: vec![STOP] },
            priority: 0,
            arrived: self.now,
            serving_node: NodeId([7; 32]),
            script: None,
            resumed: 0,
        })
    }

    /// Its slots stay when it is done, so that others can share them.
    pub(crate) fn keep(&mut self, lease: LeaseId) {
        self.kept.insert(lease);
    }

    pub(crate) fn submit(&mut self, job: Job) -> LeaseId {
        let lease = job.grant.lease;
        self.seen.insert(lease, Seen::default());
        self.input(In::Submit(Box::new(job)));
        lease
    }

    /// Runs one job alone.
    pub(crate) fn run(&mut self, prompt: Vec<Token>, max_tokens: u32) -> LeaseId {
        let job = self.job(prompt, max_tokens, None).unwrap();
        let lease = self.submit(job);
        self.settle();
        lease
    }

    /// Says that blocks arrive, and what the DRAM slots they come through hold.
    pub(crate) fn arriving(&mut self, job: &mut Job, indexes: &[u32], within: Span) {
        job.grant.arriving = indexes
            .iter()
            .map(|index| Arriving {
                index: *index,
                from: ArrivingFrom::Dram,
                deadline: self.now + within,
            })
            .collect();
    }

    /// An import of one block of a lease that holds `slots`.
    pub(crate) fn import(&mut self, job: &Job, index: u32, holds: Dram) -> OpId {
        self.dram.push(holds);
        let dram = self.dram.len() as u32 - 1;
        let op = OpId(u64::from(dram));
        let from = SlotRef { slot: SlotId(dram), generation: Generation(0) };
        let to = job.grant.slots[index as usize];
        let lease = job.grant.lease;
        self.input(In::Op(EngineOp::Import {
            op,
            lease,
            index,
            to,
            from,
            digest: ContentDigest([0; 32]),
        }));
        op
    }

    pub(crate) fn input(&mut self, input: In) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let mut out = Vec::new();
            self.engine.handle(self.now, input, &mut out);
            self.take_in(out, &mut inputs);
        }
    }

    pub(crate) fn tick(&mut self, now: Time) {
        assert!(now >= self.now);
        self.now = now;
        let mut out = Vec::new();
        self.engine.tick(now, &mut out);
        let mut inputs = VecDeque::new();
        self.take_in(out, &mut inputs);
        inputs.into_iter().for_each(|input| self.input(input));
    }

    /// Lets so many milliseconds pass.
    pub(crate) fn wait(&mut self, ms: u64) {
        let until = self.now + Span::millis(ms);
        while let Some(deadline) = self.engine.deadline().filter(|deadline| *deadline < until) {
            self.tick(deadline.max(self.now));
        }
        self.now = until;
    }

    /// Lets time pass until nothing wants to happen.
    pub(crate) fn settle(&mut self) {
        let mut ticks = 0;
        while let Some(deadline) = self.engine.deadline() {
            self.tick(deadline.max(self.now));
            ticks += 1;
            assert!(ticks < 200_000, "never quiet");
        }
    }

    fn take_in(&mut self, out: Vec<Out>, inputs: &mut VecDeque<In>) {
        for out in out {
            self.log.push(format!("{:?} {out:?}", self.now));
            match out {
                Out::Item(lease, item) => {
                    let seen = self.seen.get_mut(&lease).unwrap();
                    assert!(!seen.done && seen.ends() == 0, "{lease:?}: {item:?} after the end");
                    seen.items.push(item);
                }
                Out::Refused(lease, refusal) => {
                    let seen = self.seen.get_mut(&lease).unwrap();
                    assert!(!seen.done && seen.items.is_empty());
                    seen.refused = Some(refusal);
                }
                Out::Done(lease) => self.done(lease),
                Out::Event(event) => self.event(event, inputs),
                Out::Write { op, pattern, .. } => {
                    let mut bytes = [0; 64];
                    pattern.fill(&mut bytes);
                    let digest = Some(ContentDigest::of(&bytes));
                    inputs.push_back(In::Written { op, digest });
                }
                Out::Read { op, from, .. } => {
                    inputs.push_back(match self.dram[from.slot.0 as usize] {
                        Dram::Holds(pattern) => In::Read { op, pattern: Some(pattern) },
                        Dram::Torn => In::Read { op, pattern: None },
                        Dram::Stale => In::Unreadable(op),
                        Dram::Changed => In::Corrupt(op),
                    });
                }
            }
        }
    }

    fn done(&mut self, lease: LeaseId) {
        let seen = self.seen.get_mut(&lease).unwrap();
        assert!(!seen.done, "{lease:?} done twice");
        seen.done = true;
        if !self.kept.contains(&lease) {
            for slot in self.leased.remove(&lease).unwrap_or_default() {
                // A later write by the old lease would be counted as one of an older life.
                let generation = Generation(slot.generation.0 + 1);
                self.free.push_back(SlotRef { generation, ..slot });
            }
        }
    }

    fn event(&mut self, event: EngineEvent, inputs: &mut VecDeque<In>) {
        match &event {
            EngineEvent::NeedSlots { lease, blocks } => {
                let slots = match self.generous {
                    true => self.take(*blocks as usize).unwrap_or_default(),
                    false => Vec::new(),
                };
                self.leased.get_mut(lease).unwrap().extend(&slots);
                inputs.push_back(In::Op(EngineOp::Grant { lease: *lease, slots }));
            }
            EngineEvent::Sealed { lease, index, tokens } => {
                assert_eq!(tokens.len(), BLOCK);
                assert!(!self.seen[lease].done, "sealed after the end");
                let before = self.sealed.insert(*lease, *index);
                assert!(before.is_none_or(|before| before < *index), "not in order");
            }
            _ => {}
        }
        self.events.push(event);
    }
}

/// The patterns of a prompt's blocks.
pub(crate) fn chain(tokens: &[Token]) -> Vec<Pattern> {
    let mut chain: Vec<Pattern> = Vec::new();
    for block in tokens.chunks_exact(BLOCK) {
        chain.push(Pattern::of(chain.last().copied(), block));
    }
    chain
}

/// The answer to a prompt that is computed whole, alone.
pub(crate) fn reference(prompt: &[Token], max_tokens: u32) -> Vec<Token> {
    let mut rig = Rig::new(config(128));
    let lease = rig.run(prompt.to_vec(), max_tokens);
    rig.seen[&lease].answer()
}
