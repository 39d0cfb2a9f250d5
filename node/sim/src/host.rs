//! One simulated machine: what survives a crash, and what runs on it now.

use crate::ask::Ask;
use crate::blocks::{Fetching, Lending};
use crate::disk::Medium;
use crate::dram::Dram;
use crate::mail::Part;
use crate::net::StreamId;
use crate::run::Run;
use crate::scenario::{Scenario, ScenarioError};
use crate::topic::Seen;
use protocol::event::{Contact, EngineLoad};
use protocol::hash::{HASH_VERSION, PrefixHash, RoutingNamespace, Token};
use protocol::id::{EngineId, Incarnation, NodeId, RequestId};
use protocol::op::{EngineSpec, LeaseId, OpId, ReadId};
use protocol::sign::Keypair;
use protocol::time::{Span, Time};
use protocol::trust::{MemberCert, UnixTime, cluster_of};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Name of the model that every engine serves.
pub(crate) const MODEL: &str = "sim";
/// Number of token ids.
pub(crate) const VOCABULARY: u32 = 50_000;
/// Ends answers; never drawn by the engine.
pub(crate) const STOP: Token = Token(0);
/// The wall clock at the start of every run, in seconds.
pub(crate) const WALL_START: u64 = 1_000_000;

/// What a stream means to the node at its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Gossip with that host.
    Gossip(usize),
    /// The prompt that this entry node had served there.
    Ask(RequestId),
    /// A prompt that is served here; none before its first frame.
    Run(Option<u64>),
    /// Blocks come from there.
    Fetch(OpId),
    /// Blocks are lent there; none before the first frame.
    Lend(Option<ReadId>),
}

/// An engine and what its node knows of it.
pub(crate) struct EngineBox {
    pub(crate) machine: mock::Engine,
    pub(crate) load: EngineLoad,
    pub(crate) alive: bool,
    /// Grows with each restart: what was meant for an earlier process is not for this one.
    pub(crate) life: u32,
}

/// What a node measured of the way to another.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Way {
    /// Not asked before this.
    pub(crate) quarantined_until: Time,
    /// Bytes per second of blocks, smoothed; 0 until measured.
    pub(crate) bytes_s: f64,
    /// What the router was told last: round trip in microseconds, bandwidth, reachable.
    pub(crate) told: Option<(u64, u64, bool)>,
}

/// A running process.
pub(crate) struct Live {
    pub(crate) incarnation: Incarnation,
    pub(crate) gossip: gossip::Gossip,
    pub(crate) router: router::Router,
    pub(crate) index: router::IndexReader,
    pub(crate) loads: router::Loads,
    pub(crate) store: kvstore::Store,
    pub(crate) state: state::State,
    pub(crate) admission: router::admission::Queue,
    pub(crate) engines: BTreeMap<EngineId, EngineBox>,
    pub(crate) dram: Dram,
    /// No message is handled by a part before this.
    pub(crate) mail_at: BTreeMap<Part, Time>,
    pub(crate) ticks: BTreeMap<Part, Time>,
    pub(crate) roles: BTreeMap<StreamId, Role>,
    pub(crate) asks: BTreeMap<RequestId, Ask>,
    pub(crate) runs: BTreeMap<u64, Run>,
    pub(crate) run_of_lease: BTreeMap<LeaseId, u64>,
    pub(crate) run_of_request: BTreeMap<RequestId, u64>,
    pub(crate) fetches: BTreeMap<OpId, Fetching>,
    pub(crate) lendings: BTreeMap<ReadId, Lending>,
    pub(crate) roster: BTreeMap<NodeId, usize>,
    /// Gossip connections that it believes to have, by identity: twins count together.
    pub(crate) links: BTreeMap<NodeId, u32>,
    pub(crate) ways: BTreeMap<NodeId, Way>,
    pub(crate) owed_bytes: u64,
    pub(crate) seeds: u64,
    /// Of the topic.
    pub(crate) seen: Seen,
    last: u64,
}

