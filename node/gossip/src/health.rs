//! Local health: how far this node may trust its own sense of time.
//!
//! After Lifeguard (Dadgar, Phillips, Currey, "Lifeguard: Local Health Awareness for More Accurate
//! Failure Detection", DSN-W 2018): a node that is itself slow sees the others as silent. Its score
//! grows with every sign of own trouble (called late, most peers silent at once) and stretches its
//! own time limits; while it is high the node keeps its suspicions to itself.

use protocol::time::{Span, Time};

/// Highest score: limits are stretched at most fivefold.
const SCORE_MAX: u64 = 4;
/// The score falls by one after so much time without trouble.
const EASE_EVERY: Span = Span::secs(1);
/// Above this score the node accuses nobody.
const SCORE_ACCUSES: u64 = 1;

/// The score and when it last changed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Health {
    score: u64,
    changed: Time,
}

impl Health {
    /// A sign of own trouble, `weight` times as bad as the least.
    pub(crate) fn worse(&mut self, now: Time, weight: u64) {
        self.score = self.score.saturating_add(weight).min(SCORE_MAX);
        self.changed = now;
    }

    /// Most peers are silent: counts at most once a second.
    pub(crate) fn lonely(&mut self, now: Time) {
        if self.score == 0 || now.since(self.changed) >= EASE_EVERY {
            self.worse(now, 1);
        }
    }

    /// Time passes without trouble.
    pub(crate) fn ease(&mut self, now: Time) {
        if self.score > 0 && now.since(self.changed) >= EASE_EVERY {
            self.score -= 1;
            self.changed = now;
        }
    }

    /// A time limit as it counts now.
    pub(crate) fn stretch(&self, limit: Span) -> Span {
        limit * (1 + self.score)
    }

    /// Whether what this node notices is worth telling.
    pub(crate) fn may_accuse(&self) -> bool {
        self.score <= SCORE_ACCUSES
    }
}

#[cfg(test)]
mod tests;
