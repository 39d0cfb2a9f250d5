//! Liveness: what still keeps the cluster from rest.

use super::{accounts, index};
use crate::world::World;
use protocol::block::Tier;
use protocol::event::{MemberState, SetDigest};
use protocol::id::{Incarnation, NodeId};

/// Why the cluster is not at rest: the checker whose promise it is, the node, and what is the matter.
pub(crate) type Unrest = (&'static str, usize, String);

impl World {
    /// The first thing that keeps the cluster from rest.
    pub(crate) fn unrest(&mut self) -> Option<Unrest> {
        if let Some(id) = self.clients.open.keys().next() {
            let h = self.clients.open.get(id).map_or(0, |open| open.host);
            let live = self.hosts.get(h).and_then(|host| host.live.as_ref());
            let ask = live.and_then(|live| live.asks.get(id)).map(|ask| ask.words());
            return Some(("liveness", h, format!("{id:?} has no end: {ask:?}")));
        }
        if let Some(agent) = self.clients.agents.iter().position(|agent| agent.is_asking()) {
            let tries = self.clients.agents.get(agent).map_or(0, |agent| agent.tries());
            return Some(("liveness", 0, format!("agent {agent} waits, after {tries} tries")));
        }
        if self.watch.open_requests() > 0 {
            return Some(("answers", 0, "a request was never answered".into()));
        }
        let up = self.up();
        let unrest = up.iter().find_map(|h| self.busy(*h)).or_else(|| self.disagreement(&up));
        unrest.or_else(|| self.records_unrest())
    }

    /// What a node has not let go of.
    fn busy(&mut self, h: usize) -> Option<Unrest> {
        let watched = self.watch.leases(h);
        let live = self.hosts.get(h)?.live.as_ref()?;
        let tables = [
            (live.asks.len(), "requests that came in here"),
            (live.fetches.len(), "fetches"),
            (live.lendings.len(), "reads of peers"),
        ];
        if let Some(run) = live.runs.values().next() {
            return Some(("liveness", h, format!("a request runs here: {}", run.words())));
        }
        if let Some((count, what)) = tables.into_iter().find(|(count, _)| *count > 0) {
            return Some(("liveness", h, format!("{count} {what} have no end")));
        }
        let stats = live.store.stats();
        let counts = [
            (stats.leases, "leases"),
            (stats.operations, "operations"),
            (stats.reads, "reads"),
            (watched, "leases, as far as was seen,"),
        ];
        if let Some((count, what)) = counts.into_iter().find(|(count, _)| *count > 0) {
            return Some(("leases", h, format!("{count} {what} are left")));
        }
        let tier = stats.tiers.iter().find(|t| t.slots.leased + t.slots.draining > 0);
        tier.map(|tier| ("leases", h, format!("slots are in use: {tier:?}")))
    }

    /// What nodes do not agree on.
    fn disagreement(&self, up: &[usize]) -> Option<Unrest> {
        let honest = |h: &&usize| self.hosts.get(**h).is_some_and(|host| !host.is_liar);
        let truths: Vec<(usize, NodeId, Incarnation, SetDigest)> = up
            .iter()
            .filter(honest)
            .filter_map(|h| {
                let host = self.hosts.get(*h)?;
                let store = &host.live.as_ref()?.store;
                Some((*h, host.id, host.incarnation, index::truth(&host.id, store)))
            })
            .collect();
        for h in up {
            let live = self.hosts.get(*h)?.live.as_ref()?;
            for view in live.gossip.members() {
                let of = truths.iter().find(|(_, node, _, _)| *node == view.node);
                let Some((other, _, incarnation, _)) = of else { continue };
                if view.state != MemberState::Alive || view.incarnation != *incarnation {
                    let text = format!(
                        "node {other} is seen {:?} in life {}",
                        view.state, view.incarnation.counter
                    );
                    return Some(("liveness", *h, text));
                }
            }
            if live.gossip.members().count() < up.len() {
                return Some(("liveness", *h, "a member is not known".into()));
            }
            for (other, node, incarnation, truth) in &truths {
                let known = live.router.origin(node);
                let is_true = match known {
                    Some((life, _, digest)) => life == *incarnation && digest == *truth,
                    None => truth.count == 0,
                };
                if !is_true {
                    let known =
                        known.map(|(life, seq, digest)| (life.counter, seq.0, digest.count));
                    let own = self.hosts.get(*other).and_then(|host| host.live.as_ref());
                    let own = own.and_then(|live| live.router.origin(node));
                    let own = own.map(|(life, seq, digest)| (life.counter, seq.0, digest.count));
                    let told = live.gossip.applied().find(|(of, _, _)| of == node);
                    let told = told.map(|(_, life, seq)| (life.counter, seq.0));
                    let text = format!(
                        "of node {other} (life {}, {} entries) it knows (life, seq, entries) \
                         {known:?}; that node itself {own:?}; gossip here is at {told:?}",
                        incarnation.counter, truth.count
                    );
                    return Some(("index", *h, text));
                }
            }
        }
        None
    }

    /// What must hold once everything is at rest.
    pub(crate) fn check_rest(&mut self) {
        for id in self.clerks.names().to_vec() {
            let verdict = self.watch.records.at_rest(&id, &self.copies_of(&id));
            self.watch.judge("records", 0, verdict);
        }
        let c = self.scenario.cluster.clone();
        let sizes = |tier: Tier| match tier {
            Tier::Engine(_) => c.engine_slots,
            Tier::Dram => c.dram_slots,
            Tier::Nvme => c.nvme_slots,
        };
        for h in self.up() {
            let Some(live) = self.hosts.get(h).and_then(|host| host.live.as_ref()) else {
                continue;
            };
            let stats = live.store.stats();
            let is_consistent = live.admission.is_consistent();
            self.watch.judge("accounts", h, accounts::at_rest(&stats));
            self.watch.judge("slots", h, accounts::slots(&stats, sizes));
            if !is_consistent {
                self.watch.found("queue", h, "the queue's books do not agree");
            }
        }
    }

    /// What must hold at any time, looked at now and then.
    pub(crate) fn check_now(&mut self) {
        let c = self.scenario.cluster.clone();
        let sizes = |tier: Tier| match tier {
            Tier::Engine(_) => c.engine_slots,
            Tier::Dram => c.dram_slots,
            Tier::Nvme => c.nvme_slots,
        };
        self.watch.at(self.now);
        for h in self.up() {
            let Some(live) = self.hosts.get(h).and_then(|host| host.live.as_ref()) else {
                continue;
            };
            let verdict = accounts::slots(&live.store.stats(), sizes);
            self.watch.judge("slots", h, verdict);
        }
    }
}
