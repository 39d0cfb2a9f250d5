//! The NVMe tier: blocks in preallocated extent files, their names in an index.
//!
//! * [`Disk`] and [`Index`] are the two things that fail: real ones ([`ExtentFiles`],
//!   [`RocksIndex`]) and simulated ones ([`sim`]).
//! * [`Nvme`] is the tier itself over any pair of them: where a slot lies, in which order things
//!   become durable, what is verified, what an earlier life left. It has no threads and no clock.
//! * [`NvmeTier`] runs an [`Nvme`] on worker threads and speaks [`protocol::disk`].
//!
//! Order of a write: data, fdatasync, index record (synced). Order of a reuse: the old record's
//! removal is durable before the first byte of the new block is written. So whatever a crash
//! leaves, a record in the index names bytes that are whole, as long as the disk keeps its word;
//! where it does not, the signed content digest says so before anyone sees the bytes.

pub(crate) mod bench_records;
mod bounce;
mod commit;
mod core;
mod disk;
mod files;
mod index;
mod layout;
mod open;
mod record;
mod rocks;
pub mod sim;
mod tier;

pub use self::core::{Counters, Nvme, ReadError, Staged, WriteError, WriteJob};
pub use bounce::AlignedBuffer;
pub use disk::{Disk, DiskError, FileId};
pub use files::ExtentFiles;
pub use index::{Batch, Index};
pub use layout::{EXTENT_BYTES, Layout, SECTOR, nvme_slots};
pub use open::{NvmeError, OpenOptions, OpenReport, Opened};
pub use rocks::RocksIndex;
pub use tier::{
    Clock, Events, Folder, IoMode, Media, Medium, NvmeConfig, NvmeState, NvmeStatus, NvmeTier,
};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks; a thread that panicked while it held the lock left the state whole (no update here is
/// done in two steps that can fail between).
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
