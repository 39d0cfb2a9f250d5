#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::indexing_slicing)] // does I/O
//! I/O: what a node keeps in its own memory and on its own disk.
//!
//! [`Records`] are the small durable facts of a node (its boot counter, its membership, the members
//! it knows, uses of tokens) in RocksDB; [`Identity`] is its secret key in a file of its own;
//! [`dram_pool`] reserves the DRAM tier; [`nvme`] keeps blocks in extent files with RocksDB as their
//! index.

pub mod bench;
mod dram;
mod identity;
pub mod nvme;
mod records;

pub use dram::{DramError, dram_pool, dram_slots};
pub use identity::{Identity, IdentityError};
pub use records::{Records, RecordsError};
