//! `/metrics`: the parts' plain counters in the OpenMetrics text format.

use crate::node::Node;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use protocol::block::Tier;
use protocol::event::MemberState;
use protocol::prompt::PromptSources;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use tiers::nvme::{NvmeState, NvmeStatus};
use transfer::{PathStats, Via};

/// What the node itself counts; all grow only.
#[derive(Default)]
pub(crate) struct Tally {
    /// Requests that entered here and got a stream.
    pub(crate) served: AtomicU64,
    /// Requests that entered here and got none.
    pub(crate) refused: AtomicU64,
    /// Tries that were placed again elsewhere.
    pub(crate) replaced: AtomicU64,
    /// Streams that ended in failure.
    pub(crate) broken: AtomicU64,
    /// Prompt tokens of finished requests that entered here: gpu, dram, nvme, peer, computed.
    prompt: [AtomicU64; 5],
    /// Output tokens of those.
    pub(crate) output: AtomicU64,
}

impl Tally {
    /// Adds a finished request's prompt tokens.
    pub(crate) fn add_prompt(&self, sources: &PromptSources) {
        let parts = [sources.gpu, sources.dram, sources.nvme, sources.peer, sources.computed];
        for (total, part) in self.prompt.iter().zip(parts) {
            total.fetch_add(u64::from(part), Ordering::Relaxed);
        }
    }

