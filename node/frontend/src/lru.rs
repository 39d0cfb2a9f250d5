//! A map of bounded size that forgets what was used longest ago.

use std::collections::BTreeMap;

/// The name of an entry.
pub(crate) type Digest = [u8; 32];

/// Bytes that an entry takes beside its content, roughly.
pub(crate) const ENTRY_BYTES: usize = 160;

/// Values by digest, with the bytes they take.
pub(crate) struct Lru<V> {
    entries: BTreeMap<Digest, Entry<V>>,
    /// Keys by last use.
    order: BTreeMap<u64, Digest>,
    uses: u64,
    bytes: usize,
    limit: usize,
}

struct Entry<V> {
    value: V,
    bytes: usize,
    used: u64,
}

impl<V: Clone> Lru<V> {
    pub(crate) fn new(limit: usize) -> Self {
        Self { entries: BTreeMap::new(), order: BTreeMap::new(), uses: 0, bytes: 0, limit }
    }

    /// The most bytes that one entry may have.
    pub(crate) fn largest(&self) -> usize {
        (self.limit / 2).saturating_sub(ENTRY_BYTES)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of all entries.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn get(&mut self, key: &Digest) -> Option<V> {
        let entry = self.entries.get_mut(key)?;
        self.uses += 1;
        self.order.remove(&entry.used);
        self.order.insert(self.uses, *key);
        entry.used = self.uses;
        Some(entry.value.clone())
    }

    /// Keeps a value of so many bytes, unless it would push out all others.
    pub(crate) fn insert(&mut self, key: Digest, value: V, bytes: usize) {
        if bytes > self.largest() {
            return;
        }
        let bytes = bytes + ENTRY_BYTES;
        self.remove(&key);
        self.uses += 1;
        self.order.insert(self.uses, key);
        self.entries.insert(key, Entry { value, bytes, used: self.uses });
        self.bytes += bytes;
        while self.bytes > self.limit {
            let Some((_, oldest)) = self.order.pop_first() else {
                break;
            };
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, key: &Digest) {
        if let Some(entry) = self.entries.remove(key) {
            self.order.remove(&entry.used);
            self.bytes -= entry.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_cache_forgets_the_oldest_and_stays_within_bounds() {
        let mut lru: Lru<u32> = Lru::new(4 * (ENTRY_BYTES + 10));
        let name = |n: u8| [n; 32];
        for n in 0..4 {
            lru.insert(name(n), n.into(), 10);
        }
        assert_eq!(lru.get(&name(0)), Some(0));
        lru.insert(name(4), 4, 10);
        assert_eq!((lru.get(&name(0)), lru.get(&name(1))), (Some(0), None));
        lru.insert(name(5), 5, 4 * ENTRY_BYTES);
        assert_eq!(lru.get(&name(5)), None, "what is too large is not kept");
        assert!(lru.bytes <= lru.limit);
        assert_eq!((lru.entries.len(), lru.order.len()), (4, 4));
    }
}
