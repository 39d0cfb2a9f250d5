//! Interned sets of lanes.
//!
//! Neighbouring prefixes mostly have equal holders, so entries share sets by number: an entry costs
//! four bytes for its holders however many they are, and a reader that meets the same number again
//! knows without looking that nothing changed. A set is a bitmap over lanes in atomics; a set
//! nobody uses is rewritten for another content.

use super::{LANE_SET_EMPTY, LaneId, MAX_WORDS};
use crate::mix::mix;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Sets in the first chunk; each further chunk doubles.
const FIRST_CHUNK: usize = 256;
const CHUNKS: usize = 12;
/// More distinct sets than this (a million, 134 MB) are refused; the events are dropped and counted.
const MAX_SETS: usize = FIRST_CHUNK * ((1 << CHUNKS) - 1);
const MEMO: usize = 1024;

/// A set's content, copied out.
pub(super) type Words = [u64; MAX_WORDS];

/// The sets as readers see them.
pub(super) struct Sets {
    chunks: [OnceLock<Box<[AtomicU64]>>; CHUNKS],
    /// Words that any lane in use needs; grows, never shrinks.
    words: AtomicUsize,
}

fn chunk_of(set: u32) -> (usize, usize) {
    let number = set as usize + FIRST_CHUNK;
    let chunk = (number.ilog2() - FIRST_CHUNK.ilog2()) as usize;
    (chunk, number - (FIRST_CHUNK << chunk))
}

impl Sets {
    fn new() -> Self {
        Self { chunks: std::array::from_fn(|_| OnceLock::new()), words: AtomicUsize::new(1) }
    }

    fn cells(&self, set: u32) -> &[AtomicU64] {
        let (chunk, at) = chunk_of(set);
        self.chunks
            .get(chunk)
            .and_then(OnceLock::get)
            .and_then(|cells| cells.get(at * MAX_WORDS..(at + 1) * MAX_WORDS))
            .unwrap_or_default()
    }

    /// Words that [`Self::read`] fills.
    pub(super) fn words(&self) -> usize {
        self.words.load(Ordering::Acquire)
    }

