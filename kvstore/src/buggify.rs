//! Deliberate mischief: choices that the contract allows and a real node makes rarely, made often,
//! so that a simulated world meets what follows from them.
//!
//! Drawn from a seed. Half of the kinds are switched on per seed, so that runs differ in kind and
//! not only in order (swarm testing; the idea of BUGGIFY is FoundationDB's).

use crate::messages::Out;
use crate::store::Store;

#[cfg(test)]
mod tests;

/// A kind of mischief; each is one bit.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A request is refused as busy though there is room.
    Refuse,
    /// A sequence that asks for more slots gets none this time.
    EmptyTopUp,
    /// Sealed blocks are not written through to DRAM now.
    SkipOffload,
    /// A block is not written to NVMe now.
    SkipWrite,
    /// A block leaves DRAM early.
    EvictDram,
    /// A block leaves NVMe early.
    EvictNvme,
    /// A peer's read finds nothing.
    EmptyRead,
}

/// Seed-driven mischief of a store ([`crate::Config::buggify`]): refuses requests, gives no more
/// slots, skips writes, evicts early, denies reads. Never breaks a promise of the store.
#[derive(Clone, Debug)]
pub struct Buggify {
    state: u64,
    /// Kinds switched on, by bit.
    on: u64,
    done: u64,
}

impl Buggify {
    pub(crate) fn new(seed: Option<u64>) -> Self {
        let mut new = Self { state: seed.unwrap_or(0), on: 0, done: 0 };
        if seed.is_some() {
            new.on = new.draw();
        }
        new
    }

    /// SplitMix64 (Steele, Lea, Flood 2014).
    fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// One time in `one_in`, when the kind is on.
    fn strikes(&mut self, kind: Kind, one_in: u64) -> bool {
        if self.on & (1 << kind as u32) == 0 {
            return false;
        }
        let strikes = self.draw().is_multiple_of(one_in);
        self.done += u64::from(strikes);
        strikes
    }

    /// How often it struck.
    pub(crate) fn done(&self) -> u64 {
        self.done
    }

    pub(crate) fn refuses_prepare(&mut self) -> bool {
        self.strikes(Kind::Refuse, 32)
    }

    pub(crate) fn empties_top_up(&mut self) -> bool {
        self.strikes(Kind::EmptyTopUp, 8)
    }

    pub(crate) fn skips_offload(&mut self) -> bool {
        self.strikes(Kind::SkipOffload, 8)
    }

    pub(crate) fn refuses_write(&mut self) -> bool {
        self.strikes(Kind::SkipWrite, 8)
    }

    pub(crate) fn denies_read(&mut self) -> bool {
        self.strikes(Kind::EmptyRead, 16)
    }
}

impl Store {
    /// Evicts early, where mischief is on.
    pub(crate) fn disturb(&mut self, out: &mut Vec<Out>) {
        if self.buggify.strikes(Kind::EvictDram, 64) {
            self.dram.evict(out);
        }
        if self.buggify.strikes(Kind::EvictNvme, 64) {
            self.disk.tier.evict(out);
        }
    }
}
