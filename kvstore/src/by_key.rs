//! Slots by the names of their blocks.
//!
//! A prompt of 100,000 tokens asks for 6,250 blocks at a time. A tree of that many keys costs a
//! dozen cache misses for each; a name is the output of a keyed hash already, so its own bits find
//! the place. The hasher has no seed, and nothing iterates over the map: runs repeat exactly.

use protocol::block::{BlockKey, SlotId};
#[allow(clippy::disallowed_types)] // a hasher without a seed, never iterated
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Which slot holds a block.
#[derive(Debug, Default)]
#[allow(clippy::disallowed_types)] // as above
pub(crate) struct ByKey(HashMap<BlockKey, SlotId, BuildHasherDefault<Fold>>);

/// Folds what a key is made of to 64 bits.
#[derive(Default)]
pub(crate) struct Fold(u64);

impl Hasher for Fold {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = self.0.rotate_left(7) ^ n;
    }

    fn write_u128(&mut self, n: u128) {
        self.write_u64((n >> 64) as u64);
        self.write_u64(n as u64);
    }
}

impl ByKey {
    pub(crate) fn get(&self, key: &BlockKey) -> Option<SlotId> {
        self.0.get(key).copied()
    }

    pub(crate) fn insert(&mut self, key: BlockKey, slot: SlotId) {
        self.0.insert(key, slot);
    }

    pub(crate) fn remove(&mut self, key: &BlockKey) {
        self.0.remove(key);
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::block::StorageId;
    use protocol::hash::PrefixHash;

    #[test]
    fn a_block_is_found_by_its_whole_name() {
        let key = |prefix: u128, storage: u64| BlockKey {
            prefix: PrefixHash(prefix),
            storage: StorageId(storage),
        };
        let mut slots = ByKey::default();
        // Names that fold to the same bits differ all the same.
        let keys = [key(1, 1), key(1 << 64, 1), key(1, 2), key(1 << 71, 1), key(128, 1)];
        for (slot, key) in (0..).zip(keys) {
            slots.insert(key, SlotId(slot));
        }
        for (slot, key) in (0..).zip(keys) {
            assert_eq!(slots.get(&key), Some(SlotId(slot)));
        }
        slots.remove(&keys[0]);
        assert_eq!((slots.get(&keys[0]), slots.len()), (None, 4));
        slots.clear();
        assert_eq!(slots.get(&keys[1]), None);
    }
}
