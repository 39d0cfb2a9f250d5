//! Rare bad luck on purpose, for simulated worlds: what may happen must happen in tests.
//!
//! The idea is FoundationDB's buggify (Zhou et al., "FoundationDB: A Distributed Unbundled
//! Transactional Key Value Store", SIGMOD 2021): code itself takes its rarer allowed turns, chosen
//! by the seed. Off unless a seed is given: then it draws nothing and costs nothing.

use crate::config::PART_HASHES;
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

/// A source of bad luck.
#[derive(Debug)]
pub(crate) struct Buggify {
    rng: Option<ChaCha8Rng>,
    part_hashes: usize,
}

impl Buggify {
    pub(crate) fn new(seed: Option<u64>) -> Self {
        let rng = seed.map(ChaCha8Rng::seed_from_u64);
        let mut new = Self { rng, part_hashes: PART_HASHES };
        if new.strikes(2) {
            new.part_hashes = 7;
        }
        new
    }

    /// True once in `one_in` calls on average; never when off.
    pub(crate) fn strikes(&mut self, one_in: u64) -> bool {
        self.rng.as_mut().is_some_and(|rng| rng.next_u64().is_multiple_of(one_in.max(1)))
    }

    /// Names in one frame: [`PART_HASHES`], or very few for a whole life.
    pub(crate) fn part_hashes(&self) -> usize {
        self.part_hashes
    }
}
