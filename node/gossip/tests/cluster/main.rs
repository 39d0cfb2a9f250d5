//! Whole clusters of gossip machines in one deterministic world: encoded bytes, a lossy topic,
//! direct streams that delay, drop and break.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)] // tests may panic

mod chaos;
mod donors;
mod faults;
mod frames;
mod hostile;
mod index;
mod liveness;
mod lives;
mod measure;
mod repair;
mod spread;
mod weather;
mod world;
