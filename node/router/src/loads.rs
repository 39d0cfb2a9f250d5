//! Members, engines, paths and the placements in flight, as request tasks read them.

use crate::Params;
use arc_swap::ArcSwap;
use protocol::block::StorageId;
use protocol::event::MemberView;
use protocol::hash::PrefixHash;
use protocol::id::{EngineId, Incarnation, NodeId};
use protocol::plan::Placed;
use protocol::time::{Span, Time};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};

#[cfg(test)]
mod tests;

/// Most prefills under way that are remembered; the oldest is forgotten first.
const MAX_FLIGHTS: usize = 4096;

/// What this node measured on the way to another.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Path {
    /// Smoothed round trip, milliseconds; 0 until measured.
    pub rtt_ms: f32,
    /// Smoothed bandwidth, bytes per second; 0 until measured.
    pub bytes_s: f64,
    /// False when the node cannot be reached from here, whatever others say.
    pub reachable: bool,
}

/// A member, with what this node knows of the way to it.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    /// What gossip says.
    pub view: MemberView,
    /// When it said so.
    pub heard: Time,
    /// `None` before the first measurement: then the defaults hold.
    pub path: Option<Path>,
}

impl Node {
    /// Whether a way to it is not known to be closed.
    pub fn reachable(&self) -> bool {
        self.path.is_none_or(|path| path.reachable)
    }
}

/// A prefill that is on its way or under way: its target will hold the prefix.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    pub(crate) engine: EngineId,
    /// `None`: the form of the engine's own blocks.
    pub(crate) storage: Option<StorageId>,
    /// Granules before the first name.
    pub(crate) skipped: usize,
    /// Names of the granules that it computes (and those before, for placements from here).
    pub(crate) granules: Arc<[PrefixHash]>,
    /// Uncached tokens charged to the target's queue until a heartbeat contains them.
    pub(crate) tokens: u32,
    pub(crate) placed: Time,
    pub(crate) done: Time,
    pub(crate) expires: Time,
    /// Whether it was placed from here (and is not in the target's reports yet).
    pub(crate) own: bool,
}

impl Flight {
    /// How many leading granules of `prompt` it covers. Names are chained, so equality at a place
    /// means equality before it, and the end of what is common can be bisected.
    pub(crate) fn covers(&self, prompt: &[PrefixHash]) -> usize {
        let Some(rest) = prompt.get(self.skipped..) else {
            return 0;
        };
        let (mut low, mut high) = (0, rest.len().min(self.granules.len()));
        while low < high {
            let middle = low + (high - low) / 2;
            if rest.get(middle) == self.granules.get(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        if low == 0 { 0 } else { self.skipped + low }
    }
}

struct Shared {
    params: Params,
    nodes: ArcSwap<BTreeMap<NodeId, Arc<Node>>>,
    flights: RwLock<BTreeMap<u64, Flight>>,
    next: AtomicU64,
    turns: AtomicU64,
}

/// A shared view for request tasks; the router machine writes members and paths, choosers add
/// their own placements.
#[derive(Clone)]
pub struct Loads {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Loads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Loads {{ nodes: {} }}", self.shared.nodes.load().len())
    }
}

impl Loads {
    pub(crate) fn new(params: Params) -> Self {
        Self {
            shared: Arc::new(Shared {
                params,
                nodes: ArcSwap::default(),
                flights: RwLock::default(),
                next: AtomicU64::new(0),
                turns: AtomicU64::new(0),
            }),
        }
    }

    /// Weights and defaults.
    pub fn params(&self) -> &Params {
        &self.shared.params
    }

    /// All members known, by id.
    pub fn nodes(&self) -> Arc<BTreeMap<NodeId, Arc<Node>>> {
        self.shared.nodes.load_full()
    }

    /// One member.
    pub fn node(&self, id: &NodeId) -> Option<Arc<Node>> {
        self.shared.nodes.load().get(id).cloned()
    }

    /// Placements from here so far; what round-robin goes by.
    pub fn turns(&self) -> u64 {
        self.shared.turns.load(Ordering::Relaxed)
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<NodeId, Arc<Node>>)) {
        let mut nodes = BTreeMap::clone(&self.shared.nodes.load());
        change(&mut nodes);
        self.shared.nodes.store(Arc::new(nodes));
    }

