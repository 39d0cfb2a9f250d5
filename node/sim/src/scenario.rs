//! What a run is: nodes, load, network, faults. Read from TOML; unknown keys are errors.

mod drawn;
mod faults;
#[cfg(test)]
mod tests;

pub use faults::Faults;

use protocol::hash::GRANULE;
use serde::{Deserialize, Serialize};

/// A scenario. Every key has a default, so that a file says only what it changes.
///
/// A run has two phases: *safety* (`seconds` long: load and faults) and *liveness* (faults healed,
/// no new turns: within `heal_seconds` every request has ended and all nodes agree).
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// Nodes (5).
    pub nodes: u32,
    /// Virtual seconds with load and faults (20).
    pub seconds: u32,
    /// Virtual seconds within which everything must come to rest afterwards (90).
    pub heal_seconds: u32,
    /// Placement policy of every node: `kv`, `round-robin`, `random`, `power-of-two`,
    /// `least-loaded`, `session` (`kv`).
    pub policy: String,
    /// The nodes.
    pub cluster: Cluster,
    /// What clients ask.
    pub workload: Workload,
    /// What lies between nodes.
    pub network: Network,
    /// What goes wrong. Nothing, by default.
    pub faults: Faults,
}

/// Sizes and speeds of every node.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct Cluster {
    /// Engines per node (1).
    pub engines: u16,
    /// Tokens per block, a multiple of 16 (64).
    pub block_tokens: u32,
    /// Bytes per block, real ones in the simulated DRAM and disk (256).
    pub block_bytes: u32,
    /// Slots of an engine's pool, in blocks (512).
    pub engine_slots: u32,
    /// Slots of a node's DRAM, in blocks; 0 turns it off (1024).
    pub dram_slots: u32,
    /// Slots of a node's disk, in blocks; 0 turns it off (2048).
    pub nvme_slots: u32,
    /// Requests that run at once on a node (16).
    pub max_batch: u32,
    /// Most tokens of one engine step (8192).
    pub max_batched_tokens: u32,
    /// Longest prompt and answer together, in tokens (32768).
    pub context: u32,
    /// Divides the engine's step times; 1 is the published timing of Dynamo's mocker (1).
    pub speedup: f64,
    /// Within a strict tier no request is overtaken by one that arrives later by more than so many
    /// milliseconds, and a quarter of a second (5000).
    pub starvation_ms: u64,
    /// Mischief inside the machines that their contracts allow: early evictions, refusals (false).
    pub buggify: bool,
}

/// Clients. Agents are generated unless the caller brings a trace.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct Workload {
    /// Agent sessions at once; one that ends is followed by the next (8).
    pub sessions: u32,
    /// Groups of sessions; all agents of a group share system prompt and tools (2).
    pub families: u32,
    /// Turns of a lead agent, at least 1 (6).
    pub turns: u32,
    /// Sub-agents that a lead waits for in the middle of its work (1).
    pub sub_agents: u32,
    /// Turns of a sub-agent, at least 1 (3).
    pub sub_turns: u32,
    /// Tokens of the shared system prompt and tools (1024).
    pub system_tokens: u32,
    /// Tokens that a task or tool result adds, from 1 to twice this (160).
    pub turn_tokens: u32,
    /// Most tokens of an answer, from 1 to this (40).
    pub output_tokens: u32,
    /// Scales the pauses between turns: 1 is what was measured on coding agents, median 9 s (0.02).
    pub pause_scale: f64,
    /// Longest pause in milliseconds, after scaling (5000).
    pub pause_max_ms: u64,
    /// Share of requests with a priority from -5 to 5 (0.2).
    pub priorities: f64,
    /// Share of sessions that pin their system prompt for a few seconds (0.2).
    pub pins: f64,
    /// Share of requests whose reader takes 20 to 200 ms for each item (0).
    pub slow_readers: f64,
    /// Share of requests whose client goes away before the end (0).
    pub vanishing: f64,
    /// Clients that write, read and delete replicated records, one call at a time each (2).
    pub clerks: u32,
    /// A trace's times are multiplied by this (1).
    pub trace_time_scale: f64,
    /// A trace's lengths are divided by this, so that small pools can hold them (1).
    pub trace_shrink: u32,
    /// At most so many requests of a trace (100000).
    pub trace_requests: u32,
}

