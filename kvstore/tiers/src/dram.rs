//! The size of the DRAM tier.

use kernels::Pool;
use protocol::block::StorageNamespace;
use std::sync::Arc;

/// Why there is no DRAM tier of the wanted size.
#[derive(Debug, thiserror::Error)]
pub enum DramError {
    /// Not one block fits.
    #[error("the DRAM limit of {limit} bytes holds no block of {block} bytes; raise it")]
    TooSmall {
        /// The limit.
        limit: u64,
        /// Memory that one block takes.
        block: u64,
    },
    /// The system gave no memory.
    #[error("cannot reserve {bytes} bytes for the DRAM tier: {reason}")]
    NoMemory {
        /// What was asked for.
        bytes: u64,
        /// What the system said.
        reason: std::io::Error,
    },
}

/// Number of blocks of `namespace` that fit in `limit` bytes. Each block takes whole pages.
pub fn dram_slots(limit: u64, namespace: &StorageNamespace) -> Result<u32, DramError> {
    let block = usize::try_from(namespace.block_bytes).map_or(usize::MAX, Pool::stride) as u64;
    match limit.checked_div(block).unwrap_or_default() {
        0 => Err(DramError::TooSmall { limit, block }),
        slots => Ok(u32::try_from(slots).unwrap_or(u32::MAX)),
    }
}

/// A pool of as many blocks of `namespace` as fit in `limit` bytes. Memory is taken when slots are
/// first used.
pub fn dram_pool(limit: u64, namespace: &StorageNamespace) -> Result<Arc<Pool>, DramError> {
    let slots = dram_slots(limit, namespace)?;
    let block = usize::try_from(namespace.block_bytes).unwrap_or(usize::MAX);
    Pool::new(block, slots).map_err(|reason| DramError::NoMemory { bytes: limit, reason })
}

#[cfg(test)]
mod tests;
