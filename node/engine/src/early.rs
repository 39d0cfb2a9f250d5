//! What came before its job, and which leases are over.
//!
//! A lease's operations and its job take different ways to the engine, so either can be first.

#[cfg(test)]
mod tests;

use protocol::block::SlotRef;
use protocol::op::LeaseId;
use std::collections::{BTreeMap, VecDeque};

/// Leases remembered; when more come the oldest is forgotten. Far more than jobs may wait.
const LEASES_MAX: usize = 4096;

/// What is known about a lease without a sequence.
#[derive(Default, PartialEq, Eq, Debug)]
pub(crate) struct Notes {
    /// Blocks copied into their slots.
    pub(crate) imported: Vec<(u32, SlotRef)>,
    /// Blocks that will not come.
    pub(crate) missed: Vec<u32>,
    /// The sequence is not to run.
    pub(crate) aborted: bool,
}

enum Entry {
    Early(Notes),
    Ended,
}

/// Leases whose job has not come, and leases whose sequence has ended.
#[derive(Default)]
pub(crate) struct Early {
    entries: BTreeMap<LeaseId, Entry>,
    order: VecDeque<LeaseId>,
}

impl Early {
    fn insert(&mut self, lease: LeaseId, entry: Entry) {
        if self.entries.insert(lease, entry).is_none() {
            self.order.push_back(lease);
        }
        while self.order.len() > LEASES_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.entries.remove(&oldest);
            }
        }
    }

    /// Remembers that a sequence ended: what still comes for its lease is void.
    pub(crate) fn ended(&mut self, lease: LeaseId) {
        self.insert(lease, Entry::Ended);
    }

    /// The notes of a lease whose job has not come; `None` when its sequence has ended.
    pub(crate) fn notes(&mut self, lease: LeaseId) -> Option<&mut Notes> {
        if !self.entries.contains_key(&lease) {
            self.insert(lease, Entry::Early(Notes::default()));
        }
        match self.entries.get_mut(&lease) {
            Some(Entry::Early(notes)) => Some(notes),
            _ => None,
        }
    }

    /// What came before this job.
    pub(crate) fn claim(&mut self, lease: LeaseId) -> Notes {
        match self.entries.remove(&lease) {
            Some(Entry::Early(notes)) => {
                self.order.retain(|other| *other != lease);
                notes
            }
            Some(Entry::Ended) => {
                self.order.retain(|other| *other != lease);
                Notes::default()
            }
            None => Notes::default(),
        }
    }
}
