//! What goes into the machine and what comes out.

use protocol::event::MemberView;
use protocol::id::NodeId;
use protocol::state::{Kept, Record, RecordId, StateError};
use protocol::time::Span;
use protocol::wire::state::StateFrame;

/// What can happen to the machine.
#[derive(Clone, PartialEq, Debug)]
pub enum In {
    /// Write a record; answered by [`Answer::Put`].
    Put {
        /// Told back.
        call: u64,
        /// Which.
        id: RecordId,
        /// At most [`protocol::state::VALUE_MAX`] bytes.
        value: Vec<u8>,
        /// Cut to [`protocol::state::TTL_MAX`].
        ttl: Span,
    },
    /// Read a record; answered by [`Answer::Got`].
    Get {
        /// Told back.
        call: u64,
        /// Which.
        id: RecordId,
    },
    /// Delete a record; answered by [`Answer::Deleted`].
    Delete {
        /// Told back.
        call: u64,
        /// Which.
        id: RecordId,
    },
    /// A frame; `from` is what the connection proved.
    Frame {
        /// The peer.
        from: NodeId,
        /// What it said.
        frame: StateFrame,
    },
    /// There is this member, living or not: it may have records, and counts when a write is to be
    /// safe.
    Known(NodeId),
    /// A member changed state, as gossip sees it.
    Member(Box<MemberView>),
    /// Answer to a [`DiskOp`].
    Written {
        /// Which operation.
        write: u64,
        /// It is done, and will be after a crash.
        durable: bool,
    },
    /// This node goes down in order: hand everything over, answer [`Out::HandedOver`].
    Leave,
}

/// For the node's durable records; performed in order, each answered by [`In::Written`]. No more
/// than [`DISK_OPS_MAX`](crate::config::DISK_OPS_MAX) operations and
/// [`DISK_BYTES_MAX`](crate::config::DISK_BYTES_MAX) wait for an answer, and one record more.
#[derive(Clone, PartialEq, Debug)]
pub enum DiskOp {
    /// Keep this record instead of an earlier one of that name.
    Write {
        /// Told back.
        write: u64,
        /// What.
        record: Record,
    },
    /// Keep it no longer.
    Erase {
        /// Told back.
        write: u64,
        /// Which.
        id: RecordId,
    },
}

/// What a read found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// The newest value that was found; `None`: there is no such record.
    pub value: Option<Vec<u8>>,
    /// Two owners were heard, so that no earlier acknowledged write is newer. Else a copy was found,
    /// and the other owners did not answer in time.
    pub confirmed: bool,
}

/// What a deletion did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deleted {
    /// There is no such record.
    Absent,
    /// It was there, and the deletion is kept so well.
    Gone(Kept),
}

/// An answer to a call.
#[derive(Clone, PartialEq, Debug)]
pub enum Answer {
    /// To [`In::Put`].
    Put(Result<Kept, StateError>),
    /// To [`In::Get`].
    Got(Result<Found, StateError>),
    /// To [`In::Delete`].
    Deleted(Result<Deleted, StateError>),
}

/// What the machine wants done.
#[derive(Clone, PartialEq, Debug)]
pub enum Out {
    /// Send to a member. May be lost: it is sent again, or the next comparison mends it.
    Send {
        /// To whom.
        to: NodeId,
        /// What.
        frame: StateFrame,
    },
    /// For the disk.
    Disk(DiskOp),
    /// For the caller.
    Answer {
        /// Of which call.
        call: u64,
        /// What.
        answer: Answer,
    },
    /// After [`In::Leave`]: other owners have all that is durable here.
    HandedOver,
}
