//! A small cluster for tests: a router that is fed members, batches and paths.

use crate::machine::{Config, In, Out, Router};
use crate::mix::mix;
use crate::{IndexReader, Loads, Params, Policy, Query, index};
use protocol::block::StorageId;
use protocol::card::BlobDigest;
use protocol::event::*;
use protocol::hash::PrefixHash;
use protocol::id::{EngineId, Incarnation, NodeId};
use protocol::machine::Machine;
use protocol::plan::Placed;
use protocol::prompt::Refusal;
use protocol::sign::Keypair;
use protocol::time::{Span, Time};
use protocol::wire;
use std::collections::BTreeMap;

pub(crate) const STORAGE: StorageId = StorageId(7);
pub(crate) const ROUTING: [u8; 32] = [1; 32];
pub(crate) const ENGINE: Holder = Holder::Engine(EngineId(0));
pub(crate) const FIRST: Incarnation = Incarnation { counter: 1, nonce: 11 };

pub(crate) fn node(n: u8) -> NodeId {
    NodeId([n; 32])
}

pub(crate) fn ms(ms: u64) -> Time {
    Time::ZERO + Span::millis(ms)
}

/// Names per 16 tokens of a prompt; prompts share the names of their first `shared` tokens.
pub(crate) fn prompt(id: u64, shared: u32, tokens: u32) -> Vec<PrefixHash> {
    (0..tokens / 16)
        .map(|at| {
            let family = if at < shared / 16 { 0 } else { id };
            let high = mix(mix(family) ^ u64::from(at));
            PrefixHash((u128::from(high) << 64) | u128::from(mix(high ^ 1)))
        })
        .collect()
}

/// 10,000 tokens per second, 10 ms per step, a pool of 16,384 blocks of 16 tokens and 160 kB.
pub(crate) fn report() -> EngineReport {
    EngineReport {
        engine: EngineId(0),
        kind: "mock".into(),
        model: "m".into(),
        routing: ROUTING,
        card: BlobDigest([0; 32]),
        storage: STORAGE,
        block_bytes: 160_000,
        block_tokens: 16,
        context: 131_072,
        load: EngineLoad {
            total_blocks: 16_384,
            prefill_rate: 10_000.0,
            decode_ms: 10.0,
            ..EngineLoad::default()
        },
    }
}

pub(crate) fn view(n: u8) -> MemberView {
    MemberView {
        node: node(n),
        incarnation: FIRST,
        state: MemberState::Alive,
        contact: Contact::default(),
        engines: vec![report()],
        owed_bytes: 0,
        blocks: [0; 3],
    }
}

/// A batch with the digest that `set` has after it. The router does not check signatures.
pub(crate) fn batch(n: u8, seq: u64, runs: &[EventRun], digest: SetDigest) -> EventBatch {
    EventBatch {
        origin: node(n),
        incarnation: FIRST,
        seq: Seq(seq),
        previous: [0; 32],
        digest,
        payload: wire::encode(&runs.to_vec()).unwrap(),
        signature: Keypair::from_seed(&[n; 32]).sign(b""),
    }
}

/// A run of a prompt's granules from `from` up to `to` tokens.
pub(crate) fn stored(holder: Holder, prompt: &[PrefixHash], from: u32, to: u32) -> EventRun {
    let names = index::granules(&prompt[..to as usize / 16]);
    let hashes = names[from as usize / 64..].to_vec();
    EventRun::Stored { storage: STORAGE, holder, first: from + 64, hashes }
}

pub(crate) fn removed(holder: Holder, prompt: &[PrefixHash], from: u32, to: u32) -> EventRun {
    let EventRun::Stored { storage, holder, first, hashes } = stored(holder, prompt, from, to)
    else {
        unreachable!()
    };
    EventRun::Removed { storage, holder, first, hashes }
}

/// A router as node 0 sees the cluster.
pub(crate) struct World {
    pub(crate) router: Router,
    pub(crate) index: IndexReader,
    pub(crate) loads: Loads,
    pub(crate) now: Time,
    seqs: BTreeMap<u8, u64>,
}

impl World {
    pub(crate) fn new(nodes: u8, params: Params) -> Self {
        let config = Config { params, ..Config::new(node(0), FIRST) };
        let (router, index, loads) = Router::new(config);
        let mut world = Self { router, index, loads, now: ms(1_000), seqs: BTreeMap::new() };
        for n in 0..nodes {
            world.member(view(n));
            if n > 0 {
                world.path(n, 0.2, 1e9);
            }
        }
        world
    }

    pub(crate) fn handle(&mut self, input: In) -> Vec<Out> {
        let mut outbox = Vec::new();
        self.router.handle(self.now, input, &mut outbox);
        outbox
    }

    pub(crate) fn member(&mut self, view: MemberView) {
        self.handle(In::Member(Box::new(view)));
    }

    /// Changes a member's last view.
    pub(crate) fn change(&mut self, n: u8, change: impl FnOnce(&mut MemberView)) {
        let mut view = self.loads.node(&node(n)).unwrap().view.clone();
        change(&mut view);
        self.member(view);
    }

    pub(crate) fn load(&mut self, n: u8, change: impl FnOnce(&mut EngineLoad)) {
        self.change(n, |view| change(&mut view.engines[0].load));
    }

    pub(crate) fn path(&mut self, n: u8, rtt_ms: f32, bytes_s: f64) {
        self.handle(In::Path { node: node(n), rtt_ms, bytes_s, reachable: true });
    }

    pub(crate) fn learn(&mut self, n: u8, runs: &[EventRun]) -> Vec<Out> {
        let seq = self.seqs.entry(n).or_default();
        *seq += 1;
        let batch = batch(n, *seq, runs, SetDigest::default());
        self.handle(In::Learn(Box::new(batch)))
    }

    /// Node `n` holds the first `tokens` of the prompt in its engine and its DRAM.
    pub(crate) fn cache(&mut self, n: u8, prompt: &[PrefixHash], tokens: u32) {
        self.learn(
            n,
            &[stored(ENGINE, prompt, 0, tokens), stored(Holder::Dram, prompt, 0, tokens)],
        );
    }

    pub(crate) fn place(
        &self,
        prompt: &[PrefixHash],
        tokens: u32,
        policy: Policy,
        seed: u64,
    ) -> Result<Placed, Refusal> {
        crate::place(&self.index, &self.loads, &query(prompt, tokens), policy, seed, self.now)
    }

    /// Where [`Policy::Kv`] puts the prompt: node number and plan.
    pub(crate) fn kv(&self, prompt: &[PrefixHash], tokens: u32, seed: u64) -> (u8, Placed) {
        let placed = self.place(prompt, tokens, Policy::Kv, seed).unwrap();
        (placed.plan.prefill.node.0[0], placed)
    }
}

pub(crate) fn query(prompt: &[PrefixHash], tokens: u32) -> Query<'_> {
    Query {
        routing: ROUTING,
        model: "m",
        prefix: prompt,
        tokens,
        osl: None,
        session: None,
        me: node(0),
        avoid: &[],
    }
}
