//! The block manager: which block lives in which slot of which tier.
//!
//! Pure: [`Store`] takes what happens ([`In`]) and says what is to be done ([`Out`]); it never
//! sees a byte of a block, a socket or a clock. It leases slots of the engines' pools to requests,
//! brings known blocks up from DRAM, NVMe or peers, writes sealed blocks through to DRAM and on to
//! NVMe, lends blocks to peers, and evicts leaf first.
//!
//! What always holds: a slot is free, leased, cached or draining, and the four add up to the pool;
//! a block is announced only while it is usable, and its removal before its slot is used again;
//! a block's parent is in every tier that holds the block; a slot that an operation reads or
//! writes is not handed out until that operation has ended; each lease of a slot has a generation
//! of its own. `Store::handle` is the one door; `docs/architecture.md` draws the three paths.

mod admission;
mod buggify;
mod by_key;
mod config;
mod disk;
mod durable;
mod flight;
mod inbound;
mod lease;
mod messages;
mod offload;
mod onboard;
mod ops;
mod pool;
mod prefetch;
mod reads;
mod retain;
mod stats;
mod store;
mod tier;

pub use buggify::Buggify;
pub use config::{Config, ConfigError, Limits};
pub use messages::{In, Out, Prefetch, PrefetchId, Prepare};
pub use pool::SlotCounts;
pub use stats::{Counters, Stats, TierStats};
pub use store::Store;