impl Live {
    /// Names and length of an asked prompt.
    pub(crate) fn prefix_of(&self, id: &RequestId) -> Option<(Arc<Vec<PrefixHash>>, u32)> {
        self.asks.get(id).map(Ask::prefix)
    }

    /// A fresh number for a run, lease or read of this life.
    pub(crate) fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

/// A machine with its folder.
pub(crate) struct Host {
    pub(crate) keypair: Keypair,
    pub(crate) id: NodeId,
    /// Grows with each process that starts here; events of an earlier one are void.
    pub(crate) life: u64,
    /// Durable: the last boot counter.
    pub(crate) counter: u64,
    pub(crate) live: Option<Live>,
    /// The last incarnation, also while it is down.
    pub(crate) incarnation: Incarnation,
    pub(crate) asleep_until: Time,
    /// How far its wall clock is off, in seconds.
    pub(crate) clock_error: i64,
    /// Its disk, which outlives processes.
    pub(crate) medium: Medium,
    /// Its durable records, on the same disk.
    pub(crate) records: crate::records::Folder,
    /// A second process on a copy of another's folder.
    pub(crate) is_twin: bool,
    /// Tells lies.
    pub(crate) is_liar: bool,
    /// Its handshake names a newer version.
    pub(crate) is_newer: bool,
    /// Does not start again.
    pub(crate) is_gone: bool,
    /// When it stopped last.
    pub(crate) down_since: Time,
}

/// Where a host is found.
pub(crate) fn contact(host: usize) -> Contact {
    Contact { cluster: vec![host.to_string()], http: format!("http://{host}"), site: "sim".into() }
}

/// The host that a contact names.
pub(crate) fn host_of(contact: &Contact) -> Option<usize> {
    contact.cluster.first()?.parse().ok()
}

/// The identity of host number `n`.
pub(crate) fn keypair(n: usize) -> Keypair {
    let mut hasher = blake3::Hasher::new_derive_key("dynamo-node 2026-11 simulated identity");
    hasher.update(&(n as u64).to_le_bytes());
    Keypair::from_seed(hasher.finalize().as_bytes())
}

/// The cluster's issuing key.
pub(crate) fn issuer() -> Keypair {
    Keypair::from_seed(&[200; 32])
}

/// A member's certificate.
pub(crate) fn cert(keypair: &Keypair) -> MemberCert {
    let issuer = issuer();
    let cluster = cluster_of(&issuer.node());
    MemberCert::issue(&issuer, cluster, keypair.node(), Vec::new(), UnixTime(WALL_START))
}

/// The namespace of prefix names that all engines share.
pub(crate) fn routing() -> RoutingNamespace {
    RoutingNamespace {
        weights: [3; 32],
        tokenizer: [4; 32],
        lora: None,
        hash_version: HASH_VERSION,
    }
}

/// Digest of the namespace, as reports of engines name it.
pub(crate) fn routing_id() -> [u8; 32] {
    *blake3::hash(&protocol::wire::encode(&routing()).unwrap_or_default()).as_bytes()
}

/// What engine number `engine` of every node is.
pub(crate) fn spec(scenario: &Scenario, engine: EngineId) -> EngineSpec {
    let c = &scenario.cluster;
    EngineSpec {
        engine,
        kind: "mock".into(),
        model: MODEL.into(),
        routing: routing(),
        storage: mock::storage_namespace(c.block_tokens, u64::from(c.block_bytes)),
        slots: c.engine_slots,
        context: c.context,
    }
}

/// Settings of an engine.
pub(crate) fn engine_config(scenario: &Scenario, engine: EngineId) -> mock::Config {
    let c = &scenario.cluster;
    mock::Config {
        timing: mock::Timing { speedup_ratio: c.speedup, ..mock::Timing::default() },
        max_batch: c.max_batch,
        max_batched_tokens: c.max_batched_tokens,
        ..mock::Config::new(spec(scenario, engine), VOCABULARY, STOP)
    }
}

impl Host {
    pub(crate) fn new(keypair: Keypair, medium: Medium) -> Self {
        Self {
            id: keypair.node(),
            keypair,
            life: 0,
            counter: 0,
            live: None,
            incarnation: Incarnation::default(),
            asleep_until: Time::ZERO,
            clock_error: 0,
            medium,
            records: crate::records::Folder::default(),
            is_twin: false,
            is_liar: false,
            is_newer: false,
            is_gone: false,
            down_since: Time::ZERO,
        }
    }
}

/// Builds the machines of a process.
pub(crate) fn boot(
    scenario: &Scenario,
    keypair: &Keypair,
    host: usize,
    incarnation: Incarnation,
    (now, seed): (Time, u64),
    records: Vec<protocol::state::Record>,
) -> Result<Live, ScenarioError> {
    let c = &scenario.cluster;
    let wrong = |error: &dyn std::fmt::Display| ScenarioError::Machines(error.to_string());
    let ids: Vec<EngineId> = (0..c.engines).map(EngineId).collect();
    let mut engines = BTreeMap::new();
    for engine in &ids {
        let config = mock::Config { seed, ..engine_config(scenario, *engine) };
        let machine = mock::Engine::new(config).map_err(|error| wrong(&error))?;
        let load = machine.load();
        engines.insert(*engine, EngineBox { machine, load, alive: true, life: 0 });
    }
    let buggify = c.buggify.then_some(seed);
    let store = kvstore::Store::new(kvstore::Config {
        keypair: keypair.clone(),
        incarnation,
        engines: ids.iter().map(|engine| spec(scenario, *engine)).collect(),
        dram_slots: c.dram_slots,
        dram_slot_bytes: u64::from(c.block_bytes),
        nvme_slots: c.nvme_slots,
        decode_batch: 16 / c.block_tokens.clamp(1, 16),
        limits: kvstore::Limits::default(),
        buggify,
    })
    .map_err(|error| wrong(&error))?;
    let (router, index, loads) = router::Router::new(router::Config {
        max_nodes: 2048,
        params: params(scenario),
        buggify,
        ..router::Config::new(keypair.node(), incarnation)
    });
    let admission = router::admission::Queue::new(admission(scenario));
    Ok(Live {
        incarnation,
        gossip: gossip::Gossip::new(
            gossip_config(scenario, keypair, (host, incarnation, seed)),
            now,
        ),
        router,
        index,
        loads,
        store,
        state: state::State::new(state::Config::new(keypair.node(), incarnation), now, records),
        admission,
        engines,
        dram: Dram::new(c.dram_slots, c.block_bytes),
        mail_at: BTreeMap::new(),
        ticks: BTreeMap::new(),
        roles: BTreeMap::new(),
        asks: BTreeMap::new(),
        runs: BTreeMap::new(),
        run_of_lease: BTreeMap::new(),
        run_of_request: BTreeMap::new(),
        fetches: BTreeMap::new(),
        lendings: BTreeMap::new(),
        roster: BTreeMap::new(),
        links: BTreeMap::new(),
        ways: BTreeMap::new(),
        owed_bytes: 0,
        seeds: seed,
        seen: Seen::default(),
        last: 0,
    })
}

fn gossip_config(
    scenario: &Scenario,
    keypair: &Keypair,
    (host, incarnation, seed): (usize, Incarnation, u64),
) -> gossip::Config {
    let (issuer, cert, contact) = (issuer().node(), cert(keypair), contact(host));
    let config = gossip::Config::new(keypair.clone(), incarnation, cert, issuer, contact, seed);
    gossip::Config { buggify: scenario.cluster.buggify.then_some(seed), ..config }
}

fn params(scenario: &Scenario) -> router::Params {
    router::Params {
        bandwidth_bytes_s: scenario.network.bytes_s,
        rtt_ms: scenario.network.delay_max_us as f64 / 1e3,
        ..router::Params::default()
    }
}

/// Settings of a node's admission queue.
pub(crate) fn admission(scenario: &Scenario) -> router::admission::Config {
    router::admission::Config {
        window: scenario.cluster.max_batch,
        starvation: Span::millis(scenario.cluster.starvation_ms),
        ..router::admission::Config::default()
    }
}
