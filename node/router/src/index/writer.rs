//! The single writer of the index.

use super::lanes::{Lane, LaneBook};
use super::sets::SetBook;
use super::table::{Name, Spot, Table};
use super::{Figures, IndexReader, LANE_SET_EMPTY, LaneId, Shared};
use arc_swap::ArcSwap;
use protocol::hash::PrefixHash;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Above this load a table is rebuilt larger.
const FULL: f64 = 0.875;
/// Load right after a rebuild.
const FRESH: f64 = 0.70;
/// Below this load a table is rebuilt smaller.
const SPARSE: f64 = 0.30;
/// Slots of the smallest table.
const SMALLEST: usize = 4096;

/// What became of an addition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Added {
    /// The holder did not have it.
    New,
    /// The holder had it.
    Held,
    /// There is no room: the entry was dropped.
    Full,
}

/// What only the writer needs to know of a slot.
#[derive(Default)]
struct Cold {
    /// The half of the name that is not in the table.
    home: Vec<u64>,
    /// Prefix length in granules.
    granule: Vec<u16>,
}

impl Cold {
    fn new(slots: usize) -> Self {
        Self { home: vec![0; slots], granule: vec![0; slots] }
    }

    fn home(&self, spot: Spot) -> u64 {
        self.home.get(spot.index()).copied().unwrap_or_default()
    }

    fn granule(&self, spot: Spot) -> u16 {
        self.granule.get(spot.index()).copied().unwrap_or_default()
    }

    fn set(&mut self, spot: Spot, home: u64, granule: u16) {
        let at = spot.index();
        if let (Some(h), Some(g)) = (self.home.get_mut(at), self.granule.get_mut(at)) {
            *h = home;
            *g = granule;
        }
    }

    fn bytes(&self) -> usize {
        self.home.capacity() * 8 + self.granule.capacity() * 2
    }
}

/// See the module's documentation.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    table: Arc<Table>,
    cold: Cold,
    sets: SetBook,
    lanes: LaneBook,
    /// Slots taken, those without a holder included.
    taken: usize,
    max_entries: usize,
    rebuilds: u64,
}

impl Writer {
    /// An empty index of at most `max_entries` distinct prefixes.
    pub(crate) fn new(max_entries: usize) -> (Self, IndexReader) {
        let table = Arc::new(Table::new(SMALLEST));
        let sets = SetBook::new();
        let shared = Arc::new(Shared {
            table: ArcSwap::new(table.clone()),
            directory: ArcSwap::default(),
            sets: sets.shared().clone(),
            figures: Figures::default(),
        });
        let cold = Cold::new(table.capacity());
        let reader = IndexReader { shared: shared.clone() };
        let lanes = LaneBook::default();
        (Self { shared, table, cold, sets, lanes, taken: 0, max_entries, rebuilds: 0 }, reader)
    }

    /// A number for a new holder. Readers do not see it before [`Self::publish`].
    pub(crate) fn new_lane(&mut self) -> Option<LaneId> {
        self.lanes.take()
    }

    /// Shows lanes to readers.
    pub(crate) fn publish(&mut self, lanes: &[(LaneId, Lane)]) {
        for (id, lane) in lanes {
            self.lanes.name(*id, *lane);
        }
        self.shared.directory.store(Arc::new(self.lanes.directory()));
    }

    /// Takes holders away with all they hold. Cost: one pass over the sets; slots that end without
    /// a holder are swept by the next rebuild, which comes when they are an eighth of the table.
    pub(crate) fn retire(&mut self, lanes: &[LaneId]) {
        if lanes.is_empty() {
            return;
        }
        for lane in lanes {
            self.lanes.drop(*lane);
        }
        self.shared.directory.store(Arc::new(self.lanes.directory()));
        self.sets.retire(lanes);
        if self.sets.dead_refs() * 8 > self.table.capacity() {
            self.rebuild();
        }
        self.shrink();
    }

    /// Entries of one lane.
    #[cfg(test)]
    pub(crate) fn count(&self, lane: LaneId) -> u64 {
        self.lanes.count(lane)
    }

    fn locate(&self, hash: PrefixHash) -> Option<Spot> {
        let name = Name::of(hash);
        self.table.locate(name, |spot| self.cold.home(spot) == name.home)
    }

    /// Whether a lane holds a prefix.
    pub(crate) fn contains(&self, lane: LaneId, hash: PrefixHash) -> bool {
        self.locate(hash).is_some_and(|spot| self.sets.contains(self.table.set_at(spot), lane))
    }

    /// Loads what the next operations on `hashes` will need.
    pub(crate) fn touch(&self, hashes: &[PrefixHash]) {
        self.table.touch(hashes);
    }

    /// A lane holds the prefix of `granule` granules now.
    pub(crate) fn add(&mut self, lane: LaneId, hash: PrefixHash, granule: u16) -> Added {
        let added = match self.locate(hash) {
            Some(spot) => self.join(spot, lane),
            None => self.insert(lane, hash, granule),
        };
        if added == Added::New
            && let Some(count) = self.lanes.count_mut(lane)
        {
            *count += 1;
        }
        added
    }

