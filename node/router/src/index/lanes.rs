//! Lanes: the numbers under which holders stand in the sets.

use super::{LaneId, MAX_LANES};
use protocol::block::StorageId;
use protocol::event::Holder;
use protocol::id::{Incarnation, NodeId};
use std::collections::VecDeque;

/// A holder in one life of its node: one bit of the sets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Lane {
    /// The node.
    pub node: NodeId,
    /// Its life.
    pub incarnation: Incarnation,
    /// Engine pool, DRAM, NVMe, or a prefill under way.
    pub holder: Holder,
    /// Form of the bytes.
    pub storage: StorageId,
}

/// What each lane means; published whole at every change (new nodes and tiers only).
pub(super) type Directory = Vec<Option<Lane>>;

/// The writer's side: which numbers are free. The longest free number is reused first, so that a
/// reader in the middle of a query does not meet a number with a new meaning.
#[derive(Default)]
pub(super) struct LaneBook {
    lanes: Vec<Option<Lane>>,
    /// Entries per lane.
    counts: Vec<u64>,
    free: VecDeque<LaneId>,
}

impl LaneBook {
    /// Takes a number; not yet in the directory. `None` when all [`MAX_LANES`] are taken.
    pub(super) fn take(&mut self) -> Option<LaneId> {
        if self.lanes.len() < MAX_LANES {
            self.lanes.push(None);
            self.counts.push(0);
            return u16::try_from(self.lanes.len() - 1).ok().map(LaneId);
        }
        self.free.pop_front()
    }

    /// Gives a number its meaning.
    pub(super) fn name(&mut self, id: LaneId, lane: Lane) {
        if let Some(place) = self.lanes.get_mut(usize::from(id.0)) {
            *place = Some(lane);
        }
    }

    /// Takes a number's meaning away and frees it.
    pub(super) fn drop(&mut self, id: LaneId) {
        let at = usize::from(id.0);
        if let (Some(place), Some(count)) = (self.lanes.get_mut(at), self.counts.get_mut(at)) {
            *place = None;
            *count = 0;
            self.free.push_back(id);
        }
    }

    pub(super) fn directory(&self) -> Directory {
        self.lanes.clone()
    }

    pub(super) fn in_use(&self) -> usize {
        self.lanes.len() - self.free.len()
    }

    #[cfg(test)]
    pub(super) fn count(&self, id: LaneId) -> u64 {
        self.counts.get(usize::from(id.0)).copied().unwrap_or_default()
    }

    pub(super) fn count_mut(&mut self, id: LaneId) -> Option<&mut u64> {
        self.counts.get_mut(usize::from(id.0))
    }

    pub(super) fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}
