//! Where deliveries of the machines go in a real node. Performs, decides nothing.

use crate::actors::shell::Mail;
use crate::rim;
use engine::Engine;
use protocol::id::EngineId;
use protocol::op::{FetchOp, Grant, LeaseId, OpId, ReadId, Readable};
use protocol::prompt::Refusal;
use ractor::ActorRef;
use state::DiskOp;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tiers::nvme::NvmeTier;
use tokio::sync::{Notify, mpsc, oneshot};
use wiring::{Delivery, Input};

/// News about membership that the node itself acts on, in order.
pub(crate) enum News {
    /// A member is allowed in.
    Allow(Box<protocol::trust::MemberCert>),
    /// A node is no member any more.
    Disallow(protocol::id::NodeId),
    /// A member's state, place or load.
    Member(Box<protocol::event::MemberView>),
    /// Another process lives under this identity.
    Twin(protocol::id::Incarnation),
    /// This identity has lived beyond this counter.
    JumpPast(u64),
}

/// An order for the transfer agent.
pub(crate) enum FetchOrder {
    /// Fetch.
    Start(FetchOp),
    /// Stop.
    Cancel(OpId),
}

/// The actors of the machines.
pub(crate) struct Machines {
    /// Gossip.
    pub(crate) gossip: ActorRef<Mail<gossip::In>>,
    /// Router.
    pub(crate) router: ActorRef<Mail<router::In>>,
    /// Block manager.
    pub(crate) store: ActorRef<Mail<kvstore::In>>,
    /// Replicated records.
    pub(crate) state: ActorRef<Mail<state::In>>,
}

/// All ways out of the machines.
pub(crate) struct Switchboard {
    machines: OnceLock<Machines>,
    engines: OnceLock<BTreeMap<EngineId, Arc<dyn Engine>>>,
    releases: OnceLock<BTreeMap<EngineId, mpsc::UnboundedSender<LeaseId>>>,
    disk: Mutex<Option<Arc<NvmeTier>>>,
    rim: mpsc::Sender<rim::Command>,
    news: mpsc::UnboundedSender<News>,
    fetches: mpsc::UnboundedSender<FetchOrder>,
    leases: Waiting<LeaseId, Result<Grant, Refusal>>,
    reads: Waiting<ReadId, Vec<Readable>>,
    calls: Waiting<u64, state::Answer>,
    records: Mutex<Option<mpsc::Sender<state::DiskOp>>>,
    handed_over: Notify,
}

/// Callers that wait for a machine's answer, by id.
struct Waiting<K, V>(Mutex<BTreeMap<K, oneshot::Sender<V>>>);

impl<K: Ord, V> Waiting<K, V> {
    fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    fn expect(&self, key: K) -> oneshot::Receiver<V> {
        let (sender, receiver) = oneshot::channel();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, sender);
        receiver
    }

    /// False when nobody waits any more.
    fn answer(&self, key: &K, value: V) -> bool {
        let waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        waiting.is_some_and(|sender| sender.send(value).is_ok())
    }
}

impl Switchboard {
    /// A board whose machines and engines are connected later, once, by [`Self::connect`].
    ///
    /// The two unbounded channels carry what the block manager and gossip have bounded already:
    /// fetches by their slots, news by the number of members.
    pub(crate) fn new(
        rim: mpsc::Sender<rim::Command>,
        news: mpsc::UnboundedSender<News>,
        fetches: mpsc::UnboundedSender<FetchOrder>,
    ) -> Self {
        Self {
            machines: OnceLock::new(),
            engines: OnceLock::new(),
            releases: OnceLock::new(),
            disk: Mutex::new(None),
            rim,
            news,
            fetches,
            leases: Waiting::new(),
            reads: Waiting::new(),
            calls: Waiting::new(),
            records: Mutex::new(None),
            handed_over: Notify::new(),
        }
    }

    /// Connects the engines.
    pub(crate) fn connect_engines(&self, engines: BTreeMap<EngineId, Arc<dyn Engine>>) {
        let _ = self.engines.set(engines);
    }

    /// Connects the NVMe tier.
    pub(crate) fn connect_disk(&self, tier: Arc<NvmeTier>) {
        *self.disk.lock().unwrap_or_else(PoisonError::into_inner) = Some(tier);
    }

