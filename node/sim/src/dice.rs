//! Seeded randomness, one stream per concern, so that drawing more in one place does not change
//! another.

use protocol::time::Span;
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use std::collections::BTreeMap;

/// A stream of random numbers that belongs to one concern of one run.
#[derive(Clone, Debug)]
pub(crate) struct Dice(ChaCha8Rng);

impl Dice {
    /// The stream of `concern` under `seed`.
    pub(crate) fn new(seed: u64, concern: &str) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("dynamo-node 2026-11 simulated world");
        hasher.update(&seed.to_le_bytes());
        hasher.update(concern.as_bytes());
        Self(ChaCha8Rng::from_seed(*hasher.finalize().as_bytes()))
    }

    /// Any number.
    pub(crate) fn any(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `n`; 0 for 0. The bias of the remainder is far below what a run can show.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.any().checked_rem(n).unwrap_or(0)
    }

    /// An index below `n`; 0 for 0.
    pub(crate) fn index(&mut self, n: usize) -> usize {
        usize::try_from(self.below(n as u64)).unwrap_or(0)
    }

    /// A number of `low..=high`.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// A number from 0 up to, not including, 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.any() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True in `share` of all cases. Draws nothing at 0, so that a fault that is off costs nothing.
    pub(crate) fn share(&mut self, share: f64) -> bool {
        share > 0.0 && self.unit() < share
    }

    /// A span of `low..=high`.
    pub(crate) fn span(&mut self, low: Span, high: Span) -> Span {
        Span(self.between(low.0, high.0))
    }

    /// One of `items`.
    pub(crate) fn pick<T: Copy>(&mut self, items: &[T]) -> Option<T> {
        let at = self.index(items.len());
        items.get(at).copied()
    }
}

/// Streams for the kinds of faults: each has its own, so that turning one off leaves the others as
/// they are and a failure can be shrunk.
#[derive(Clone, Debug)]
pub(crate) struct Fates {
    seed: u64,
    streams: BTreeMap<&'static str, Dice>,
}

impl Fates {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, streams: BTreeMap::new() }
    }

    /// The stream of one kind.
    pub(crate) fn of(&mut self, kind: &'static str) -> &mut Dice {
        let seed = self.seed;
        self.streams.entry(kind).or_insert_with(|| Dice::new(seed, kind))
    }
}

#[cfg(test)]
mod tests;
