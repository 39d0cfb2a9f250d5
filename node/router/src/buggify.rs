//! Rare bad luck on purpose, for simulated worlds: what may happen must happen in tests.
//!
//! The idea is FoundationDB's buggify (Zhou et al., "FoundationDB: A Distributed Unbundled
//! Transactional Key Value Store", SIGMOD 2021): code itself takes its rarer allowed turns, chosen
//! by the seed. Off unless a seed is given, and then free.

use crate::mix::mix;

/// A source of bad luck.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buggify(Option<u64>);

impl Buggify {
    pub(crate) fn new(seed: Option<u64>) -> Self {
        Self(seed)
    }

    /// True once in `one_in` calls on average; never when off.
    pub(crate) fn strikes(&mut self, one_in: u64) -> bool {
        let Some(state) = &mut self.0 else {
            return false;
        };
        *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(*state).is_multiple_of(one_in.max(1))
    }
}
