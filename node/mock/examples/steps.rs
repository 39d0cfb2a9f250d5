//! How fast the machine itself is: steps, tokens and stream items per second of one core, with a
//! full batch of requests of 8,192 prompt tokens, half of them cached, and 256 answer tokens.
//!
//! `cargo run --release -p mock --example steps`
#![allow(clippy::disallowed_methods, clippy::indexing_slicing, clippy::expect_used)] // measures with the clock

use mock::{Config, Engine, In, Job, Out, storage_namespace};
use protocol::block::{Generation, SlotId, SlotRef};
use protocol::hash::{HASH_VERSION, RoutingNamespace, Token};
use protocol::id::{EngineId, NodeId, RequestId};
use protocol::machine::Machine;
use protocol::op::{EngineEvent, EngineOp, EngineSpec, Grant, LeaseId};
use protocol::prompt::{Limits, Sampling};
use protocol::time::Time;
use std::collections::BTreeMap;
use std::time::Instant;

const PROMPT: usize = 8192;
const ANSWER: u32 = 256;
const BLOCK: usize = 16;
const BATCH: u32 = 64;
const REQUESTS: u64 = 6400;

fn main() {
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
        slots: BATCH * 600,
        context: 32_768,
    };
    let mut config = Config::new(spec, 50_000, Token(0));
    config.max_batch = BATCH;
    let mut world = World {
        engine: Engine::new(config).expect("the settings are sound"),
        free: (0..BATCH * 600)
            .map(|slot| SlotRef { slot: SlotId(slot), generation: Generation(1) })
            .collect(),
        leased: BTreeMap::new(),
        shared: Vec::new(),
        items: 0,
    };
    let mut now = Time::ZERO;
    // The first request fills the blocks that the others share.
    world.submit(now, 0);
    while let Some(deadline) = world.engine.deadline() {
        now = deadline.max(now);
        world.tick(now);
    }
    let (before, began) = (world.engine.stats(), Instant::now());
    let mut next = 1;
    while world.engine.stats().finished < REQUESTS {
        while world.leased.len() < BATCH as usize + 1 && next < REQUESTS {
            world.submit(now, next);
            next += 1;
        }
        now = world.engine.deadline().expect("requests run").max(now);
        world.tick(now);
    }
    let (stats, took) = (world.engine.stats(), began.elapsed().as_secs_f64());
    let rate = |count: u64| count as f64 / took;
    println!(
        "{:.0} steps/s, {:.2} M tokens/s ({:.2} M prefill, {:.2} M decode), {:.2} M items/s; \
         {:.0} virtual s in {took:.2} s; {stats:?}",
        rate(stats.steps - before.steps),
        rate(stats.prefill_tokens + stats.decode_tokens) / 1e6,
        rate(stats.prefill_tokens) / 1e6,
        rate(stats.decode_tokens) / 1e6,
        rate(world.items) / 1e6,
        now.0 as f64 / 1e9,
    );
}

struct World {
    engine: Engine,
    free: Vec<SlotRef>,
    leased: BTreeMap<LeaseId, Vec<SlotRef>>,
    shared: Vec<SlotRef>,
    items: u64,
}

impl World {
    fn submit(&mut self, now: Time, number: u64) {
        let lease = LeaseId(number);
        let own = PROMPT / BLOCK - self.shared.len();
        let slots = self.free.split_off(self.free.len() - own);
        let token = |i: usize| {
            let own = i >= PROMPT / 2;
            Token((i as u64 * 31 + if own { number * 977 } else { 0 }) as u32 % 49_000 + 1)
        };
        let mut job = Job {
            request: RequestId(number.into()),
            grant: Grant {
                lease,
                slots: self.shared.iter().chain(&slots).copied().collect(),
                ready: self.shared.len() as u32,
                arriving: Vec::new(),
            },
            prompt: (0..PROMPT).map(token).collect::<Vec<_>>().into(),
            sampling: Sampling::GREEDY,
            limits: Limits { max_tokens: ANSWER, stop_tokens: vec![Token(0)] },
            priority: 0,
            arrived: now,
            serving_node: NodeId([0; 32]),
            script: None,
            resumed: 0,
        };
        if number == 0 {
            self.shared = slots[..PROMPT / BLOCK / 2].to_vec();
            job.limits.max_tokens = 1;
        }
        let own = if number == 0 { slots[self.shared.len()..].to_vec() } else { slots };
        self.leased.insert(lease, own);
        self.input(now, In::Submit(Box::new(job)));
    }

    fn input(&mut self, now: Time, input: In) {
        let mut out = Vec::new();
        self.engine.handle(now, input, &mut out);
        self.take_in(now, out);
    }

    fn tick(&mut self, now: Time) {
        let mut out = Vec::new();
        self.engine.tick(now, &mut out);
        self.take_in(now, out);
    }

    fn take_in(&mut self, now: Time, out: Vec<Out>) {
        for out in out {
            match out {
                Out::Item(..) => self.items += 1,
                Out::Event(EngineEvent::NeedSlots { lease, blocks }) => {
                    let at = self.free.len().saturating_sub(blocks as usize);
                    let slots = self.free.split_off(at);
                    if let Some(leased) = self.leased.get_mut(&lease) {
                        leased.extend(&slots);
                    }
                    self.input(now, In::Op(EngineOp::Grant { lease, slots }));
                }
                Out::Done(lease) => {
                    for mut slot in self.leased.remove(&lease).unwrap_or_default() {
                        slot.generation.0 += 1;
                        self.free.push(slot);
                    }
                }
                _ => {}
            }
        }
    }
}
