//! The muscles: mapped files and memory regions. The only crate with `unsafe`.
//!
//! * [`MappedFile`]: a whole file as bytes, read lazily by the kernel (weights).
//! * [`Pool`]: DRAM slots for blocks; who may read or write a slot is checked here, by an atomic
//!   word per slot, so that no caller can make two parties meet in one slot.
//!
//! Knows nothing of requests, peers or block keys. Every `unsafe` block states why it is sound.

mod mapped;
mod pool;
pub mod simd;

pub use mapped::MappedFile;
pub use pool::{PAGE, Pool, PoolError, SlotReader, SlotWriter};
