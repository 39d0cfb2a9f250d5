//! What goes wrong, and how often.

use super::{ScenarioError, within};
use serde::{Deserialize, Serialize};

/// Faults. All are off by default. Shares are of 1; rates are per minute for the whole cluster,
/// except where the key says otherwise, and cover the safety phase only.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Faults {
    /// Share of topic messages lost on the way to a node (0).
    pub topic_loss: f64,
    /// Share of topic messages that arrive twice (0).
    pub topic_twice: f64,
    /// Share of topic messages that come up to two seconds late, behind later ones (0).
    pub topic_late: f64,
    /// Share of direct gossip frames dropped at the sender, whose queue is full (0).
    pub frame_loss: f64,
    /// Share of local messages that wait up to 5 ms for a busy actor (0).
    pub busy_actors: f64,
    /// Connections between two nodes that break (0).
    pub breaks_per_minute: f64,
    /// Partitions into two halves (0).
    pub cuts_per_minute: f64,
    /// Ways from one node to another that are closed in one direction only (0).
    pub one_way_cuts_per_minute: f64,
    /// Pairs that can reach each other only through third nodes (0).
    pub pair_cuts_per_minute: f64,
    /// Longest cut of any kind, in seconds (6).
    pub cut_max_s: u64,
    /// Nodes that stand still (0).
    pub freezes_per_minute: f64,
    /// Longest freeze, in milliseconds (0: 10000 where freezes happen).
    pub freeze_max_ms: u64,
    /// Jumps of a node's wall clock, by up to an hour (0).
    pub clock_jumps_per_minute: f64,
    /// Nodes that die at once and come back within a few seconds (0).
    pub crashes_per_minute: f64,
    /// Share of crashes after which the blocks on disk are gone (0).
    pub disk_lost: f64,
    /// Engines that die and are started again (0).
    pub engine_deaths_per_minute: f64,
    /// Second processes that start with a copy of a node's folder (0).
    pub twins_per_minute: f64,
    /// Nodes that are stopped and started with an older copy of their folder (0).
    pub rollbacks_per_minute: f64,
    /// Members that announce blocks they do not hold, and send blocks that are not what they signed.
    pub liars: u32,
    /// Forged frames put on the topic by a member: heartbeats under another's name (0).
    pub forgeries_per_minute: f64,
    /// Share of blocks that arrive with a flipped bit (0).
    pub transit_flips: f64,
    /// Copies into DRAM that land late, up to so many milliseconds (0).
    pub late_writes_ms: u64,
    /// Share of disk operations that take up to a second (0).
    pub disk_slow: f64,
    /// Share of disk reads and writes that fail (0).
    pub disk_errors: f64,
    /// Share of disk writes that land elsewhere (0).
    pub disk_misdirected: f64,
    /// Share of disk syncs that fail, with the loss of what was to be synced (0).
    pub disk_sync_errors: f64,
    /// Share of disk writes that are lost though reported done (0).
    pub disk_lost_writes: f64,
    /// Bits that flip on the disks, per minute and node (0).
    pub disk_flips_per_minute: f64,
    /// Bits that flip in DRAM, per minute and node (0).
    pub dram_flips_per_minute: f64,
    /// The disk is full when so many blocks are on it; 0 is never (0).
    pub disk_full_blocks: u32,
    /// Nodes whose handshake names a newer protocol version than the others speak, with the present
    /// one as the oldest (0).
    pub newer_nodes: u32,
}