    fn join(&mut self, spot: Spot, lane: LaneId) -> Added {
        let from = self.table.set_at(spot);
        if self.sets.contains(from, lane) {
            return Added::Held;
        }
        let Some(to) = self.sets.toggle(from, lane) else {
            return Added::Full;
        };
        self.replace(spot, from, to);
        Added::New
    }

    fn replace(&mut self, spot: Spot, from: u32, to: u32) {
        self.sets.retain(to);
        self.table.put(spot, to);
        self.sets.release(from);
    }

    fn insert(&mut self, lane: LaneId, hash: PrefixHash, granule: u16) -> Added {
        if self.taken - self.sets.dead_refs() >= self.max_entries {
            return Added::Full;
        }
        if (self.taken + 1) as f64 > self.table.capacity() as f64 * FULL {
            self.rebuild();
        }
        let name = Name::of(hash);
        let Some(set) = self.sets.toggle(LANE_SET_EMPTY, lane) else {
            return Added::Full;
        };
        let Some(spot) = self.table.insert(name, set) else {
            self.sets.settle(set);
            return Added::Full;
        };
        self.sets.retain(set);
        self.cold.set(spot, name.home, granule);
        self.taken += 1;
        Added::New
    }

    /// A lane holds the prefix no longer. False when it did not.
    pub(crate) fn remove(&mut self, lane: LaneId, hash: PrefixHash) -> bool {
        let Some(spot) = self.locate(hash) else {
            return false;
        };
        let from = self.table.set_at(spot);
        if !self.sets.contains(from, lane) {
            return false;
        }
        let Some(to) = self.sets.toggle(from, lane) else {
            return false;
        };
        if to == LANE_SET_EMPTY {
            self.table.remove(Name::of(hash), spot);
            self.sets.release(from);
            self.taken -= 1;
            self.shrink();
        } else {
            self.replace(spot, from, to);
        }
        if let Some(count) = self.lanes.count_mut(lane) {
            *count = count.saturating_sub(1);
        }
        true
    }

    fn shrink(&mut self) {
        let capacity = self.table.capacity();
        if capacity > SMALLEST * 2 && (self.taken as f64) < capacity as f64 * SPARSE {
            self.rebuild();
        }
    }

    /// Builds a table of the right size without the slots that have no holder, and publishes it.
    /// Readers finish on the old one. Old entries come in the order of their new places, so the
    /// pass is nearly sequential.
    fn rebuild(&mut self) {
        let live = self.taken - self.sets.dead_refs();
        let slots = ((live + 1) as f64 / FRESH) as usize;
        let table = Arc::new(Table::new(slots.max(SMALLEST)));
        let mut cold = Cold::new(table.capacity());
        let old = std::mem::replace(&mut self.table, table.clone());
        self.taken = 0;
        for (spot, key, set) in old.entries() {
            if self.sets.is_empty(set) {
                self.sets.release(set);
                continue;
            }
            let name = Name { key, home: self.cold.home(spot) };
            match table.insert(name, set) {
                Some(place) => {
                    cold.set(place, name.home, self.cold.granule(spot));
                    self.taken += 1;
                }
                None => self.sets.release(set),
            }
        }
        self.cold = cold;
        self.rebuilds += 1;
        self.shared.table.store(table);
    }

    /// Calls `each` with every (lane, granule, prefix), in the order of the table.
    pub(crate) fn scan(&self, mut each: impl FnMut(LaneId, u16, PrefixHash)) {
        let (mut of, mut lanes) = (LANE_SET_EMPTY, Vec::new());
        for (spot, key, set) in self.table.entries() {
            if set != of {
                self.sets.lanes(set, &mut lanes);
                of = set;
            }
            let hash = PrefixHash((u128::from(key) << 64) | u128::from(self.cold.home(spot)));
            for lane in &lanes {
                each(*lane, self.cold.granule(spot), hash);
            }
        }
    }

    /// Updates the figures that readers see.
    pub(crate) fn report(&self) {
        let figures = &self.shared.figures;
        let entries = self.taken - self.sets.dead_refs();
        let bytes = self.table.bytes() + self.cold.bytes() + self.sets.bytes();
        figures.entries.store(entries as u64, Ordering::Relaxed);
        figures.pairs.store(self.lanes.total(), Ordering::Relaxed);
        figures.bytes.store(bytes as u64, Ordering::Relaxed);
    }

    /// Tables built after the first.
    pub(crate) fn rebuilds(&self) -> u64 {
        self.rebuilds
    }

    /// Lanes and sets in use.
    pub(crate) fn sizes(&self) -> (usize, usize) {
        (self.lanes.in_use(), self.sets.len())
    }

    /// Bytes that readers touch, without the writer's own half.
    #[cfg(test)]
    pub(crate) fn reader_bytes(&self) -> usize {
        self.table.bytes()
    }
}
