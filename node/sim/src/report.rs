//! What a run gives back.

use crate::check::{Figures, Violation, Watch};
use crate::world::World;
use serde::Serialize;
use std::collections::BTreeMap;

/// The result of a run; as JSON it is what `sim --json` prints.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// Digest of everything that happened: equal for equal seeds and scenarios.
    pub digest: String,
    /// Events.
    pub events: u64,
    /// Virtual seconds.
    pub virtual_s: f64,
    /// Nodes.
    pub nodes: u32,
    /// What a checker found; empty when all is well.
    pub violations: Vec<Violation>,
    /// Figures by name; the unit is the last part of the name.
    pub figures: BTreeMap<String, f64>,
    /// The last events before a violation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub last_events: Vec<String>,
}

fn quantile(histogram: Option<&hdrhistogram::Histogram<u64>>, at: f64) -> f64 {
    histogram.filter(|h| !h.is_empty()).map_or(0.0, |h| h.value_at_quantile(at) as f64)
}

fn shares(figures: &Figures) -> Vec<(&'static str, f64)> {
    let names = ["gpu", "dram", "nvme", "peer", "computed"];
    let total = figures.prompt.iter().sum::<u64>().max(1) as f64;
    names.into_iter().zip(figures.prompt.iter().map(|n| *n as f64 / total)).collect()
}

fn figures(world: &World) -> BTreeMap<String, f64> {
    let Watch { figures: f, regret, .. } = &world.watch;
    let seconds = (world.now.0 as f64 / 1e9).max(1e-9);
    let nodes = f64::from(world.scenario.nodes).max(1.0);
    let ttft = |at| quantile(f.ttft_us.as_ref(), at) / 1e3;
    let noticed = |at| quantile(f.noticed_ms.as_ref(), at);
    let share = |part: u64, of: u64| if of > 0 { part as f64 / of as f64 } else { 0.0 };
    let [gossip, serve, blocks, topic] = world.net.bytes.map(|bytes| bytes as f64);
    let counts = [
        ("requests_asked", f.asked),
        ("requests_served", f.served),
        ("requests_failed", f.failed),
        ("clients_vanished", f.vanished),
        ("places_replaced", f.replaced),
        ("sequences_resumed", f.resumed),
        ("blocks_fetched", f.verified),
        ("blocks_corrupt", f.corrupt),
        ("crashes", f.crashes),
        ("engine_deaths", f.engine_deaths),
        ("freezes", f.freezes),
        ("cuts", f.cuts),
        ("twins_stopped", f.twins_stopped),
        ("nodes_reborn", f.reborn),
        ("peers_incompatible", f.incompatible),
        ("false_deaths", f.false_deaths),
        ("false_removals", f.false_removals),
        ("record_calls", f.record_calls),
        ("records_safe", f.records_safe),
        ("records_confirmed", f.records_confirmed),
    ];
    let mut all: BTreeMap<String, f64> =
        counts.into_iter().map(|(name, count)| (name.to_owned(), count as f64)).collect();
    let more = [
        ("ttft_p50_ms", ttft(0.5)),
        ("ttft_p90_ms", ttft(0.9)),
        ("ttft_p99_ms", ttft(0.99)),
        ("death_noticed_p50_ms", noticed(0.5)),
        ("death_noticed_p99_ms", noticed(0.99)),
        ("converged_ms", f.converged_in.map_or(-1.0, protocol::time::Span::as_ms)),
        ("warm_share", share(f.warm_found, f.warm_expected)),
        ("stale_routes_share", share(f.stale_routes, f.placed)),
        ("regret_share", regret.share()),
        ("gossip_bytes_s_per_node", gossip / seconds / nodes),
        ("topic_bytes_s_per_node", topic / seconds / nodes),
        ("serve_bytes_s_per_node", serve / seconds / nodes),
        ("block_bytes_s_per_node", blocks / seconds / nodes),
    ];
    all.extend(more.into_iter().map(|(name, value)| (name.to_owned(), value)));
    all.extend(shares(f).into_iter().map(|(name, value)| (format!("prompt_{name}_share"), value)));
    all
}

impl Report {
    pub(crate) fn of(world: &World) -> Self {
        let violations = world.watch.violations.clone();
        let last_events = if violations.is_empty() { Vec::new() } else { world.last_events() };
        let mut digest = world.digest;
        digest.word(world.events);
        digest.bytes(format!("{:?}", world.net.bytes).as_bytes());
        Self {
            seed: world.seed,
            digest: digest.text(),
            events: world.events,
            virtual_s: world.now.0 as f64 / 1e9,
            nodes: world.scenario.nodes,
            violations,
            figures: figures(world),
            last_events,
        }
    }

    /// Whether no checker found anything.
    pub fn is_fine(&self) -> bool {
        self.violations.is_empty()
    }
}