/// A kind of fault: its name, and how to turn it off.
pub(crate) type Kind = (&'static str, fn(&mut Faults));

impl Faults {
    /// Whether the disks keep what they promise: what was synced stays as it was.
    pub fn disks_are_honest(&self) -> bool {
        self.disk_misdirected == 0.0
            && self.disk_lost_writes == 0.0
            && self.disk_flips_per_minute == 0.0
    }

    /// Whether DRAM keeps what was written to it.
    pub fn dram_is_honest(&self) -> bool {
        self.dram_flips_per_minute == 0.0
    }

    /// Every kind of fault, for shrinking.
    pub(crate) fn kinds() -> &'static [Kind] {
        &[
            ("topic", |f| (f.topic_loss, f.topic_twice, f.topic_late) = (0.0, 0.0, 0.0)),
            ("frame_loss", |f| f.frame_loss = 0.0),
            ("busy_actors", |f| f.busy_actors = 0.0),
            ("breaks", |f| f.breaks_per_minute = 0.0),
            ("cuts", |f| f.cuts_per_minute = 0.0),
            ("one_way_cuts", |f| f.one_way_cuts_per_minute = 0.0),
            ("pair_cuts", |f| f.pair_cuts_per_minute = 0.0),
            ("freezes", |f| f.freezes_per_minute = 0.0),
            ("clock_jumps", |f| f.clock_jumps_per_minute = 0.0),
            ("crashes", |f| f.crashes_per_minute = 0.0),
            ("disk_lost", |f| f.disk_lost = 0.0),
            ("engine_deaths", |f| f.engine_deaths_per_minute = 0.0),
            ("twins", |f| f.twins_per_minute = 0.0),
            ("rollbacks", |f| f.rollbacks_per_minute = 0.0),
            ("liars", |f| f.liars = 0),
            ("forgeries", |f| f.forgeries_per_minute = 0.0),
            ("transit_flips", |f| f.transit_flips = 0.0),
            ("late_writes", |f| f.late_writes_ms = 0),
            ("disk_slow", |f| f.disk_slow = 0.0),
            ("disk_errors", |f| f.disk_errors = 0.0),
            ("disk_misdirected", |f| f.disk_misdirected = 0.0),
            ("disk_sync_errors", |f| f.disk_sync_errors = 0.0),
            ("disk_lost_writes", |f| f.disk_lost_writes = 0.0),
            ("disk_flips", |f| f.disk_flips_per_minute = 0.0),
            ("dram_flips", |f| f.dram_flips_per_minute = 0.0),
            ("disk_full", |f| f.disk_full_blocks = 0),
            ("newer_nodes", |f| f.newer_nodes = 0),
        ]
    }

    pub(super) fn check(&self, nodes: u32) -> Result<(), ScenarioError> {
        within("faults.liars", self.liars, 0, nodes, "at most the nodes")?;
        within("faults.newer_nodes", self.newer_nodes, 0, nodes, "at most the nodes")?;
        within("faults.cut_max_s", self.cut_max_s, 0, 3600, "0 to 3600")?;
        within("faults.freeze_max_ms", self.freeze_max_ms, 0, 60_000, "0 to 60000")?;
        within("faults.late_writes_ms", self.late_writes_ms, 0, 60_000, "0 to 60000")?;
        let shares = [
            ("faults.topic_loss", self.topic_loss),
            ("faults.topic_twice", self.topic_twice),
            ("faults.topic_late", self.topic_late),
            ("faults.frame_loss", self.frame_loss),
            ("faults.busy_actors", self.busy_actors),
            ("faults.disk_lost", self.disk_lost),
            ("faults.transit_flips", self.transit_flips),
            ("faults.disk_slow", self.disk_slow),
            ("faults.disk_errors", self.disk_errors),
            ("faults.disk_misdirected", self.disk_misdirected),
            ("faults.disk_sync_errors", self.disk_sync_errors),
            ("faults.disk_lost_writes", self.disk_lost_writes),
        ];
        shares.into_iter().try_for_each(|(key, share)| within(key, share, 0.0, 1.0, "0 to 1"))?;
        let rates = [
            ("faults.breaks_per_minute", self.breaks_per_minute),
            ("faults.cuts_per_minute", self.cuts_per_minute),
            ("faults.one_way_cuts_per_minute", self.one_way_cuts_per_minute),
            ("faults.pair_cuts_per_minute", self.pair_cuts_per_minute),
            ("faults.freezes_per_minute", self.freezes_per_minute),
            ("faults.clock_jumps_per_minute", self.clock_jumps_per_minute),
            ("faults.crashes_per_minute", self.crashes_per_minute),
            ("faults.engine_deaths_per_minute", self.engine_deaths_per_minute),
            ("faults.twins_per_minute", self.twins_per_minute),
            ("faults.rollbacks_per_minute", self.rollbacks_per_minute),
            ("faults.forgeries_per_minute", self.forgeries_per_minute),
            ("faults.disk_flips_per_minute", self.disk_flips_per_minute),
            ("faults.dram_flips_per_minute", self.dram_flips_per_minute),
        ];
        rates.into_iter().try_for_each(|(key, rate)| within(key, rate, 0.0, 6000.0, "0 to 6000"))
    }
}
