//! A node's DRAM: real bytes in slots with generations, as `kernels::Pool` keeps them.

use protocol::block::{Generation, SlotRef};

/// Why a slot cannot be used: it is in another generation, or outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stale;

#[derive(Clone)]
struct Slot {
    generation: Generation,
    bytes: Box<[u8]>,
}

/// Slots of equal size.
pub(crate) struct Dram {
    slots: Vec<Slot>,
    block_bytes: usize,
    /// Takes writes of any generation: a planted bug.
    pub(crate) careless: bool,
}

impl Dram {
    pub(crate) fn new(slots: u32, block_bytes: u32) -> Self {
        let empty = Slot { generation: Generation(0), bytes: Box::default() };
        Self {
            slots: vec![empty; slots as usize],
            block_bytes: block_bytes as usize,
            careless: false,
        }
    }

    /// The slot's bytes, to be written; moves it to the generation asked, which must not be older
    /// than the slot's.
    pub(crate) fn writer(&mut self, at: SlotRef) -> Result<&mut [u8], Stale> {
        let block_bytes = self.block_bytes;
        let slot = self.slots.get_mut(at.slot.0 as usize).ok_or(Stale)?;
        if at.generation < slot.generation && !self.careless {
            return Err(Stale);
        }
        slot.generation = slot.generation.max(at.generation);
        if slot.bytes.is_empty() {
            slot.bytes = vec![0; block_bytes].into();
        }
        Ok(&mut slot.bytes)
    }

    /// The slot's bytes in this generation.
    pub(crate) fn reader(&self, at: SlotRef) -> Result<&[u8], Stale> {
        let slot = self.slots.get(at.slot.0 as usize).ok_or(Stale)?;
        if slot.generation != at.generation || slot.bytes.is_empty() {
            return Err(Stale);
        }
        Ok(&slot.bytes)
    }

    /// Flips a bit of a slot that was written, wherever it is now.
    pub(crate) fn flip(&mut self, slot: usize, bit: usize) -> bool {
        let n = self.slots.len().max(1);
        let Some(slot) = self.slots.get_mut(slot % n) else { return false };
        let bits = slot.bytes.len() * 8;
        let Some(bit) = bit.checked_rem(bits) else { return false };
        let Some(byte) = slot.bytes.get_mut(bit / 8) else { return false };
        *byte ^= 1 << (bit % 8);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::block::SlotId;

    #[test]
    fn only_the_present_generation_is_read_and_no_older_one_writes() {
        let at = |generation| SlotRef { slot: SlotId(1), generation: Generation(generation) };
        let mut dram = Dram::new(2, 4);
        assert_eq!(dram.reader(at(0)), Err(Stale));
        dram.writer(at(2)).unwrap().fill(7);
        assert_eq!(dram.reader(at(2)), Ok(&[7; 4][..]));
        assert_eq!(dram.writer(at(1)), Err(Stale));
        assert_eq!(dram.reader(at(1)), Err(Stale));
        assert_eq!(dram.reader(at(3)), Err(Stale));
        assert!(dram.flip(1, 9));
        assert_eq!(dram.reader(at(2)), Ok(&[7, 5, 7, 7][..]));
        assert!(!dram.flip(0, 9), "an empty slot has no bits");
        let outside = SlotRef { slot: SlotId(2), generation: Generation(1) };
        assert_eq!(dram.writer(outside), Err(Stale));
    }
}
