//! What `status` shows.

use crate::actors::shell::Mail;
use crate::node::Node;
use kvstore::Store;
use protocol::block::Tier;
use protocol::event::{MemberState, MemberView};
use serde_json::{Value, json};
use std::sync::{Arc, PoisonError};

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

fn member(view: &MemberView) -> Value {
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
        "engines": engines,
        "blocks": { "gpu": view.blocks[0], "dram": view.blocks[1], "nvme": view.blocks[2] },
    })
}

impl Node {
    /// The status document of design §5.
    pub(crate) async fn status(self: &Arc<Self>) -> Value {
        let nodes: Vec<Value> = {
            let views = self.views.read().unwrap_or_else(PoisonError::into_inner);
            views.values().map(member).collect()
        };
        let index = self.placement.index.stats();
        json!({
            "cluster": self.membership().cluster().to_string(),
            "self": self.id.to_string(),
            "nodes": nodes,
            "index": { "entries": index.entries, "bytes": index.bytes, "lag_ms": self.config.gossip.batch_ms },
        })
    }
}
