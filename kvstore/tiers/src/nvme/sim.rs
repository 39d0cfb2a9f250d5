//! A simulated disk and index: what a real machine may do to bytes, drawn from a seed.
//!
//! Both are handles: clones share one device, so that it outlives the tier that crashed on it.
//! [`SimDisk::crash`] and [`SimIndex::crash`] keep what a real disk may keep. Two kinds of faults
//! differ: those that an honest disk has (errors, full, slow, failed sync), after which the tier
//! owes exact results; and broken promises (lost or misdirected writes, flipped bits), after which
//! it owes only that no wrong byte is served.

mod disk;
mod index;
mod random;

pub use disk::{DiskFaults, SimDisk};
pub use index::{IndexFaults, SimIndex};
pub use random::Random;

#[cfg(test)]
mod tests;
