//! Which blocks are written to NVMe.
//!
//! A flash cell wears out and a write takes the time of a read, so not every block is worth it.
//! A block is refused when
//! 1. all its claims say that it is reasoning, which templates drop from the next turn's prompt;
//! 2. too many wait to be written: the disk is slower than the engines;
//! 3. its place would have to be taken from a pinned block, or there is no place at all;
//! 4. its place would have to be taken from another block, and this one was here before and left
//!    without having been read: the tier is too small for what passes through it. It is
//!    remembered for that once; when it is offered again, it has come back often enough.
//!
//! Blocks that follow a refused one are refused too, because the tier's tree is closed towards
//! the root.

use crate::tier::Room;
use protocol::block::{BlockClass, BlockKey};
use std::collections::{BTreeSet, VecDeque};

#[cfg(test)]
mod tests;

/// Why a block is not written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// Of a class that will not be read again.
    Class,
    /// Too many wait.
    Busy,
    /// Only pinned blocks, or none, could make room.
    Pinned,
    /// It left unread a while ago, and there is no free place.
    Unread,
}

/// The filter's memory.
#[derive(Debug)]
pub(crate) struct Admission {
    ghosts: BTreeSet<BlockKey>,
    /// The same in the order of leaving; may name some that have been taken out since.
    order: VecDeque<BlockKey>,
    most: usize,
}

impl Admission {
    /// A filter that remembers `most` blocks.
    pub(crate) fn new(most: usize) -> Self {
        Self { ghosts: BTreeSet::new(), order: VecDeque::new(), most }
    }

    /// Whether a block may wait for its write.
    pub(crate) fn may_wait(
        class: Option<BlockClass>,
        waiting: usize,
        most: usize,
    ) -> Result<(), Refused> {
        if class == Some(BlockClass::Reasoning) {
            return Err(Refused::Class);
        }
        if waiting >= most {
            return Err(Refused::Busy);
        }
        Ok(())
    }

    /// Whether a block may be written now, at the cost of `room`.
    pub(crate) fn may_write(&mut self, key: &BlockKey, room: Room) -> Result<(), Refused> {
        match room {
            Room::Free => {
                self.ghosts.remove(key);
                Ok(())
            }
            Room::None | Room::Evicts { pinned: true, .. } => Err(Refused::Pinned),
            Room::Evicts { .. } if self.ghosts.remove(key) => Err(Refused::Unread),
            Room::Evicts { key: victim, read, .. } => {
                if !read {
                    self.remember(victim);
                }
                Ok(())
            }
        }
    }

    fn remember(&mut self, key: BlockKey) {
        if self.most == 0 || !self.ghosts.insert(key) {
            return;
        }
        self.order.push_back(key);
        while self.order.len() > self.most {
            if let Some(oldest) = self.order.pop_front() {
                self.ghosts.remove(&oldest);
            }
        }
    }
}