    /// Copies the first `words` words of a set.
    pub(super) fn read(&self, set: u32, words: usize, into: &mut Words) {
        if set == LANE_SET_EMPTY {
            into.fill(0);
            return;
        }
        for (word, cell) in into.iter_mut().zip(self.cells(set)).take(words) {
            *word = cell.load(Ordering::Acquire);
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Meta {
    refs: u32,
    /// Lanes in the set.
    lanes: u32,
    /// XOR of the lanes' mixes: the content's hash (Zobrist).
    hash: u64,
}

#[derive(Clone, Copy, Default)]
struct Memo {
    from: u32,
    to: u32,
    lane: u16,
}

/// The writer's side: reference counts and look-up by content.
pub(super) struct SetBook {
    shared: Arc<Sets>,
    meta: Vec<Meta>,
    free: Vec<u32>,
    by_hash: BTreeMap<u64, u32>,
    memo: Box<[Memo]>,
    /// Entries whose set lost its last lane when the lane was retired.
    dead_refs: usize,
}

fn lane_mix(lane: LaneId) -> u64 {
    mix(u64::from(lane.0) + 1)
}

fn bit(lane: LaneId) -> (usize, u64) {
    (usize::from(lane.0 / 64), 1 << (lane.0 % 64))
}

impl SetBook {
    pub(super) fn new() -> Self {
        Self {
            shared: Arc::new(Sets::new()),
            meta: vec![Meta::default()],
            free: Vec::new(),
            by_hash: BTreeMap::new(),
            memo: vec![Memo::default(); MEMO].into(),
            dead_refs: 0,
        }
    }

    pub(super) fn shared(&self) -> &Arc<Sets> {
        &self.shared
    }

    /// Sets in use.
    pub(super) fn len(&self) -> usize {
        self.meta.len() - 1 - self.free.len()
    }

    pub(super) fn dead_refs(&self) -> usize {
        self.dead_refs
    }

    /// Bytes of all chunks and the writer's own tables.
    pub(super) fn bytes(&self) -> usize {
        let chunks: usize =
            self.shared.chunks.iter().filter_map(OnceLock::get).map(|cells| cells.len() * 8).sum();
        chunks + self.meta.capacity() * size_of::<Meta>() + self.by_hash.len() * 24 + MEMO * 12
    }

    fn of(&self, set: u32) -> Meta {
        self.meta.get(set as usize).copied().unwrap_or_default()
    }

    pub(super) fn contains(&self, set: u32, lane: LaneId) -> bool {
        let (word, mask) = bit(lane);
        let cell = self.shared.cells(set).get(word);
        set != LANE_SET_EMPTY && cell.is_some_and(|cell| cell.load(Ordering::Relaxed) & mask != 0)
    }

    /// Whether a set has no lane (any more).
    pub(super) fn is_empty(&self, set: u32) -> bool {
        self.of(set).lanes == 0
    }

    /// The lanes of a set.
    pub(super) fn lanes(&self, set: u32, into: &mut Vec<LaneId>) {
        into.clear();
        let mut words = [0; MAX_WORDS];
        self.shared.read(set, MAX_WORDS, &mut words);
        super::each_lane(&words, |lane| into.push(lane));
    }

    /// Counts one more entry that names the set.
    pub(super) fn retain(&mut self, set: u32) {
        if let Some(meta) = self.meta.get_mut(set as usize) {
            meta.refs += 1;
            if meta.lanes == 0 {
                self.dead_refs += 1;
            }
        }
    }

    /// Counts one entry less; a set without entries is free.
    pub(super) fn release(&mut self, set: u32) {
        if set == LANE_SET_EMPTY {
            return;
        }
        let Some(meta) = self.meta.get_mut(set as usize) else {
            return;
        };
        meta.refs = meta.refs.saturating_sub(1);
        if meta.lanes == 0 {
            self.dead_refs = self.dead_refs.saturating_sub(1);
        }
        if meta.refs == 0 {
            let hash = meta.hash;
            *meta = Meta::default();
            if self.by_hash.get(&hash) == Some(&set) {
                self.by_hash.remove(&hash);
            }
            self.free.push(set);
        }
    }

    /// The set that `from` becomes when `lane` joins (it must not be in it) or leaves (it must
    /// be). References are the caller's to move. `None` when there is no room for another set.
    pub(super) fn toggle(&mut self, from: u32, lane: LaneId) -> Option<u32> {
        let hash = self.of(from).hash ^ lane_mix(lane);
        let joins = !self.contains(from, lane);
        let lanes = if joins { self.of(from).lanes + 1 } else { self.of(from).lanes - 1 };
        if lanes == 0 {
            return Some(LANE_SET_EMPTY);
        }
        let place = (mix(u64::from(from)) ^ u64::from(lane.0)) as usize % MEMO;
        if let Some(memo) = self.memo.get(place)
            && memo.from == from
            && memo.lane == lane.0
            && self.of(memo.to).hash == hash
            && self.of(memo.to).refs > 0
        {
            return Some(memo.to);
        }
        let mut words = [0; MAX_WORDS];
        self.shared.read(from, MAX_WORDS, &mut words);
        let (word, mask) = bit(lane);
        if let Some(word) = words.get_mut(word) {
            *word ^= mask;
        }
        let to = self.intern(hash, lanes, &words)?;
        if let Some(memo) = self.memo.get_mut(place) {
            *memo = Memo { from, to, lane: lane.0 };
        }
        Some(to)
    }

    fn intern(&mut self, hash: u64, lanes: u32, words: &Words) -> Option<u32> {
        if let Some(set) = self.by_hash.get(&hash) {
            let mut known = [0; MAX_WORDS];
            self.shared.read(*set, MAX_WORDS, &mut known);
            if known == *words {
                return Some(*set);
            }
        }
        let set = match self.free.pop() {
            Some(set) => set,
            None if self.meta.len() >= MAX_SETS => return None,
            None => {
                self.meta.push(Meta::default());
                (self.meta.len() - 1) as u32
            }
        };
        let (chunk, _) = chunk_of(set);
        self.shared.chunks.get(chunk)?.get_or_init(|| {
            let cells = (FIRST_CHUNK << chunk) * MAX_WORDS;
            std::iter::repeat_with(AtomicU64::default).take(cells).collect()
        });
        for (cell, word) in self.shared.cells(set).iter().zip(words) {
            cell.store(*word, Ordering::Release);
        }
        let used = words.iter().rposition(|word| *word != 0).map_or(1, |last| last + 1);
        self.shared.words.fetch_max(used, Ordering::AcqRel);
        *self.meta.get_mut(set as usize)? = Meta { refs: 0, lanes, hash };
        self.by_hash.entry(hash).or_insert(set);
        Some(set)
    }

    /// Drops a set that [`Self::toggle`] made and nobody retained.
    pub(super) fn settle(&mut self, set: u32) {
        if set != LANE_SET_EMPTY && self.of(set).refs == 0 {
            self.release(set);
        }
    }

    /// Takes lanes out of every set at once, in the sets themselves: the cost is one pass over
    /// the sets, not over the entries.
    pub(super) fn retire(&mut self, lanes: &[LaneId]) {
        for set in 1..self.meta.len() as u32 {
            let before = self.of(set);
            if before.refs == 0 {
                continue;
            }
            let mut after = before;
            for lane in lanes.iter().filter(|lane| self.contains(set, **lane)) {
                let (word, mask) = bit(*lane);
                if let Some(cell) = self.shared.cells(set).get(word) {
                    cell.fetch_and(!mask, Ordering::AcqRel);
                }
                after.lanes -= 1;
                after.hash ^= lane_mix(*lane);
            }
            if after.lanes == before.lanes {
                continue;
            }
            if self.by_hash.get(&before.hash) == Some(&set) {
                self.by_hash.remove(&before.hash);
            }
            // A set with equal content may exist already: then this one stays as its double.
            if after.lanes == 0 {
                self.dead_refs += after.refs as usize;
            } else {
                self.by_hash.entry(after.hash).or_insert(set);
            }
            if let Some(meta) = self.meta.get_mut(set as usize) {
                *meta = after;
            }
        }
    }
}
