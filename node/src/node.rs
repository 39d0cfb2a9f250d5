//! A running node: what its tasks, listeners and actors share.

use crate::catalog::{Catalog, Offer, routing_id};
use crate::clock::Clock;
use crate::config::Config;
use crate::fault::Fault;
use crate::membership::{KnownMember, Membership, Roster};
use crate::queue::Queue;
use crate::run::LeaseCounter;
use crate::switchboard::Switchboard;
use frontend::ServedModel;
use protocol::card::BlobDigest;
use protocol::event::{Contact, EngineLoad, EngineReport, MemberState, MemberView};
use protocol::hash::{ClientSalt, RoutingKey, RoutingNamespace, tenant_salt};
use protocol::id::{EngineId, Incarnation, NodeId, TenantId};
use protocol::op::EngineSpec;
use protocol::plan::Placed;
use protocol::prompt::{Prompt, Refusal};
use protocol::trust::{JoinToken, LABEL_ISSUER, TokenFields, UnixTime};
use protocol::wire::join::JoinRefusal;
use router::{IndexReader, Loads, Policy, Query};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tiers::Records;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use zeroize::Zeroizing;

/// Longest wait of a node that leaves for other owners of its replicated records.
const HAND_OVER_WITHIN: Duration = Duration::from_secs(3);

/// An engine of this node as the node sees it.
pub(crate) struct LocalEngine {
    /// What it is.
    pub(crate) spec: EngineSpec,
    /// Its load, as it told last.
    load: Mutex<EngineLoad>,
    alive: AtomicBool,
    started: watch::Sender<bool>,
}

impl LocalEngine {
    /// A living engine without load.
    pub(crate) fn new(spec: EngineSpec) -> Self {
        let load = Mutex::new(EngineLoad::default());
        Self { spec, load, alive: AtomicBool::new(true), started: watch::Sender::new(false) }
    }
}

/// Router side of placement.
pub(crate) struct Placement {
    /// The block index.
    pub(crate) index: IndexReader,
    /// Loads and paths.
    pub(crate) loads: Loads,
    /// Policy of this entry node.
    pub(crate) policy: Policy,
}

/// Everything that a node's tasks share.
pub(crate) struct Node {
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    pub(crate) id: NodeId,
    pub(crate) incarnation: Incarnation,
    pub(crate) board: Arc<Switchboard>,
    pub(crate) roster: Roster,
    pub(crate) placement: Placement,
    pub(crate) queue: Queue,
    pub(crate) leases: LeaseCounter,
    pub(crate) dram: Option<Arc<kernels::Pool>>,
    pub(crate) engines: BTreeMap<EngineId, LocalEngine>,
    /// The models that requests are taken for.
    pub(crate) catalog: Catalog,
    /// Bounds the engine's events in the block manager's mailbox.
    pub(crate) engine_mail: Arc<Semaphore>,
    /// Bounds frames of peers in the gossip machine's mailbox.
    pub(crate) gossip_mail: Arc<Semaphore>,
    /// Bounds frames of peers about replicated records in their machine's mailbox.
    pub(crate) state_mail: Arc<Semaphore>,
    /// Cancelled when the node stops.
    pub(crate) stop: CancellationToken,
    /// Every task that outlives its caller.
    pub(crate) tasks: TaskTracker,
    pub(crate) records: Arc<Records>,
    /// The cluster's replicated records.
    #[allow(dead_code)] // stored responses are the first to use it
    pub(crate) state: crate::state::StateHandle,
    pub(crate) membership: RwLock<Membership>,
    pub(crate) contact: RwLock<Contact>,
    pub(crate) views: RwLock<BTreeMap<NodeId, MemberView>>,
    pub(crate) transfer: Arc<transfer::Transfer>,
    pub(crate) admin_key: Zeroizing<String>,
    pub(crate) draining: AtomicBool,
    /// Bytes lent to peers that read them now.
    pub(crate) owed: Arc<AtomicU64>,
    pub(crate) tally: crate::metrics::Tally,
    /// Why the node stops, when something went wrong.
    pub(crate) fault: Mutex<Option<Fault>>,
    pub(crate) seeds: AtomicU64,
}

