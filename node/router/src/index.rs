//! The block index: which holders have which prefix.
//!
//! Readers ([`IndexReader`]) are lock-free and may run on any thread beside the one writer, the
//! router machine. An entry is a prefix name with the set of its holders ([`Lane`]s).
//!
//! **Matching is exact.** [`IndexReader::match_prefix`] looks at every granule of the prompt up to
//! the end of the longest run, in batches whose cache misses overlap. Bisecting would look at a
//! handful of granules only, but it credits a holder across a hole (an eviction in the middle of a
//! chain). Whether a lane has holes cannot be known here: events do not name parents, and
//! neighbours in a run may belong to different chains. The walk costs 6 ns per granule that is in
//! the processor's cache and 17 to 25 ns per granule that is not (`benches/index.rs`, two busy
//! cores, 1 to 5 million entries): 2 to 7 µs for a prompt of 18,000 tokens, whose hashing takes 230.
//!
//! **Memory.** 12.8 bytes per slot for readers and 10 for the writer (other half of the name, prefix
//! length), at a load between 0.70 and 0.875: 15 to 18 and 11 to 14 bytes per prefix, however many
//! hold it. Full, sparse or littered tables are rebuilt; removal leaves no tombstones, so churn at
//! constant size costs nothing.

mod lanes;
mod matching;
mod sets;
mod table;
mod writer;

#[cfg(test)]
mod tests;

pub use lanes::Lane;
pub use matching::Run;
pub(crate) use writer::{Added, Writer};

use arc_swap::ArcSwap;
use lanes::Directory;
use protocol::event::INDEX_GRANULE;
use protocol::hash::{GRANULE, PrefixHash};
use sets::Sets;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use table::Table;

/// Most lanes at one time: 256 nodes with four tiers or storage namespaces each.
pub const MAX_LANES: usize = 1024;

/// Longest prefix that is indexed, in granules of [`INDEX_GRANULE`] tokens (4 million tokens).
pub const MAX_GRANULES: usize = u16::MAX as usize;

const MAX_WORDS: usize = MAX_LANES / 64;
const LANE_SET_EMPTY: u32 = 0;

/// Number of a lane.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct LaneId(u16);

fn each_lane(words: &[u64], mut f: impl FnMut(LaneId)) {
    for (number, word) in (0u16..).zip(words) {
        let mut rest = *word;
        while rest != 0 {
            f(LaneId(number * 64 + rest.trailing_zeros() as u16));
            rest &= rest - 1;
        }
    }
}

/// Names at the ends of a prompt's index granules, from the names of its 16-token granules.
pub fn granules(prefix: &[PrefixHash]) -> Vec<PrefixHash> {
    let step = INDEX_GRANULE as usize / GRANULE;
    prefix.iter().skip(step - 1).step_by(step).copied().collect()
}

struct Shared {
    table: ArcSwap<Table>,
    directory: ArcSwap<Directory>,
    sets: Arc<Sets>,
    figures: Figures,
}

#[derive(Default)]
struct Figures {
    entries: AtomicU64,
    pairs: AtomicU64,
    bytes: AtomicU64,
}

/// Size of the index.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IndexStats {
    /// Distinct prefixes.
    pub entries: u64,
    /// (prefix, holder) pairs.
    pub pairs: u64,
    /// Bytes of all tables, the writer's included.
    pub bytes: u64,
}

/// Reads the index from any task or thread, without locks.
#[derive(Clone)]
pub struct IndexReader {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for IndexReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("IndexReader").field(&self.stats()).finish()
    }
}

impl IndexReader {
    /// Size of the index as of the writer's last input.
    pub fn stats(&self) -> IndexStats {
        let figures = &self.shared.figures;
        IndexStats {
            entries: figures.entries.load(Ordering::Relaxed),
            pairs: figures.pairs.load(Ordering::Relaxed),
            bytes: figures.bytes.load(Ordering::Relaxed),
        }
    }

    /// The holders of one prefix, in the order of their lanes.
    pub fn holders(&self, hash: PrefixHash) -> Vec<Lane> {
        let mut runs = Vec::new();
        self.match_prefix(&[hash], &mut runs);
        runs.iter().map(|run| run.lane).collect()
    }
}