    /// The NVMe tier, if there is one.
    pub(crate) fn disk(&self) -> Option<Arc<NvmeTier>> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends the NVMe tier nothing any more.
    pub(crate) fn disconnect_disk(&self) {
        *self.disk.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Connects the ways of ended leases: one per engine, at most one message per lease.
    pub(crate) fn connect_releases(
        &self,
        releases: BTreeMap<EngineId, mpsc::UnboundedSender<LeaseId>>,
    ) {
        let _ = self.releases.set(releases);
    }

    /// Ends a lease, behind all that its engine has told before: blocks sealed in its last step
    /// would be forgotten otherwise.
    pub(crate) fn release(&self, engine: EngineId, lease: LeaseId) {
        let way = self.releases.get().and_then(|releases| releases.get(&engine));
        if way.is_none_or(|way| way.send(lease).is_err()) {
            // Without an engine that tells there is nothing to come after.
            self.send(Input::Store(kvstore::In::Released(lease)));
        }
    }

    /// Connects the durable records. The machine of replicated records has no more than
    /// [`state::config::DISK_OPS_MAX`] operations under way and bounds their bytes, so a channel of
    /// that length is never full; if it were, the machine would hear that nothing was kept.
    pub(crate) fn connect_records(&self, records: mpsc::Sender<state::DiskOp>) {
        *self.records.lock().unwrap_or_else(PoisonError::into_inner) = Some(records);
    }

    /// Gives the durable records nothing more to do: their thread ends when it has done all.
    pub(crate) fn disconnect_records(&self) {
        *self.records.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Waits for the answer to a call about a replicated record.
    pub(crate) fn expect_answer(&self, call: u64) -> oneshot::Receiver<state::Answer> {
        self.calls.expect(call)
    }

    /// Waits until other nodes have this one's replicated records.
    pub(crate) async fn handed_over(&self) {
        self.handed_over.notified().await;
    }

    /// Connects the machines.
    pub(crate) fn connect(&self, machines: Machines) {
        let _ = self.machines.set(machines);
    }

    /// The machines, once connected.
    pub(crate) fn machines(&self) -> Option<&Machines> {
        self.machines.get()
    }

    /// An engine of this node.
    pub(crate) fn engine(&self, id: EngineId) -> Option<&Arc<dyn Engine>> {
        self.engines.get()?.get(&id)
    }

    /// Waits for the answer to a `Prepare`.
    pub(crate) fn expect_lease(&self, lease: LeaseId) -> oneshot::Receiver<Result<Grant, Refusal>> {
        self.leases.expect(lease)
    }

    /// Waits for the answer to a `Read`.
    pub(crate) fn expect_read(&self, read: ReadId) -> oneshot::Receiver<Vec<Readable>> {
        self.reads.expect(read)
    }

    /// Sends an input to a machine of this node.
    pub(crate) fn send(&self, input: Input) {
        let Some(machines) = self.machines.get() else { return };
        // An actor that is gone means that the node stops; there is nobody left to tell.
        match input {
            Input::Gossip(input) => drop(machines.gossip.cast(Mail::Input(input, None))),
            Input::Router(input) => drop(machines.router.cast(Mail::Input(input, None))),
            Input::Store(input) => drop(machines.store.cast(Mail::Input(input, None))),
            Input::State(input) => drop(machines.state.cast(Mail::Input(input, None))),
        }
    }

    fn to_rim(&self, command: rim::Command) {
        if let Err(error) = self.rim.try_send(command) {
            tracing::debug!(%error, "order to the rim dropped; gossip repairs it");
        }
    }

    fn answer_lease(&self, lease: LeaseId, answer: Result<Grant, Refusal>) {
        let granted = answer.is_ok();
        if !self.leases.answer(&lease, answer) && granted {
            // The request went away between asking and answer.
            self.send(Input::Store(kvstore::In::Released(lease)));
        }
    }

    /// Sends one delivery where it belongs.
    pub(crate) fn dispatch(&self, delivery: Delivery) {
        match delivery {
            Delivery::Local(input) => self.send(input),
            Delivery::Direct { to, frame } => {
                self.to_rim(rim::Command::Direct(to, Box::new(frame)));
            }
            Delivery::Publish(message) => self.to_rim(rim::Command::Publish(message)),
            Delivery::Allow(cert) => {
                self.to_rim(rim::Command::Allow(cert.node));
                let _ = self.news.send(News::Allow(Box::new(cert)));
            }
            Delivery::Disallow(node) => {
                self.to_rim(rim::Command::Close(node));
                let _ = self.news.send(News::Disallow(node));
            }
            Delivery::Dial { node, contact } => self.to_rim(rim::Command::Contact(node, contact)),
            Delivery::Hangup(node) => self.to_rim(rim::Command::Hangup(node)),
            Delivery::Incompatible { node, reason } => {
                tracing::warn!(peer = %node.short(), %reason, "refused a peer");
            }
            Delivery::Member(view) => drop(self.news.send(News::Member(view))),
            Delivery::Twin { theirs, .. } => drop(self.news.send(News::Twin(theirs))),
            Delivery::JumpPast(counter) => drop(self.news.send(News::JumpPast(counter))),
            Delivery::Engine(id, op) => {
                if let Some(engine) = self.engine(id) {
                    engine.perform(op);
                }
            }
            Delivery::Fetch(op) => drop(self.fetches.send(FetchOrder::Start(op))),
            Delivery::CancelFetch(op) => drop(self.fetches.send(FetchOrder::Cancel(op))),
            Delivery::Disk(op) => {
                // Without a tier, at the end, nobody waits for the answer.
                if let Some(tier) = self.disk() {
                    tier.submit(op);
                }
            }
            Delivery::Granted(grant) => self.answer_lease(grant.lease, Ok(grant)),
            Delivery::Refused(lease, refusal) => self.answer_lease(lease, Err(refusal)),
            Delivery::ReadGranted { read, blocks } => {
                if !self.reads.answer(&read, blocks) {
                    self.send(Input::Store(kvstore::In::ReadDone(read)));
                }
            }
            Delivery::Record(op) => {
                let records = self.records.lock().unwrap_or_else(PoisonError::into_inner).clone();
                // Without a thread, at the end, nobody waits for the answer.
                let Some(records) = records else { return };
                let (DiskOp::Write { write, .. } | DiskOp::Erase { write, .. }) = op;
                if matches!(records.try_send(op), Err(mpsc::error::TrySendError::Full(_))) {
                    self.send(Input::State(state::In::Written { write, durable: false }));
                }
            }
            Delivery::Answered { call, answer } => {
                // Who called may have gone away.
                self.calls.answer(&call, answer);
            }
            Delivery::HandedOver => self.handed_over.notify_one(),
        }
    }
}

#[cfg(test)]
mod tests;
