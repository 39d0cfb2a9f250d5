//! Retention: what claims make a block worth.
//!
//! A block goes before another when its [`Rank`] is lower: blocks with an unexpired pin after
//! those without, earlier expiry first; then by the highest level that a live claim gives
//! (priority, then class), none lowest; then the least recently used.

use crate::config::Limits;
use crate::messages::Prepare;
use protocol::block::{BlockClass, Claim};
use protocol::id::{SessionId, TenantId};
use protocol::time::Time;
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// Claims kept per block; the least worthy one beyond is dropped.
pub(crate) const CLAIMS_MAX: usize = 8;

/// Whose claim it is. One owner has one claim on a block.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Owner {
    pub(crate) tenant: TenantId,
    pub(crate) session: Option<SessionId>,
}

/// What a claim says beside pins: priority first, then class.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Level {
    priority: i32,
    class: u8,
}

impl Level {
    pub(crate) fn new(priority: i32, class: BlockClass) -> Self {
        let class = match class {
            BlockClass::Reasoning => 0,
            BlockClass::Output => 1,
            BlockClass::Context => 2,
            BlockClass::Tools => 3,
            BlockClass::System => 4,
        };
        Self { priority, class }
    }

    pub(crate) fn priority(self) -> i32 {
        self.priority
    }

    pub(crate) fn class(self) -> BlockClass {
        match self.class {
            0 => BlockClass::Reasoning,
            1 => BlockClass::Output,
            2 => BlockClass::Context,
            3 => BlockClass::Tools,
            _ => BlockClass::System,
        }
    }
}

/// A claim on one block. The lowest goes first when a block has too many.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Held {
    pub(crate) pin: Option<Time>,
    pub(crate) level: Level,
    /// When the claim ends, unless a pin lasts longer.
    pub(crate) lapse: Time,
    pub(crate) owner: Arc<Owner>,
}

impl Held {
    /// When it next changes.
    fn changes(&self) -> Time {
        self.pin.unwrap_or(self.lapse)
    }

    /// Takes the time into account; false when nothing is left of it.
    fn live(&mut self, now: Time) -> bool {
        self.pin = self.pin.filter(|until| *until > now);
        self.pin.is_some() || self.lapse > now
    }
}

/// Order of eviction, lowest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Rank {
    pub(crate) pin: Option<Time>,
    pub(crate) level: Option<Level>,
    pub(crate) used: u64,
}

/// The claims on one block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claims {
    held: Vec<Held>,
}

impl Claims {
    /// Adds a claim or renews its owner's: the level is the new one, a pin is never shortened.
    /// Returns the owner whose claim had to make room.
    pub(crate) fn add(&mut self, claim: Held) -> Option<Arc<Owner>> {
        if let Some(old) = self.held.iter_mut().find(|held| held.owner == claim.owner) {
            *old = Held { pin: old.pin.max(claim.pin), ..claim };
            return None;
        }
        self.held.push(claim);
        if self.held.len() <= CLAIMS_MAX {
            return None;
        }
        let lowest = self.held.iter().enumerate().min_by(|(_, a), (_, b)| a.cmp(b))?.0;
        Some(self.held.swap_remove(lowest).owner)
    }

    /// Ends an owner's claim.
    pub(crate) fn end(&mut self, owner: &Owner) {
        self.held.retain(|held| *held.owner != *owner);
    }

    /// Ends what has run out; returns the owners of the ended claims.
    pub(crate) fn lapse(&mut self, now: Time) -> Vec<Arc<Owner>> {
        let mut ended = Vec::new();
        self.held.retain_mut(|held| {
            let live = held.live(now);
            if !live {
                ended.push(Arc::clone(&held.owner));
            }
            live
        });
        ended
    }

    /// When [`Self::lapse`] next has work.
    pub(crate) fn next_lapse(&self) -> Option<Time> {
        self.held.iter().map(Held::changes).min()
    }

    pub(crate) fn pin(&self) -> Option<Time> {
        self.held.iter().filter_map(|held| held.pin).max()
    }

    pub(crate) fn held(&self) -> &[Held] {
        &self.held
    }

