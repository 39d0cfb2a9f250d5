//! The simulated world: whole clusters in one deterministic process.
//!
//! Every node is the real pure machines (gossip, router, block manager, replicated records, admission,
//! mock engine) and
//! the real NVMe tier on a simulated disk, joined by the real wiring; every frame between nodes is
//! encoded and decoded; DRAM and disks hold real bytes. Time is virtual, and everything that is
//! random (delays, faults, load) follows from a seed: equal seeds and scenarios give equal digests.
//!
//! * [`Scenario`]: nodes, load, network and faults, from TOML, or [`Scenario::drawn`] from a seed.
//! * [`run`]: one run, with its [`Report`]; [`shrink`]: a smaller scenario that still goes wrong.
//! * [`Trace`]: a recorded load.
//! * [`Plant`]: bugs on purpose, for the tests of the checkers.
//!
//! A run has a safety phase, with faults, and a liveness phase, in which everything must come to rest.

mod ask;
mod blocks;
mod check;
mod clerks;
mod clients;
mod dice;
mod digest;
mod disk;
mod dram;
mod engine;
mod host;
mod mail;
mod net;
mod plant;
mod queue;
mod records;
mod report;
mod rim;
mod run;
mod scenario;
mod settle;
mod shrink;
mod topic;
mod trace;
mod weather;
mod world;

pub use check::{CHECKERS, Violation};
pub use plant::Plant;
pub use report::Report;
pub use scenario::{Cluster, Faults, Network, Scenario, ScenarioError, Workload};
pub use settle::{Options, run};
pub use shrink::{Shrunk, shrink};
pub use trace::{Trace, TraceError};
