//! What `status` shows.

use crate::actors::shell::Mail;
use crate::node::Node;
use kvstore::Store;
use protocol::block::Tier;
use protocol::event::{MemberState, MemberView};
use serde_json::{Value, json};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tiers::nvme::{IoMode, NvmeState, NvmeStatus};
use transfer::{PathStats, Via};

/// Asks the block manager for its counters.
pub(crate) async fn store_stats(node: &Node) -> Option<kvstore::Stats> {
    let (sender, answer) = tokio::sync::oneshot::channel();
    let question = move |machine: &dyn std::any::Any| {
        if let Some(store) = machine.downcast_ref::<Store>() {
            let _ = sender.send(store.stats());
        }
    };
    node.board.machines()?.store.cast(Mail::Ask(Box::new(question))).ok()?;
    answer.await.ok()
}

/// Asks the machine of replicated records what it holds and has counted.
pub(crate) async fn records(node: &Node) -> Option<(state::Stats, state::Counters)> {
    let (sender, answer) = tokio::sync::oneshot::channel();
    let question = move |machine: &dyn std::any::Any| {
        if let Some(state) = machine.downcast_ref::<state::State>() {
            let _ = sender.send((state.stats(), *state.counters()));
        }
    };
    node.board.machines()?.state.cast(Mail::Ask(Box::new(question))).ok()?;
    answer.await.ok()
}

/// Blocks held: engine, DRAM, NVMe.
pub(crate) async fn blocks(node: &Node) -> [u64; 3] {
    let mut held = [0; 3];
    for tier in store_stats(node).await.map(|stats| stats.tiers).unwrap_or_default() {
        let place = match tier.tier {
            Tier::Engine(_) => 0,
            Tier::Dram => 1,
            Tier::Nvme => 2,
        };
        held[place] += u64::from(tier.blocks);
    }
    held
}

fn state(state: MemberState) -> &'static str {
    match state {
        MemberState::Alive => "alive",
        MemberState::Suspect => "suspect",
        MemberState::Draining => "draining",
        MemberState::Left => "left",
        MemberState::Dead => "dead",
    }
}

/// How a member is reached from here: `quic`, or `tls-tcp` where UDP does not get through.
fn path(path: &PathStats) -> Value {
    json!({
        "via": path.via.map(Via::name),
        "rtt_ms": path.rtt_ms,
        "bandwidth_mb_s": path.bandwidth_bytes_s.map(|rate| rate / 1e6),
        "failures": path.failures,
        "corrupt": path.corrupt,
        "quarantined_ms": path.quarantined_ms,
    })
}

fn member(view: &MemberView, paths: &[PathStats]) -> Value {
    let to = paths.iter().find(|path| path.node == view.node);
    let engines: Vec<Value> = view
        .engines
        .iter()
        .map(|engine| {
            let load = &engine.load;
            json!({
                "name": format!("{}/{}", engine.kind, engine.engine.0),
                "model": engine.model,
                "load": {
                    "running": load.running,
                    "waiting": load.waiting,
                    "seats": load.seats,
                    "prefill_tokens": load.prefill_tokens,
                    "active_blocks": load.active_blocks,
                    "total_blocks": load.total_blocks,
                    "prefill_tokens_s": load.prefill_rate,
                    "decode_ms": load.decode_ms,
                },
            })
        })
        .collect();
    json!({
        "id": view.node.to_string(),
        "state": state(view.state),
        "http": view.contact.http,
        "site": view.contact.site,
        "incarnation": view.incarnation.counter,
        "path": to.map(path),
        "engines": engines,
        "blocks": { "gpu": view.blocks[0], "dram": view.blocks[1], "nvme": view.blocks[2] },
    })
}

/// Longest wait for the NVMe tier's figures: a disk that hangs must not hang `status`.
const DISK_WITHIN: Duration = Duration::from_secs(1);

/// The NVMe tier's figures; `None` without a tier, or when it does not answer.
pub(crate) async fn disk(node: &Node) -> Option<NvmeStatus> {
    let tier = node.board.disk()?;
    let asked = tokio::task::spawn_blocking(move || tier.status());
    tokio::time::timeout(DISK_WITHIN, asked).await.ok()?.ok()
}

fn nvme(status: &NvmeStatus) -> Value {
    let (state, reason) = match &status.state {
        NvmeState::Serving => ("serving", None),
        NvmeState::Quarantined(reason) => ("quarantined", Some(reason)),
    };
    let io = match status.io {
        IoMode::Direct => "direct",
        IoMode::Buffered => "buffered",
    };
    json!({
        "state": state,
        "reason": reason,
        "io": io,
        "slots": status.slots,
        "blocks": status.blocks,
        "bytes": status.data_bytes,
        "limit_bytes": status.limit,
        "index_bytes": status.index_bytes,
        "quarantines": status.quarantines,
    })
}

impl Node {
    /// The status document of design §5.
    pub(crate) async fn status(self: &Arc<Self>) -> Value {
        let paths = self.transfer.paths();
        let nodes: Vec<Value> = {
            let views = self.views.read().unwrap_or_else(PoisonError::into_inner);
            views.values().map(|view| member(view, &paths)).collect()
        };
        let index = self.placement.index.stats();
        let disk = disk(self).await;
        json!({
            "cluster": self.membership().cluster().to_string(),
            "self": self.id.to_string(),
            "nodes": nodes,
            "nvme": disk.as_ref().map(nvme),
            "records": records(self).await.map(|(held, _)| crate::state::told(&held)),
            "index": { "entries": index.entries, "bytes": index.bytes, "lag_ms": self.config.gossip.batch_ms },
        })
    }
}