/// The network without faults.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct Network {
    /// Least one-way delay between two nodes, in microseconds (150).
    pub delay_min_us: u64,
    /// Greatest one-way delay; each pair has its own base between the two (3000).
    pub delay_max_us: u64,
    /// A node sends so many bytes per second (2000000: a block of 256 bytes in 0.13 ms).
    pub bytes_s: f64,
    /// Greatest delay of a topic message, in milliseconds (60).
    pub topic_delay_max_ms: u64,
    /// A connection ends after so many seconds of silence (5).
    pub idle_s: u64,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            nodes: 5,
            seconds: 20,
            heal_seconds: 90,
            policy: router::Policy::default().name().to_owned(),
            cluster: Cluster::default(),
            workload: Workload::default(),
            network: Network::default(),
            faults: Faults::default(),
        }
    }
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            engines: 1,
            block_tokens: 64,
            block_bytes: 256,
            engine_slots: 512,
            dram_slots: 1024,
            nvme_slots: 2048,
            max_batch: 16,
            max_batched_tokens: 8192,
            context: 32_768,
            speedup: 1.0,
            starvation_ms: 5000,
            buggify: false,
        }
    }
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            sessions: 8,
            families: 2,
            turns: 6,
            sub_agents: 1,
            sub_turns: 3,
            system_tokens: 1024,
            turn_tokens: 160,
            output_tokens: 40,
            pause_scale: 0.02,
            pause_max_ms: 5000,
            priorities: 0.2,
            pins: 0.2,
            slow_readers: 0.0,
            vanishing: 0.0,
            clerks: 2,
            trace_time_scale: 1.0,
            trace_shrink: 1,
            trace_requests: 100_000,
        }
    }
}

impl Default for Network {
    fn default() -> Self {
        Self {
            delay_min_us: 150,
            delay_max_us: 3000,
            bytes_s: 2e6,
            topic_delay_max_ms: 60,
            idle_s: 5,
        }
    }
}

/// Why a scenario cannot be run.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ScenarioError {
    /// Not TOML, or a key or value that is none.
    #[error("the scenario cannot be read: {0}")]
    Malformed(String),
    /// A value outside its range.
    #[error("{key} is {value}, must be {must}")]
    Value {
        /// Which.
        key: &'static str,
        /// As given.
        value: String,
        /// The range.
        must: &'static str,
    },
    /// The machines do not take it.
    #[error("the nodes cannot be built: {0}")]
    Machines(String),
}

fn within<T: PartialOrd + ToString>(
    key: &'static str,
    value: T,
    least: T,
    most: T,
    must: &'static str,
) -> Result<(), ScenarioError> {
    if value >= least && value <= most {
        return Ok(());
    }
    Err(ScenarioError::Value { key, value: value.to_string(), must })
}

