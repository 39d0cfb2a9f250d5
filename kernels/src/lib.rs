//! The muscles: mapped files and memory regions. The only crate with `unsafe`.
//!
//! * [`MappedFile`]: a whole file as bytes, read lazily by the kernel (weights).
//! * [`Pool`]: DRAM slots for blocks; who may read or write a slot is checked here, by an atomic
//!   word per slot, so that no caller can make two parties meet in one slot.
//! * [`prefer_huge_pages`]: advice about memory that is read from end to end (weights).
//!
//! Knows nothing of requests, peers or block keys. Every `unsafe` block states why it is sound.

mod huge;
mod mapped;
mod pool;
pub mod simd;

pub use huge::prefer_huge_pages;
pub use mapped::MappedFile;
pub use pool::{PAGE, Pool, PoolError, SlotReader, SlotWriter};