fn read<T>(lock: &RwLock<T>) -> std::sync::RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

impl Node {
    /// A copy of the membership.
    pub(crate) fn membership(&self) -> Membership {
        read(&self.membership).clone()
    }

    /// Where this node can be reached.
    pub(crate) fn contact(&self) -> Contact {
        read(&self.contact).clone()
    }

    /// Compares in constant time.
    pub(crate) fn admin_key_is(&self, key: &str) -> bool {
        blake3::hash(key.as_bytes()) == blake3::hash(self.admin_key.as_bytes())
    }

    /// True while the node finishes what it has and takes nothing new.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// The key of prefix names of a model for a tenant; `None` when the model has just gone.
    pub(crate) fn routing_key(
        &self,
        served: &ServedModel,
        tenant: &TenantId,
        salt: Option<&ClientSalt>,
    ) -> Option<RoutingKey> {
        Some(self.key_within(&self.catalog.namespace(served)?, tenant, salt))
    }

    /// The key of prefix names of a prompt on an engine of this node.
    pub(crate) fn engine_key(&self, engine: EngineId, prompt: &Prompt) -> Option<RoutingKey> {
        let routing = &self.engines.get(&engine)?.spec.routing;
        Some(self.key_within(routing, &prompt.tenant, prompt.salt.as_ref()))
    }

    fn key_within(
        &self,
        routing: &RoutingNamespace,
        tenant: &TenantId,
        salt: Option<&ClientSalt>,
    ) -> RoutingKey {
        let root = Zeroizing::new(read(&self.membership).salt_root.1);
        let salt = Zeroizing::new(tenant_salt(&root, &tenant.0, salt));
        RoutingKey::derive(routing, &salt)
    }

    /// What only nodes of the cluster know of a tenant, to derive keys from.
    pub(crate) fn tenant_secret(&self, tenant: &TenantId) -> [u8; 32] {
        let root = Zeroizing::new(read(&self.membership).salt_root.1);
        tenant_salt(&root, &tenant.0, None)
    }

    /// Lists the models anew.
    pub(crate) fn relist(&self) {
        self.catalog.relist(&read(&self.views));
    }

    /// Cards of models that other members offer and that are not known here.
    pub(crate) fn unknown_cards(&self) -> BTreeMap<BlobDigest, Offer> {
        self.catalog.unknown(&read(&self.views))
    }

    /// Whether a request could be served now.
    pub(crate) fn readiness(&self) -> Result<(), String> {
        if self.is_draining() {
            return Err("this node is leaving".into());
        }
        let routed = self.catalog.routed();
        let serves = |view: &MemberView| {
            view.state == MemberState::Alive
                && view.engines.iter().any(|engine| routed.contains(&engine.routing))
        };
        let here = self.engines.values().any(|engine| engine.alive.load(Ordering::Relaxed));
        if here || read(&self.views).values().any(serves) {
            return Ok(());
        }
        let models = self.catalog.models();
        let names: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
        Err(match (names.is_empty(), self.catalog.awaits(None)) {
            (false, _) => format!("no node serves the model {} now", names.join(", ")),
            (true, true) => "the tokenizer of another node's model is still being fetched".into(),
            (true, false) => "no node of this cluster serves a model".into(),
        })
    }

    /// Whether a node is alive as gossip sees it.
    pub(crate) fn is_alive(&self, node: &NodeId) -> bool {
        read(&self.views).get(node).is_some_and(|view| view.state == MemberState::Alive)
    }

