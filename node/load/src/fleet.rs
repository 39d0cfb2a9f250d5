//! A cluster of node processes on loopback, for the demo, benchmarks and end-to-end tests.
//!
//! Node 0 starts the cluster, the others join it with node 0's token. Everything lives in one
//! folder: `nX/data` (the node's own), `nX/log` (its stderr) and `nX/config.toml`. Dropping the
//! fleet kills every process, waits for it and removes the folder, also when the test panics; a
//! program that may be interrupted drops it when [`interrupted`] resolves.

mod ports;
mod process;
mod status;

pub use process::Node;
pub use status::{EngineStatus, HeldBlocks, IndexStatus, NodeStatus, Status};

use crate::client::Client;
use crate::error::LoadError;
use process::Launch;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Between two looks at the cluster while waiting for a state.
const POLL: Duration = Duration::from_millis(50);

/// What one node gets beyond the options of all.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// TOML text after the common one.
    pub config: String,
    /// Further flags.
    pub args: Vec<String>,
    /// Whether it is expected to have an engine.
    pub serving: bool,
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self { config: String::new(), args: Vec::new(), serving: true }
    }
}

/// How to start a fleet.
#[derive(Debug, Clone)]
pub struct FleetOptions {
    /// The `dynamo-node` binary.
    pub binary: PathBuf,
    /// Number of nodes.
    pub nodes: u32,
    /// Folder of the fleet; it must be absent or empty, and is removed on drop. None takes a
    /// fresh temporary one.
    pub root: Option<PathBuf>,
    /// Keep the folder on drop (logs of a failed run).
    pub keep_root: bool,
    /// `--model`.
    pub model: Option<String>,
    /// `--policy`.
    pub policy: Option<String>,
    /// TOML text in every node's configuration file.
    pub config: String,
    /// Per node, by position; missing ones take the default.
    pub per_node: Vec<NodeOptions>,
    /// Environment of every node. `DYNAMO_*` variables of this process are not passed on.
    pub env: Vec<(String, String)>,
    /// Longest wait for a ready line, and for the cluster to be whole.
    pub ready_within: Duration,
}

impl FleetOptions {
    /// `nodes` nodes with defaults in a fresh temporary folder.
    pub fn new(binary: impl Into<PathBuf>, nodes: u32) -> Self {
        Self {
            binary: binary.into(),
            nodes,
            root: None,
            keep_root: false,
            model: None,
            policy: None,
            config: String::new(),
            per_node: Vec::new(),
            env: Vec::new(),
            ready_within: Duration::from_secs(120),
        }
    }

    fn node(&self, index: usize) -> NodeOptions {
        self.per_node.get(index).cloned().unwrap_or_default()
    }

    fn launch(&self, root: &Path, index: usize) -> Launch {
        let node = self.node(index);
        let mut args = node.args;
        for (flag, value) in [("--model", &self.model), ("--policy", &self.policy)] {
            if let Some(value) = value {
                args.extend([flag.to_owned(), value.clone()]);
            }
        }
        Launch {
            binary: self.binary.clone(),
            index,
            folder: root.join(format!("n{index}")),
            config: [self.config.as_str(), node.config.as_str()].join("\n"),
            args,
            env: self.env.clone(),
            ready_within: self.ready_within,
        }
    }
}

/// Running nodes.
#[derive(Debug)]
pub struct Fleet {
    // First, so that processes end before their folder goes.
    nodes: Vec<Node>,
    root: Root,
    client: Client,
    options: FleetOptions,
}

impl Fleet {
    /// Starts the nodes and waits until every one of them sees all of them alive and serving.
    pub async fn start(options: FleetOptions) -> Result<Self, LoadError> {
        let root = Root::take(options.root.as_deref(), options.keep_root)?;
        let client = Client::new(Duration::from_secs(10))?;
        let mut fleet = Self { nodes: Vec::new(), root, client, options };
        if fleet.options.nodes == 0 {
            return Ok(fleet);
        }
        let launch = |index| fleet.options.launch(&fleet.root.path, index);
        let first = Node::start(launch(0), None).await?;
        let seed = (first.cluster_addr(), first.data_dir().join("join-token"));
        let joins: Vec<_> = (1..fleet.options.nodes as usize)
            .map(|index| Node::start(launch(index), Some(seed.clone())))
            .collect();
        fleet.nodes.push(first);
        // At the first failure the others are dropped, which kills their processes.
        fleet.nodes.extend(futures::future::try_join_all(joins).await?);
        fleet.wait_whole(fleet.options.ready_within).await?;
        Ok(fleet)
    }