    /// Router machine only: a member's latest view, with what was measured of the way to it.
    pub(crate) fn member(&self, now: Time, view: MemberView, path: Option<Path>) {
        self.change(|nodes| {
            nodes.insert(view.node, Arc::new(Node { view, heard: now, path }));
        });
    }

    /// Router machine only: a measurement of the way to a member.
    pub(crate) fn path(&self, node: &NodeId, path: Path) {
        let Some(known) = self.node(node) else { return };
        let known = Node { path: Some(path), ..Node::clone(&known) };
        self.change(|nodes| {
            nodes.insert(*node, Arc::new(known));
        });
    }

    /// Router machine only: a member is forgotten.
    pub(crate) fn forget(&self, node: &NodeId) {
        self.change(|nodes| {
            nodes.remove(node);
        });
    }

    fn flights(&self) -> RwLockWriteGuard<'_, BTreeMap<u64, Flight>> {
        self.shared.flights.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a prefill under way; its number.
    pub(crate) fn add_flight(&self, now: Time, flight: Flight) -> u64 {
        let id = self.shared.next.fetch_add(1, Ordering::Relaxed);
        let mut flights = self.flights();
        // The oldest are mostly the first to be over; each placement looks at all that are left.
        let over = |flight: &Flight| !flight.own && flight.expires <= now;
        while flights.first_key_value().is_some_and(|(_, first)| over(first)) {
            flights.pop_first();
        }
        if flights.len() >= MAX_FLIGHTS / 2 {
            flights.retain(|_, flight| flight.expires > now);
        }
        while flights.len() >= MAX_FLIGHTS {
            flights.pop_first();
        }
        flights.insert(id, flight);
        id
    }

    /// Drops the flights of a life of a node.
    pub(crate) fn drop_flights(&self, node: &NodeId, incarnation: Incarnation) {
        self.flights().retain(|_, f| f.node != *node || f.incarnation != incarnation);
    }

    /// Calls `each` with every flight that still counts at `now`.
    pub(crate) fn each_flight(&self, now: Time, mut each: impl FnMut(&Flight)) {
        let flights = self.shared.flights.read().unwrap_or_else(PoisonError::into_inner);
        flights.values().filter(|flight| flight.expires > now).for_each(&mut each);
    }

    /// Counts a placement at once, before its target reports it: its uncached tokens weigh on the
    /// target's queue until a heartbeat contains them, and its prefix counts as being computed
    /// there. `prefix` is the prompt's names per 16 tokens. Keep the guard while the request
    /// waits; see [`InFlight`].
    pub fn placed(&self, placed: &Placed, prefix: &[PrefixHash], now: Time) -> InFlight {
        self.shared.turns.fetch_add(1, Ordering::Relaxed);
        let (target, estimate) = (placed.plan.prefill, placed.plan.estimate);
        let wait = f64::from(estimate.queue_ms.max(estimate.onboard_ms));
        let takes = Span::from_ms(wait + f64::from(estimate.prefill_ms));
        let flight = Flight {
            node: target.node,
            incarnation: target.incarnation,
            engine: target.engine,
            storage: None,
            skipped: 0,
            granules: crate::index::granules(prefix).into(),
            tokens: estimate.computed_tokens,
            placed: now,
            done: now + takes,
            expires: now + takes + self.params().forgotten_after,
            own: true,
        };
        let id = self.add_flight(now, flight);
        InFlight { loads: self.clone(), id: Some(id) }
    }
}

/// A placement that is counted. Tell [`InFlight::started`] when its first token is about to come;
/// dropped before that, the placement is taken back as if it had never been.
#[derive(Debug)]
pub struct InFlight {
    loads: Loads,
    id: Option<u64>,
}

impl InFlight {
    /// The prefill is done: the target's queue is free of it, and its prefix counts as cached there
    /// for a moment ([`Params::linger`]), until the target's events have arrived.
    pub fn started(mut self, now: Time) {
        let linger = self.loads.params().linger;
        let Some(id) = self.id.take() else { return };
        let mut flights = self.loads.flights();
        let Some(flight) = flights.get_mut(&id) else { return };
        if flight.granules.is_empty() {
            flights.remove(&id); // too short to be found in an index: nobody waits for its blocks
        } else {
            flight.tokens = 0;
            flight.own = false;
            flight.done = now;
            flight.expires = now + linger;
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.loads.flights().remove(&id);
        }
    }
}