    /// Chooses where a prompt runs; `avoid` are nodes that failed it.
    pub(crate) fn place(&self, prompt: &Prompt, avoid: &[NodeId]) -> Result<Placed, Refusal> {
        let placement = &self.placement;
        let seed = self.seeds.fetch_add(1, Ordering::Relaxed);
        let query = self.query(prompt, avoid);
        let now = self.clock.now();
        router::place(&placement.index, &placement.loads, &query, placement.policy, seed, now)
    }

    /// The router's question for a prompt.
    pub(crate) fn query<'a>(&self, prompt: &'a Prompt, avoid: &'a [NodeId]) -> Query<'a> {
        Query {
            routing: self.catalog.routing(&prompt.model).map_or([0; 32], |(_, id)| id),
            model: &prompt.model,
            prefix: &prompt.prefix,
            tokens: u32::try_from(prompt.tokens.len()).unwrap_or(u32::MAX),
            osl: prompt.hints.osl,
            session: prompt.session.as_ref(),
            me: self.id,
            avoid,
        }
    }

    /// All members but one: what to avoid so that only that one is left.
    pub(crate) fn all_but(&self, node: &NodeId) -> Vec<NodeId> {
        self.placement.loads.nodes().keys().filter(|other| *other != node).copied().collect()
    }

    /// A node could not be reached: no more placements there until a path to it works again.
    pub(crate) fn lost(&self, node: NodeId) {
        self.board.send(wiring::Input::Router(router::In::Path {
            node,
            rtt_ms: 0.0,
            bytes_s: 0.0,
            reachable: false,
        }));
    }

    /// Notes an engine's load.
    pub(crate) fn note_load(&self, engine: EngineId, load: EngineLoad) {
        if let Some(engine) = self.engines.get(&engine) {
            *engine.load.lock().unwrap_or_else(PoisonError::into_inner) = load;
            engine.started.send_replace(true);
        }
    }

    /// Notes that an engine stopped.
    pub(crate) fn engine_died(&self, engine: EngineId) {
        if let Some(engine) = self.engines.get(&engine) {
            engine.alive.store(false, Ordering::Relaxed);
            engine.started.send_replace(true);
        }
    }

    /// What the heartbeat says of the engines: their own load, and what waits for them here.
    pub(crate) fn engine_reports(&self) -> Vec<EngineReport> {
        let waiting = self.queue.waiting();
        self.engines
            .values()
            .filter(|engine| engine.alive.load(Ordering::Relaxed))
            .map(|engine| {
                let mut load = *engine.load.lock().unwrap_or_else(PoisonError::into_inner);
                load.waiting = load.waiting.saturating_add(waiting.requests);
                load.prefill_tokens = load.prefill_tokens.saturating_add(waiting.tokens);
                load.total_blocks = engine.spec.slots;
                EngineReport {
                    engine: engine.spec.engine,
                    kind: engine.spec.kind.clone(),
                    model: engine.spec.model.clone(),
                    routing: routing_id(&engine.spec.routing),
                    card: self.catalog.own_card(),
                    storage: engine.spec.storage.id(),
                    block_bytes: engine.spec.storage.block_bytes,
                    block_tokens: engine.spec.storage.block_tokens,
                    context: engine.spec.context,
                    load,
                }
            })
            .collect()
    }

    /// The load of the placed engine when it is much busier than the chooser believed.
    pub(crate) fn overloaded(&self, placed: &Placed) -> Option<EngineLoad> {
        let engine = placed.plan.prefill.engine;
        let report = self.engine_reports().into_iter().find(|report| report.engine == engine)?;
        router::should_bounce(&placed.plan.estimate, &report.load).then_some(report.load)
    }

    /// What this node says first to other members.
    pub(crate) fn hello(&self, membership: &Membership) -> protocol::wire::handshake::Hello {
        crate::startup::hello(membership, self.incarnation, self.contact())
    }

    /// Waits until every engine has measured its speed, or died.
    pub(crate) async fn engines_started(&self) {
        for engine in self.engines.values() {
            let mut started = engine.started.subscribe();
            let _ = started.wait_for(|started| *started).await;
        }
    }

