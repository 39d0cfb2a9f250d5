//! For one prompt: what each node has of it, and what is on its way to each node.

use crate::index::{IndexReader, Run};
use crate::loads::{Flight, Loads, Node};
use protocol::block::StorageId;
use protocol::event::Holder;
use protocol::hash::PrefixHash;
use protocol::id::{EngineId, NodeId};
use protocol::time::Time;
use std::collections::BTreeMap;

/// What one node has of the prompt. All lengths are in granules.
#[derive(Default)]
pub(crate) struct Holding {
    runs: Vec<Run>,
    flights: Vec<Underway>,
}

/// A prefill that is under way on a node.
struct Underway {
    flight: Flight,
    granules: u32,
}

/// Placements of this node that a target has not reported yet.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Pending {
    pub(crate) tokens: f64,
    pub(crate) requests: f64,
}

impl Holding {
    fn longest(&self, node: &Node, holder: Holder, storage: StorageId) -> u32 {
        let of = |run: &&Run| {
            run.lane.holder == holder
                && run.lane.storage == storage
                && run.lane.incarnation == node.view.incarnation
        };
        self.runs.iter().filter(of).map(|run| run.granules).max().unwrap_or_default()
    }

    /// In an engine's own pool.
    pub(crate) fn engine(&self, node: &Node, engine: EngineId, storage: StorageId) -> u32 {
        self.longest(node, Holder::Engine(engine), storage)
    }

    /// In the node's DRAM.
    pub(crate) fn dram(&self, node: &Node, storage: StorageId) -> u32 {
        self.longest(node, Holder::Dram, storage)
    }

    /// On the node's NVMe.
    pub(crate) fn nvme(&self, node: &Node, storage: StorageId) -> u32 {
        self.longest(node, Holder::Nvme, storage)
    }

    /// What an engine is about to have, and when: the longest, and of equal ones the first.
    pub(crate) fn computing(
        &self,
        node: &Node,
        engine: EngineId,
        storage: StorageId,
        now: Time,
    ) -> (u32, Time) {
        let announced = (self.longest(node, Holder::Computing(engine), storage), now);
        let fits = |under: &&Underway| {
            under.flight.engine == engine
                && under.flight.incarnation == node.view.incarnation
                && under.flight.storage.is_none_or(|form| form == storage)
        };
        let flights = self.flights.iter().filter(fits);
        flights
            .map(|under| (under.granules, under.flight.done))
            .chain([announced])
            .max_by_key(|(granules, done)| (*granules, std::cmp::Reverse(*done)))
            .unwrap_or(announced)
    }

    /// What this node placed on an engine and the engine's reports do not contain yet.
    pub(crate) fn pending(&self, node: &Node, engine: EngineId, loads: &Loads) -> Pending {
        let params = loads.params();
        let counts = |under: &&Underway| {
            let flight = &under.flight;
            flight.own
                && flight.engine == engine
                && flight.incarnation == node.view.incarnation
                && node.heard < flight.placed + params.covered_after
        };
        self.flights.iter().filter(counts).fold(Pending::default(), |sum, under| Pending {
            tokens: sum.tokens + f64::from(under.flight.tokens),
            requests: sum.requests + 1.0,
        })
    }
}

/// Holdings by node.
pub(crate) struct Board {
    nodes: BTreeMap<NodeId, Holding>,
    none: Holding,
}

impl Board {
    /// Looks the prompt's granules up in the index and among the placements in flight.
    pub(crate) fn new(
        index: &IndexReader,
        loads: &Loads,
        prompt: &[PrefixHash],
        now: Time,
    ) -> Self {
        let mut nodes: BTreeMap<NodeId, Holding> = BTreeMap::new();
        let mut runs = Vec::new();
        index.match_prefix(prompt, &mut runs);
        for run in runs {
            nodes.entry(run.lane.node).or_default().runs.push(run);
        }
        loads.each_flight(now, |flight| {
            let granules = u32::try_from(flight.covers(prompt)).unwrap_or(u32::MAX);
            if granules > 0 || flight.own {
                let under = Underway { flight: flight.clone(), granules };
                nodes.entry(flight.node).or_default().flights.push(under);
            }
        });
        Self { nodes, none: Holding::default() }
    }

    /// What a node has.
    pub(crate) fn of(&self, node: &NodeId) -> &Holding {
        self.nodes.get(node).unwrap_or(&self.none)
    }
}
