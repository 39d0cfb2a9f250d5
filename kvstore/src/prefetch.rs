//! Prefetch: blocks brought up from NVMe before anybody asks for them.
//!
//! A guess may take a stated share of DRAM while it is on its way, and nothing from those who ask:
//! what has come is ordinary cache, the first to go when it is not used. Each block asked for ends
//! as used, late (a request wanted it while it was on its way), wasted (its time was over), or
//! failed.

use crate::inbound::Cause;
use crate::messages::{Out, PrefetchId};
use crate::store::Store;
use protocol::block::BlockKey;
use protocol::time::{Span, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[derive(Debug)]
struct Guess {
    /// What is still to be asked for, from the root on.
    keys: VecDeque<BlockKey>,
    until: Time,
}

/// The prefetches now.
#[derive(Debug, Default)]
pub(crate) struct Prefetches {
    guesses: BTreeMap<PrefetchId, Guess>,
    ends: BTreeSet<(Time, PrefetchId)>,
    /// On their way, and not wanted by a request.
    coming: BTreeMap<BlockKey, PrefetchId>,
    /// Come, and not used.
    here: BTreeMap<BlockKey, PrefetchId>,
}

impl Prefetches {
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.ends.first().map(|(time, _)| *time)
    }

    /// A request wants a block that is on its way; true when it was a guess.
    pub(crate) fn late(&mut self, key: &BlockKey) -> bool {
        self.coming.remove(key).is_some()
    }

    /// A request uses a block that is here; true when it was a guess.
    pub(crate) fn used(&mut self, key: &BlockKey) -> bool {
        self.here.remove(key).is_some()
    }
}

impl Store {
    /// Begins to bring up `keys`, a chain from the root on, as far as they are on NVMe.
    pub(crate) fn prefetch(
        &mut self,
        now: Time,
        id: PrefetchId,
        mut keys: Vec<BlockKey>,
        within: Span,
    ) {
        let known = self.prefetches.guesses.contains_key(&id);
        if known || self.prefetches.guesses.len() >= self.limits.prefetches {
            self.counters.prefetch_refused += 1;
            return;
        }
        // A guess never fills more than half of DRAM.
        keys.truncate(self.dram.counts().total() as usize / 2);
        let until = now + within.min(self.limits.fetch);
        self.prefetches.ends.insert((until, id));
        self.prefetches.guesses.insert(id, Guess { keys: keys.into(), until });
    }

    /// Asks for as many blocks as may be on their way.
    pub(crate) fn prefetch_on(&mut self, now: Time, out: &mut Vec<Out>) {
        let share = (self.dram.counts().total() / self.limits.stage_share.max(1)).max(1) as usize;
        for id in self.prefetches.guesses.keys().copied().collect::<Vec<_>>() {
            while self.prefetches.coming.len() < share {
                let guess = self.prefetches.guesses.get_mut(&id);
                let Some(guess) = guess.filter(|guess| guess.until > now) else {
                    break;
                };
                let until = guess.until;
                let Some(key) = guess.keys.pop_front() else {
                    break;
                };
                if !self.bring_ahead(id, key, until, out)
                    && let Some(guess) = self.prefetches.guesses.get_mut(&id)
                {
                    guess.keys.clear(); // what follows has no parent
                }
            }
        }
    }

    /// Asks for one block; false when it will not be there.
    fn bring_ahead(
        &mut self,
        id: PrefetchId,
        key: BlockKey,
        until: Time,
        out: &mut Vec<Out>,
    ) -> bool {
        if let Some(slot) = self.dram.find(&key) {
            self.dram.touch(slot);
            return true;
        }
        if self.inbound.contains(&key) {
            return true;
        }
        let block = self.disk.tier.find(&key).and_then(|slot| self.disk.tier.copy(slot));
        let parent = block.map(|block| block.parent);
        let rooted = parent.is_some_and(|parent| {
            parent.is_none_or(|p| self.dram.find(&p).is_some() || self.inbound.contains(&p))
        });
        if !rooted || self.load(&key, Cause::Prefetch, until, out).is_none() {
            return false;
        }
        self.counters.prefetch_asked += 1;
        self.prefetches.coming.insert(key, id);
        true
    }

    /// A block that was asked for ahead of need has come, or will not.
    pub(crate) fn ahead_decided(&mut self, key: &BlockKey, came: bool) {
        let Some(id) = self.prefetches.coming.remove(key) else {
            return;
        };
        if !came {
            self.counters.prefetch_failed += 1;
        } else if self.prefetches.guesses.contains_key(&id) {
            if self.prefetches.here.insert(*key, id).is_some() {
                self.counters.prefetch_wasted += 1; // it came twice and was not used in between
            }
        } else {
            self.counters.prefetch_wasted += 1;
        }
    }

    /// Ends a prefetch: what is on its way still comes. Unknown ones are ignored.
    pub(crate) fn end_prefetch(&mut self, id: PrefetchId) {
        let Some(guess) = self.prefetches.guesses.remove(&id) else {
            return;
        };
        self.prefetches.ends.remove(&(guess.until, id));
        let before = self.prefetches.here.len();
        self.prefetches.here.retain(|_, of| *of != id);
        self.counters.prefetch_wasted += (before - self.prefetches.here.len()) as u64;
    }

    pub(crate) fn expire_prefetches(&mut self, now: Time) {
        while let Some((_, id)) = self.prefetches.ends.first().copied().filter(|(t, _)| *t <= now) {
            self.end_prefetch(id);
        }
    }
}