    /// Waits until the router knows this node with its engines: until then nothing is placed here.
    pub(crate) async fn placeable(&self) {
        let known = || {
            let own = self.placement.loads.node(&self.id);
            own.is_some_and(|own| own.view.engines.len() == self.engine_reports().len())
        };
        while !known() && !self.stop.is_cancelled() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits until a node without an engine knows a model of other members, if there are any: a
    /// moment after it has heard of them.
    pub(crate) async fn serving(&self) {
        const PATIENCE: Duration = Duration::from_secs(10);
        let alone = self.roster.all().len() < 2;
        let ready = async {
            while self.readiness().is_err() && !self.stop.is_cancelled() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        if !alone && tokio::time::timeout(PATIENCE, ready).await.is_err() {
            tracing::warn!("no member serves a model yet; requests are refused until one does");
        }
    }

    /// The ticket: nothing secret.
    pub(crate) fn ticket(&self) -> String {
        let membership = self.membership();
        let addresses = self.contact().cluster.join(",");
        format!("dnt1-{}-{}@{addresses}", membership.cluster(), membership.issuer)
    }

    /// Makes a join token.
    pub(crate) fn issue_token(
        &self,
        hours: u64,
        uses: u32,
        issuer: bool,
    ) -> Result<Zeroizing<String>, Fault> {
        let membership = self.membership();
        let issuing = membership.issuing().ok_or_else(|| {
            Fault::new("this member has no issuing key", "ask a member labelled `issuer`")
        })?;
        let fields = TokenFields {
            cluster: membership.cluster(),
            issuer: membership.issuer,
            serial: crate::startup::entropy::<8>().map(u64::from_le_bytes)?,
            expires: UnixTime(Clock::unix().0.saturating_add(hours.saturating_mul(3600))),
            uses,
            labels: if issuer { vec![LABEL_ISSUER.into()] } else { Vec::new() },
            addresses: self.contact().cluster,
        };
        Ok(JoinToken::issue(&issuing, fields).to_text())
    }

    /// Counts one use of a token, durably; refuses when none is left.
    pub(crate) fn count_token_use(&self, token: &TokenFields) -> Result<(), JoinRefusal> {
        let key = token.serial.to_le_bytes();
        let used: u32 = crate::startup::get(&self.records, "token-use", &key)
            .ok()
            .flatten()
            .unwrap_or_default();
        if used >= token.uses {
            return Err(JoinRefusal::UsedUp);
        }
        crate::startup::put(&self.records, "token-use", &key, &(used + 1)).map_err(|error| {
            tracing::error!(%error, "a token's use could not be counted");
            JoinRefusal::Busy
        })
    }

    /// Remembers a member across restarts.
    pub(crate) fn remember(&self, known: &KnownMember) {
        let saved = crate::startup::put(&self.records, "member", &known.cert.node.0, known);
        if let Err(error) = saved {
            tracing::warn!(%error, "a member could not be remembered");
        }
    }

    /// Hands over its replicated records, says goodbye and stops.
    pub(crate) fn begin_leave(self: &Arc<Self>) {
        self.draining.store(true, Ordering::Relaxed);
        self.board.send(wiring::Input::State(state::In::Leave));
        let node = self.clone();
        self.tasks.spawn(async move {
            if tokio::time::timeout(HAND_OVER_WITHIN, node.board.handed_over()).await.is_err() {
                tracing::warn!("not all replicated records were handed over in time");
            }
            node.board.send(wiring::Input::Gossip(gossip::In::Leave));
            // The goodbye leaves with the next frames; the answer to the caller too.
            tokio::time::sleep(Duration::from_millis(300)).await;
            node.stop.cancel();
        });
    }

    /// Stops because something is wrong.
    pub(crate) fn fail(&self, fault: Fault) {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(fault);
        self.stop.cancel();
    }
}
