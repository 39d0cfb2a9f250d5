//! What a node says about the cluster: `GET /admin/v1/status`.

use crate::client::Client;
use crate::error::LoadError;
use serde::Deserialize;

/// One node's view. Keys that are not listed here are ignored.
#[derive(Debug, Clone, Deserialize)]
pub struct Status {
    /// Cluster id.
    pub cluster: String,
    /// Id of the node that answers.
    #[serde(rename = "self")]
    pub me: String,
    /// Every node it knows, itself too.
    pub nodes: Vec<NodeStatus>,
    /// Its block index.
    #[serde(default)]
    pub index: IndexStatus,
}

/// A node as another sees it.
#[derive(Debug, Clone, Deserialize)]
pub struct NodeStatus {
    /// Node id.
    pub id: String,
    /// alive, suspect, draining, left or dead.
    pub state: String,
    /// Its engines.
    #[serde(default)]
    pub engines: Vec<EngineStatus>,
    /// Blocks it holds.
    #[serde(default)]
    pub blocks: HeldBlocks,
}

/// Blocks of a node, by tier.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub struct HeldBlocks {
    /// In engines' pools.
    pub gpu: u64,
    /// In DRAM.
    pub dram: u64,
    /// On NVMe.
    pub nvme: u64,
}

/// An engine.
#[derive(Debug, Clone, Deserialize)]
pub struct EngineStatus {
    /// Its model.
    #[serde(default)]
    pub model: String,
}

/// The block index.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub struct IndexStatus {
    /// Entries.
    pub entries: u64,
    /// Memory.
    pub bytes: u64,
}

impl Status {
    /// Number and states of the nodes, for messages.
    pub fn summary(&self) -> String {
        let states: Vec<String> = self
            .nodes
            .iter()
            .map(|node| {
                let id: String = node.id.chars().rev().take(6).collect();
                let id: String = id.chars().rev().collect();
                format!("…{id} {} ({} engines)", node.state, node.engines.len())
            })
            .collect();
        states.join(", ")
    }
}

/// Asks a node.
pub(super) async fn ask(client: &Client, http: &str) -> Result<Status, LoadError> {
    let url = format!("{http}/admin/v1/status");
    let value = client.get(&url).await?;
    serde_json::from_value(value)
        .map_err(|error| LoadError::Answer { url, reason: error.to_string() })
}
