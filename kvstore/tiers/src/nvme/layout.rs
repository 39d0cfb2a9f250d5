//! Where a slot lies.

use super::disk::FileId;
use super::open::NvmeError;
use protocol::block::{SlotId, StorageNamespace};

/// Unit of alignment of everything written: no disk has larger logical sectors.
pub const SECTOR: u64 = 4096;

/// Bytes of one extent file (less where a block does not divide it).
pub const EXTENT_BYTES: u64 = 1 << 30;

/// Bytes kept for the probe area.
pub(super) const PROBE_BYTES: u64 = SECTOR;

/// Slots of equal size in extents of equal size; the last extent may be shorter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Bytes of a slot: the block rounded up to whole sectors, the size class of its extents.
    pub stride: u64,
    /// Slots of a whole extent.
    pub extent_slots: u32,
    /// Slots in all.
    pub slots: u32,
}

impl Layout {
    /// As many slots for blocks of `storage` as fit in `limit` bytes.
    ///
    /// # Errors
    /// [`NvmeError::TooSmall`] when not one fits.
    pub fn new(
        storage: &StorageNamespace,
        limit: u64,
        extent_bytes: u64,
    ) -> Result<Self, NvmeError> {
        let block_bytes = storage.block_bytes.max(1);
        let stride = block_bytes.checked_next_multiple_of(SECTOR).unwrap_or(u64::MAX);
        let slots = limit.saturating_sub(PROBE_BYTES).checked_div(stride).unwrap_or(0);
        if slots == 0 {
            return Err(NvmeError::TooSmall { limit, block: stride.saturating_add(PROBE_BYTES) });
        }
        let slots = u32::try_from(slots).unwrap_or(u32::MAX - 1);
        let extent_slots = extent_bytes.checked_div(stride).unwrap_or(1).max(1);
        let extent_slots = u32::try_from(extent_slots).unwrap_or(u32::MAX);
        Ok(Self { block_bytes, stride, extent_slots, slots })
    }

    /// Extent and offset of a slot, `None` outside.
    pub fn place(&self, slot: SlotId) -> Option<(FileId, u64)> {
        if slot.0 >= self.slots {
            return None;
        }
        let extent = slot.0.checked_div(self.extent_slots)?;
        let within = slot.0.checked_rem(self.extent_slots)?;
        Some((FileId(extent), u64::from(within) * self.stride))
    }

    /// Number of extents.
    pub fn extents(&self) -> u32 {
        self.slots.div_ceil(self.extent_slots)
    }

    /// Bytes of an extent when all its slots are there.
    pub fn extent_bytes(&self, extent: FileId) -> u64 {
        let before = u64::from(extent.0) * u64::from(self.extent_slots);
        let here = u64::from(self.slots).saturating_sub(before).min(u64::from(self.extent_slots));
        here * self.stride
    }
}

/// Number of slots that an NVMe tier of `limit` bytes has for blocks of `storage`.
///
/// # Errors
/// [`NvmeError::TooSmall`] when not one fits.
pub fn nvme_slots(limit: u64, storage: &StorageNamespace) -> Result<u32, NvmeError> {
    Layout::new(storage, limit, EXTENT_BYTES).map(|layout| layout.slots)
}

#[cfg(test)]
mod tests;
