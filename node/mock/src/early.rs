//! What came before its job, and which leases are over.
//!
//! A lease's operations and its job take different ways to the engine, so either can be first.

use protocol::op::{EngineOp, LeaseId};
use std::collections::{BTreeMap, VecDeque};

/// Leases remembered; when more come the oldest is forgotten. Far more than jobs may wait.
const LEASES_MAX: usize = 4096;

enum Entry {
    Early(Vec<EngineOp>),
    Ended,
}

/// Leases whose job has not come, and leases whose sequence has ended.
#[derive(Default)]
pub(crate) struct Early {
    entries: BTreeMap<LeaseId, (u64, Entry)>,
    order: VecDeque<(u64, LeaseId)>,
    stamp: u64,
}

impl Early {
    /// Remembers that a sequence ended: what still comes for its lease is void. Returns operations
    /// that nobody will want any more.
    pub(crate) fn ended(&mut self, lease: LeaseId) -> Vec<EngineOp> {
        self.insert(lease, Entry::Ended)
    }

    /// Keeps an operation for the job of its lease; returns those that nobody will want any more,
    /// this one when its lease has ended.
    pub(crate) fn keep(&mut self, lease: LeaseId, op: EngineOp) -> Vec<EngineOp> {
        match self.entries.get_mut(&lease) {
            Some((_, Entry::Ended)) => vec![op],
            Some((_, Entry::Early(ops))) => {
                ops.push(op);
                Vec::new()
            }
            None => self.insert(lease, Entry::Early(vec![op])),
        }
    }

    /// What came before this job.
    pub(crate) fn claim(&mut self, lease: LeaseId) -> Vec<EngineOp> {
        match self.entries.remove(&lease) {
            Some((_, Entry::Early(ops))) => ops,
            _ => Vec::new(),
        }
    }

    /// The engine restarted: operations that wait for a job wait in vain.
    pub(crate) fn forget(&mut self) {
        self.entries.retain(|_, (_, entry)| matches!(entry, Entry::Ended));
    }

    fn insert(&mut self, lease: LeaseId, entry: Entry) -> Vec<EngineOp> {
        self.stamp += 1;
        self.entries.insert(lease, (self.stamp, entry));
        self.order.push_back((self.stamp, lease));
        let mut void = Vec::new();
        while self.entries.len() > LEASES_MAX || self.order.len() > 2 * LEASES_MAX {
            let Some((stamp, oldest)) = self.order.pop_front() else { break };
            if self.entries.get(&oldest).is_some_and(|(current, _)| *current == stamp) {
                void.extend(self.claim(oldest));
            }
        }
        void
    }
}