    /// The class that lasts longest among the claims'.
    pub(crate) fn class(&self) -> Option<BlockClass> {
        self.held.iter().max_by_key(|held| held.level.class).map(|held| held.level.class())
    }

    /// Whether there is a claim of this owner.
    pub(crate) fn is_of(&self, owner: &Owner) -> bool {
        self.held.iter().any(|held| *held.owner == *owner)
    }

    pub(crate) fn owners(&self) -> impl Iterator<Item = &Arc<Owner>> {
        self.held.iter().map(|held| &held.owner)
    }

    pub(crate) fn rank(&self, used: u64) -> Rank {
        Rank { pin: self.pin(), level: self.held.iter().map(|held| held.level).max(), used }
    }
}

/// What a lease brings to one block: claims, and the block's legal end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stamp {
    pub(crate) held: Vec<Held>,
    pub(crate) age: Option<Time>,
}

impl Stamp {
    /// The same, ending at `age` at the latest.
    pub(crate) fn not_beyond(mut self, age: Option<Time>) -> Self {
        self.age = earlier(self.age, age);
        self
    }

    /// Drops an owner's claim.
    pub(crate) fn end(&mut self, owner: &Owner) {
        self.held.retain(|held| *held.owner != *owner);
    }

    pub(crate) fn add(&mut self, claim: Held) {
        match self.held.iter_mut().find(|held| held.owner == claim.owner) {
            None => self.held.push(claim),
            Some(old) => {
                old.pin = old.pin.max(claim.pin);
                old.level = old.level.max(claim.level);
            }
        }
    }
}

/// The earlier of two ends, where `None` is no end.
pub(crate) fn earlier(a: Option<Time>, b: Option<Time>) -> Option<Time> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[derive(Debug)]
struct Wish {
    start: u32,
    end: u32,
    owner: Arc<Owner>,
    level: Level,
    pin: Option<Time>,
    age: Option<Time>,
}

/// The claims of one request, by token range.
#[derive(Debug)]
pub(crate) struct Wishes {
    owner: Arc<Owner>,
    level: Level,
    ranges: Vec<Wish>,
}

impl Wishes {
    /// Reads the claims of a request at `now`. The second value counts what was over a limit.
    pub(crate) fn read(prepare: &Prepare, now: Time, limits: &Limits) -> (Self, u64) {
        let mut clipped = prepare.claims.len().saturating_sub(limits.claims) as u64;
        let own = Owner { tenant: prepare.tenant.clone(), session: prepare.session.clone() };
        let own = Arc::new(own);
        let mut ranges = Vec::new();
        for range in prepare.claims.iter().take(limits.claims) {
            let Claim { session, class, priority, ttl, max_age, .. } = &range.claim;
            clipped += u64::from(ttl.is_some_and(|ttl| ttl > limits.pin));
            let owner = match session {
                None => Arc::clone(&own),
                Some(_) => Arc::new(Owner { tenant: own.tenant.clone(), session: session.clone() }),
            };
            ranges.push(Wish {
                start: range.start,
                end: range.end,
                owner,
                level: Level::new(*priority, *class),
                pin: ttl.map(|ttl| now + ttl.min(limits.pin)),
                age: max_age.map(|age| now + age),
            });
        }
        let level = Level::new(prepare.priority, BlockClass::default());
        (Self { owner: own, level, ranges }, clipped)
    }

    /// What the request brings at `now` to the block of tokens `start..end`. Without a claim on
    /// the block, the request itself claims it at its own priority.
    pub(crate) fn stamp(&self, start: u32, end: u32, now: Time, limits: &Limits) -> Stamp {
        let mut stamp = Stamp::default();
        let lapse = now + limits.claim_life;
        for wish in self.ranges.iter().filter(|wish| wish.start < end && start < wish.end) {
            let pin = wish.pin.filter(|until| *until > now);
            stamp.add(Held { pin, level: wish.level, lapse, owner: Arc::clone(&wish.owner) });
            stamp.age = earlier(stamp.age, wish.age);
        }
        if stamp.held.is_empty() {
            let owner = Arc::clone(&self.owner);
            stamp.add(Held { pin: None, level: self.level, lapse, owner });
        }
        stamp
    }
}
