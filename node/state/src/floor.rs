//! What stays of a write that goes: that all before it is over.
//!
//! A write takes the place of what was there, a deletion too, and may itself go long before an earlier
//! write would whose copy a node still has that was down. So a write that knew of another one leaves a
//! deletion just below itself, as its time ends or as it goes for want of room. It is none of
//! that write itself: other owners may have it and hand it out.

use crate::table::{Entry, Table};
use protocol::id::NodeId;
use protocol::state::{DELETED_TTL, Record, RecordId, Version};
use protocol::time::{Span, Time};

/// In place of a writer; no node has this name.
const NOBODY: NodeId = NodeId([0xff; 32]);

/// What a write of this version leaves for so long. Nothing if it knew of no other.
fn below(id: RecordId, version: Version, ttl: Span) -> Option<Record> {
    let counter = version.counter.checked_sub(1).filter(|counter| *counter > 0)?;
    let version = Version { counter, writer: NOBODY, write: u64::MAX };
    (ttl > Span::ZERO).then(|| Record { id, version, deleted: true, ttl, value: Vec::new() })
}

/// Whether it says only that earlier writes are over, and nothing of later ones.
pub(crate) fn is_floor(version: &Version) -> bool {
    version.writer == NOBODY
}

impl Table {
    /// Removes a record whose time is over, or for which there is no room. What it replaced is
    /// over all the same.
    pub(crate) fn let_go(
        &mut self,
        now: Time,
        id: &RecordId,
        evicted: &mut Vec<RecordId>,
    ) -> Option<Entry> {
        let entry = self.remove(id)?;
        if !entry.deleted {
            // Whatever it replaced was written before it came here.
            let ttl = (entry.since + DELETED_TTL).since(now);
            self.leave_floor(now, (*id, entry.version), ttl, evicted);
        }
        Some(entry)
    }

    /// What stays of a write that is here no more.
    pub(crate) fn leave_floor(
        &mut self,
        now: Time,
        (id, version): (RecordId, Version),
        ttl: Span,
        evicted: &mut Vec<RecordId>,
    ) {
        if let Some(floor) = below(id, version, ttl) {
            // Not even this has room: as with a deletion, the oldest is forgotten.
            let _new_or_no_room = self.place(now, floor, None, evicted);
        }
    }
}