impl Scenario {
    /// Reads a scenario from TOML.
    ///
    /// # Errors
    /// What is wrong, with the key.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        let scenario: Self =
            toml::from_str(text).map_err(|error| ScenarioError::Malformed(error.to_string()))?;
        scenario.check()?;
        Ok(scenario)
    }

    /// The scenario as TOML, every key written out.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).unwrap_or_default()
    }

    /// The policy.
    pub(crate) fn policy(&self) -> router::Policy {
        self.policy.parse().unwrap_or_default()
    }

    /// Finds the first value outside its range.
    ///
    /// # Errors
    /// Names the key and its range.
    pub fn check(&self) -> Result<(), ScenarioError> {
        within("nodes", self.nodes, 1, 1024, "1 to 1024")?;
        within("seconds", self.seconds, 1, 7 * 24 * 3600, "1 to 604800")?;
        within("heal_seconds", self.heal_seconds, 1, 24 * 3600, "1 to 86400")?;
        if let Err(error) = self.policy.parse::<router::Policy>() {
            return Err(ScenarioError::Malformed(error.to_string()));
        }
        let c = &self.cluster;
        within("cluster.engines", c.engines, 1, 16, "1 to 16")?;
        if c.block_tokens == 0 || !(c.block_tokens as usize).is_multiple_of(GRANULE) {
            let value = c.block_tokens.to_string();
            let must = "a multiple of 16";
            return Err(ScenarioError::Value { key: "cluster.block_tokens", value, must });
        }
        within("cluster.block_tokens", c.block_tokens, 16, 1024, "16 to 1024")?;
        within("cluster.block_bytes", c.block_bytes, 64, 1 << 20, "64 to 1048576")?;
        within("cluster.engine_slots", c.engine_slots, 4, 1 << 22, "4 to 4194304")?;
        within("cluster.dram_slots", c.dram_slots, 0, 1 << 22, "0 to 4194304")?;
        within("cluster.nvme_slots", c.nvme_slots, 0, 1 << 22, "0 to 4194304")?;
        if c.nvme_slots > 0 && c.dram_slots == 0 {
            let value = c.nvme_slots.to_string();
            let must = "0 without DRAM: blocks pass through it";
            return Err(ScenarioError::Value { key: "cluster.nvme_slots", value, must });
        }
        within("cluster.max_batch", c.max_batch, 1, 4096, "1 to 4096")?;
        let most = c.max_batched_tokens;
        within("cluster.max_batched_tokens", most, c.max_batch, 1 << 20, "max_batch to 1048576")?;
        let pool = c.engine_slots.saturating_mul(c.block_tokens);
        within("cluster.context", c.context, 64, pool.max(64), "64 to the tokens of a pool")?;
        within("cluster.speedup", c.speedup, 0.05, 1e6, "0.05 to 1000000")?;
        within("cluster.starvation_ms", c.starvation_ms, 100, 600_000, "100 to 600000")?;
        self.check_workload()?;
        let n = &self.network;
        within(
            "network.delay_max_us",
            n.delay_max_us,
            n.delay_min_us,
            10_000_000,
            "delay_min_us to 10000000",
        )?;
        within("network.bytes_s", n.bytes_s, 1.0, 1e12, "1 to 1e12")?;
        let late = n.topic_delay_max_ms;
        within("network.topic_delay_max_ms", late, 0, 60_000, "0 to 60000")?;
        within("network.idle_s", n.idle_s, 1, 600, "1 to 600")?;
        self.faults.check(self.nodes)
    }

    fn check_workload(&self) -> Result<(), ScenarioError> {
        let w = &self.workload;
        within("workload.sessions", w.sessions, 0, 100_000, "0 to 100000")?;
        within("workload.clerks", w.clerks, 0, 10_000, "0 to 10000")?;
        within("workload.families", w.families, 1, 100_000, "1 to 100000")?;
        within("workload.turns", w.turns, 1, 10_000, "1 to 10000")?;
        within("workload.sub_turns", w.sub_turns, 1, 10_000, "1 to 10000")?;
        within("workload.sub_agents", w.sub_agents, 0, 64, "0 to 64")?;
        within("workload.system_tokens", w.system_tokens, 0, 1 << 20, "0 to 1048576")?;
        within("workload.turn_tokens", w.turn_tokens, 1, 1 << 20, "1 to 1048576")?;
        within("workload.output_tokens", w.output_tokens, 1, 4096, "1 to 4096")?;
        within("workload.pause_max_ms", w.pause_max_ms, 0, 3_600_000, "0 to 3600000")?;
        within("workload.pause_scale", w.pause_scale, 0.0, 100.0, "0 to 100")?;
        within("workload.trace_time_scale", w.trace_time_scale, 0.0, 1e6, "0 to 1000000")?;
        within("workload.trace_shrink", w.trace_shrink, 1, 512, "1 to 512")?;
        let shares = [
            ("workload.priorities", w.priorities),
            ("workload.pins", w.pins),
            ("workload.slow_readers", w.slow_readers),
            ("workload.vanishing", w.vanishing),
        ];
        shares.into_iter().try_for_each(|(key, share)| within(key, share, 0.0, 1.0, "0 to 1"))
    }
}
