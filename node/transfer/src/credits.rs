//! Credit limits of the block server: so many streams at once, for one peer and in all.

use protocol::id::NodeId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Streams in progress, counted per peer.
#[derive(Debug)]
pub(crate) struct Credits {
    per_peer: usize,
    total: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    total: usize,
    peers: BTreeMap<NodeId, usize>,
}

/// The right to one stream; given back when dropped.
#[derive(Debug)]
pub(crate) struct Credit {
    credits: Arc<Credits>,
    peer: NodeId,
}

impl Credits {
    pub(crate) fn new(per_peer: usize, total: usize) -> Arc<Self> {
        Arc::new(Self { per_peer, total, taken: Mutex::default() })
    }

    /// A credit for `peer`, or `None` when it, or all peers together, are at the limit.
    pub(crate) fn take(self: &Arc<Self>, peer: NodeId) -> Option<Credit> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let of_peer = taken.peers.get(&peer).copied().unwrap_or_default();
        if taken.total >= self.total || of_peer >= self.per_peer {
            return None;
        }
        taken.total += 1;
        taken.peers.insert(peer, of_peer + 1);
        Some(Credit { credits: Arc::clone(self), peer })
    }
}

impl Drop for Credit {
    fn drop(&mut self) {
        let mut taken = self.credits.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.total = taken.total.saturating_sub(1);
        match taken.peers.get_mut(&self.peer) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(taken.peers.remove(&self.peer)),
        }
    }
}

#[cfg(test)]
mod tests;