    /// Counts one more.
    pub(crate) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

type Labelled = Family<[(&'static str, String); 1], Gauge>;

fn counter(registry: &mut Registry, name: &str, help: &str, value: u64) {
    registry.register(name, help, ConstCounter::new(value));
}

fn gauge(registry: &mut Registry, name: &str, help: &str, value: u64) {
    registry.register(name, help, ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)));
}

fn labelled<'a>(
    registry: &mut Registry,
    name: &str,
    help: &str,
    label: &'static str,
    values: impl IntoIterator<Item = (&'a str, u64)>,
) {
    let family = Labelled::default();
    for (key, value) in values {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        family.get_or_create(&[(label, key.to_owned())]).set(value);
    }
    registry.register(name, help, family);
}

fn requests(registry: &mut Registry, tally: &Tally) {
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    counter(
        registry,
        "requests_served",
        "Requests that entered here and got a stream",
        load(&tally.served),
    );
    counter(
        registry,
        "requests_refused",
        "Requests that entered here and got none",
        load(&tally.refused),
    );
    counter(
        registry,
        "requests_replaced",
        "Tries that were placed again elsewhere",
        load(&tally.replaced),
    );
    counter(registry, "requests_broken", "Streams that ended in failure", load(&tally.broken));
    counter(
        registry,
        "output_tokens",
        "Tokens generated for requests that entered here",
        load(&tally.output),
    );
    let names = ["gpu", "dram", "nvme", "peer", "computed"];
    let values = names.into_iter().zip(tally.prompt.iter().map(load));
    labelled(registry, "prompt_tokens", "Prompt tokens by source since start", "source", values);
}

fn members(registry: &mut Registry, node: &Node) {
    let views = node.views.read().unwrap_or_else(PoisonError::into_inner);
    let count = |state| views.values().filter(|view| view.state == state).count() as u64;
    let states = [
        ("alive", count(MemberState::Alive)),
        ("suspect", count(MemberState::Suspect)),
        ("draining", count(MemberState::Draining)),
        ("left", count(MemberState::Left)),
        ("dead", count(MemberState::Dead)),
    ];
    labelled(registry, "members", "Members by state as this node sees them", "state", states);
}

fn store(registry: &mut Registry, stats: &kvstore::Stats) {
    let name = |tier: Tier| match tier {
        Tier::Engine(_) => "gpu",
        Tier::Dram => "dram",
        Tier::Nvme => "nvme",
    };
    let blocks = stats.tiers.iter().map(|tier| (name(tier.tier), u64::from(tier.blocks)));
    labelled(registry, "blocks", "Blocks held by tier", "tier", blocks);
    gauge(registry, "leases", "Leases on slots", stats.leases as u64);
    let help = "Requests that wait for the prefill of another one";
    gauge(registry, "prefill_waiting", help, stats.prefill_waiting as u64);
    let help = "Requests that waited for the prefill of another one since start";
    counter(registry, "prefill_waits", help, stats.counters.prefill_waits);
    gauge(registry, "store_operations", "Operations under way", stats.operations as u64);
    gauge(registry, "peer_reads", "Peers' reads under way", stats.reads as u64);
}

fn records(registry: &mut Registry, held: &state::Stats, c: &state::Counters) {
    gauge(registry, "records", "Replicated records held here", held.records);
    gauge(registry, "records_deleted", "Deletions remembered here", held.deletions);
    gauge(registry, "records_bytes", "Bytes of their values", held.bytes);
    gauge(registry, "record_calls", "Reads and writes of records under way from here", held.ops);
    let writes = [("safe", c.safe), ("degraded", c.degraded), ("failed", c.not_kept)];
    let help = "Writes of records that came in here since start, by how they were kept";
    labelled(registry, "record_writes", help, "result", writes);
    let events = [
        ("reads", c.gets),
        ("unconfirmed", c.unconfirmed),
        ("unavailable", c.unavailable),
        ("acks", c.acks),
        ("retries", c.retries),
        ("read_repairs", c.read_repairs),
        ("mismatches", c.mismatches),
        ("pushed", c.pushed),
        ("taken", c.taken),
        ("handed_over", c.handed_over),
        ("expired", c.expired),
        ("evicted", c.evicted),
        ("refused", c.refused),
        ("disk_failed", c.disk_failed),
        ("improper", c.improper + c.strangers),
    ];
    let help = "What happened to replicated records here since start";
    labelled(registry, "record_events", help, "event", events);
}

fn disk(registry: &mut Registry, stats: &kvstore::Counters) {
    let c = stats;
    let writes = [
        ("durable", c.nvme_written),
        ("failed", c.nvme_write_failed),
        ("refused_class", c.nvme_refused_class),
        ("refused_busy", c.nvme_refused_busy),
        ("refused_pinned", c.nvme_refused_pinned),
        ("refused_unread", c.nvme_refused_unread),
        ("skipped", c.nvme_skipped),
    ];
    let help = "Blocks for NVMe since start by what became of them";
    labelled(registry, "nvme_writes", help, "result", writes);
    let reads = [
        ("verified", c.nvme_verified),
        ("corrupt", c.nvme_corrupt),
        ("failed", c.nvme_failed),
        ("late", c.nvme_late),
    ];
    let help = "Blocks read from NVMe since start by what became of them";
    labelled(registry, "nvme_reads", help, "result", reads);
    counter(registry, "nvme_found", "Blocks of an earlier life found on NVMe", c.nvme_found);
    let staged = "Blocks brought up from NVMe for peers";
    counter(registry, "nvme_staged", staged, c.read_staged);
}

fn disk_state(registry: &mut Registry, status: &NvmeStatus) {
    let quarantined = u64::from(matches!(status.state, NvmeState::Quarantined(_)));
    gauge(registry, "nvme_quarantined", "1 while the NVMe disk fails", quarantined);
    counter(registry, "nvme_quarantines", "Times the NVMe disk failed", status.quarantines);
    gauge(registry, "nvme_bytes", "Bytes of the NVMe tier's data files", status.data_bytes);
    gauge(registry, "nvme_limit_bytes", "Most bytes of these", status.limit);
    gauge(registry, "nvme_index_bytes", "Bytes of the NVMe tier's index", status.index_bytes);
    let written = status.counters.data_bytes;
    counter(registry, "nvme_written_bytes", "Bytes given to the NVMe disk for blocks", written);
    counter(
        registry,
        "nvme_read_bytes",
        "Bytes of blocks read from NVMe",
        status.counters.read_bytes,
    );
}

fn paths(registry: &mut Registry, paths: &[PathStats]) {
    let over = |via: Via| paths.iter().filter(|path| path.via == Some(via)).count() as u64;
    let count = |of: fn(&PathStats) -> u64| paths.iter().map(of).sum::<u64>();
    let values = [Via::Quic, Via::TlsTcp].map(|via| (via.name(), over(via)));
    labelled(registry, "paths", "Peers by the path they were reached over last", "via", values);
    let held = paths.iter().filter(|path| path.quarantined_ms.is_some()).count() as u64;
    gauge(registry, "paths_quarantined", "Peers left alone because they failed", held);
    let blocked = count(|path| path.udp_blocked);
    counter(registry, "udp_blocked", "Times TLS-TCP was taken because QUIC was silent", blocked);
    let failures = count(|path| path.failures);
    counter(
        registry,
        "path_failures",
        "Times a peer did not answer or sent wrong blocks",
        failures,
    );
    let corrupt = count(|path| path.corrupt);
    counter(registry, "corrupt_blocks", "Blocks of peers that were wrong, and not used", corrupt);
    let fetched = count(|path| path.fetched_bytes);
    counter(registry, "fetched_bytes", "Bytes of blocks fetched from peers and verified", fetched);
}

/// All metrics as text.
pub(crate) async fn render(node: &Arc<Node>) -> String {
    let mut registry = Registry::with_prefix("dynamo_node");
    requests(&mut registry, &node.tally);
    members(&mut registry, node);
    paths(&mut registry, &node.transfer.paths());
    let queue = node.queue.waiting();
    gauge(
        &mut registry,
        "queue_requests",
        "Requests waiting for an engine here",
        queue.requests.into(),
    );
    gauge(&mut registry, "queue_tokens", "Their uncached prompt tokens", queue.tokens.into());
    let index = node.placement.index.stats();
    gauge(&mut registry, "index_entries", "Entries of the block index", index.entries);
    gauge(&mut registry, "index_bytes", "Memory of the block index", index.bytes);
    if let Some(stats) = crate::status::store_stats(node).await {
        store(&mut registry, &stats);
        disk(&mut registry, &stats.counters);
    }
    if let Some(status) = crate::status::disk(node).await {
        disk_state(&mut registry, &status);
    }
    if let Some((held, counted)) = crate::status::records(node).await {
        records(&mut registry, &held, &counted);
    }
    let mut text = String::new();
    match encode(&mut text, &registry) {
        Ok(()) => text,
        Err(error) => format!("# the metrics could not be written: {error}\n"),
    }
}
