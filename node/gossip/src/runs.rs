//! Changes packed into runs.

use protocol::block::StorageId;
use protocol::event::{EventRun, Holder, INDEX_GRANULE};
use protocol::hash::PrefixHash;
use std::collections::{BTreeMap, VecDeque};

/// Where an entry lives.
type Place = (Holder, StorageId);
/// Which open run a prefix of that length would extend.
type Ends = BTreeMap<(Holder, StorageId, u32), usize>;

#[derive(Debug)]
enum Entry {
    Run { stored: bool, place: Place, first: u32, hashes: VecDeque<PrefixHash> },
    Cleared(Holder),
}

/// Builds runs from single changes.
///
/// Changes of one kind in one place commute, so each may extend any run of that kind that is still
/// open, at either end (chains grow at the tail and are evicted from the leaf). A change of the
/// other kind in the same place closes them. Names are opaque, so a run may hold granules of
/// several chains.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    entries: Vec<Entry>,
    tails: Ends,
    heads: Ends,
    kinds: BTreeMap<Place, bool>,
    hashes: usize,
}

impl Runs {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Names held.
    pub(crate) fn hashes(&self) -> usize {
        self.hashes
    }

    /// Adds a change of one prefix.
    pub(crate) fn push(&mut self, stored: bool, place: Place, tokens: u32, prefix: PrefixHash) {
        if self.kinds.insert(place, stored) == Some(!stored) {
            let (holder, storage) = place;
            let same = |key: &(Holder, StorageId, u32)| (key.0, key.1) == (holder, storage);
            self.tails.retain(|key, _| !same(key));
            self.heads.retain(|key, _| !same(key));
        }
        self.hashes += 1;
        let key = |length: u32| (place.0, place.1, length);
        let next = tokens.saturating_add(INDEX_GRANULE);
        let before = tokens.saturating_sub(INDEX_GRANULE);
        if let Some(index) = self.tails.remove(&key(tokens)) {
            if let Some(Entry::Run { hashes, .. }) = self.entries.get_mut(index) {
                hashes.push_back(prefix);
                self.tails.insert(key(next), index);
            }
        } else if let Some(index) = self.heads.remove(&key(tokens)) {
            if let Some(Entry::Run { first, hashes, .. }) = self.entries.get_mut(index) {
                hashes.push_front(prefix);
                *first = tokens;
                self.heads.insert(key(before), index);
            }
        } else {
            let index = self.entries.len();
            let hashes = VecDeque::from([prefix]);
            self.entries.push(Entry::Run { stored, place, first: tokens, hashes });
            self.tails.insert(key(next), index);
            self.heads.insert(key(before), index);
        }
    }

    /// Adds the loss of a whole tier.
    pub(crate) fn clear(&mut self, holder: Holder) {
        self.tails.retain(|key, _| key.0 != holder);
        self.heads.retain(|key, _| key.0 != holder);
        self.entries.push(Entry::Cleared(holder));
    }

    /// The runs so far, in an order that gives the same result as the changes did.
    pub(crate) fn take(&mut self) -> Vec<EventRun> {
        let Self { entries, .. } = std::mem::take(self);
        entries
            .into_iter()
            .map(|entry| match entry {
                Entry::Cleared(holder) => EventRun::Cleared { holder },
                Entry::Run { stored: true, place: (holder, storage), first, hashes } => {
                    EventRun::Stored { storage, holder, first, hashes: hashes.into() }
                }
                Entry::Run { stored: false, place: (holder, storage), first, hashes } => {
                    EventRun::Removed { storage, holder, first, hashes: hashes.into() }
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