    /// The nodes, by position.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The node at a position.
    ///
    /// # Panics
    /// When there is no such position.
    pub fn node(&self, index: usize) -> &Node {
        &self.nodes[index]
    }

    /// The node at a position, to be killed or restarted.
    ///
    /// # Panics
    /// When there is no such position.
    pub fn node_mut(&mut self, index: usize) -> &mut Node {
        &mut self.nodes[index]
    }

    /// Position of a node id, or none.
    pub fn position(&self, node_id: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.node_id() == node_id)
    }

    /// The folder with the nodes' data and logs.
    pub fn root(&self) -> &Path {
        &self.root.path
    }

    /// What the node at a position says about the cluster.
    pub async fn status(&self, index: usize) -> Result<Status, LoadError> {
        status::ask(&self.client, self.node(index).http()).await
    }

    /// Waits until every running node sees every running node alive, with engines where expected.
    pub async fn wait_whole(&self, within: Duration) -> Result<(), LoadError> {
        let running: Vec<(&str, bool)> = self
            .nodes
            .iter()
            .filter(|node| node.running())
            .map(|node| (node.node_id(), self.options.node(node.index()).serving))
            .collect();
        let whole = |status: &Status| {
            running.iter().all(|(id, serving)| {
                let node = status.nodes.iter().find(|node| node.id == *id);
                node.is_some_and(|n| n.state == "alive" && (!serving || !n.engines.is_empty()))
            })
        };
        let expected = format!("{} nodes alive and serving on each", running.len());
        self.wait(within, &expected, whole).await.map(|_| ())
    }

    /// Waits until no running node sees this one alive any more; returns how long that took.
    pub async fn wait_gone(&self, node_id: &str, within: Duration) -> Result<Duration, LoadError> {
        let gone = |status: &Status| {
            !status.nodes.iter().any(|node| node.id == node_id && node.state == "alive")
        };
        self.wait(within, &format!("node {node_id} not alive"), gone).await
    }

    /// Waits until `holds` is true of every running node's status; returns how long that took.
    pub async fn wait(
        &self,
        within: Duration,
        expected: &str,
        holds: impl Fn(&Status) -> bool,
    ) -> Result<Duration, LoadError> {
        let started = Instant::now();
        loop {
            let mut missing = None;
            for node in self.nodes.iter().filter(|node| node.running()) {
                match status::ask(&self.client, node.http()).await {
                    Ok(status) if holds(&status) => {}
                    Ok(status) => {
                        missing = Some(format!("n{} sees {}", node.index(), status.summary()));
                    }
                    Err(error) => missing = Some(format!("n{}: {error}", node.index())),
                }
            }
            let Some(seen) = missing else {
                return Ok(started.elapsed());
            };
            if started.elapsed() >= within {
                return Err(LoadError::Cluster {
                    seconds: within.as_secs(),
                    expected: expected.to_owned(),
                    seen,
                });
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // All are killed before the first is waited for.
        for node in &mut self.nodes {
            node.kill_now();
        }
    }
}

/// The fleet's folder.
#[derive(Debug)]
struct Root {
    path: PathBuf,
    keep: bool,
}

impl Root {
    fn take(path: Option<&Path>, keep: bool) -> Result<Self, LoadError> {
        let Some(path) = path else {
            let folder = tempfile::Builder::new().prefix("dynamo-fleet-").tempdir();
            let folder = folder.map_err(LoadError::io("make a temporary folder"))?;
            return Ok(Self { path: folder.keep(), keep });
        };
        let what = format!("use the folder {}", path.display());
        std::fs::create_dir_all(path).map_err(LoadError::io(&what))?;
        let mut entries = std::fs::read_dir(path).map_err(LoadError::io(&what))?;
        if entries.next().is_some() {
            let full = std::io::Error::other("it is not empty");
            return Err(LoadError::io(what)(full));
        }
        Ok(Self { path: path.to_owned(), keep })
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        if !self.keep {
            // Nothing can be done about a folder that stays; it is a temporary one.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// Resolves when this process is asked to end: SIGINT, SIGTERM or SIGHUP.
pub async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let wait = |kind: SignalKind| async move {
        match signal(kind) {
            Ok(mut stream) => {
                stream.recv().await;
            }
            // Without a handler the signal keeps its default action: the process ends.
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = wait(SignalKind::interrupt()) => {}
        () = wait(SignalKind::terminate()) => {}
        () = wait(SignalKind::hangup()) => {}
    }
}

#[cfg(test)]
mod tests;
