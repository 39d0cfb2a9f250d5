//! Operations between the block manager and the NVMe tier. The block manager decides which block
//! lives in which slot; the tier moves the bytes, keeps its index durable, and verifies what it
//! reads.

use crate::block::{BlockKey, Claim, SignedDigest, SlotId, SlotRef};
use crate::op::OpId;
use crate::time::Time;
use serde::{Deserialize, Serialize};

/// Most claims kept beside a block on disk.
pub const DISK_CLAIMS_MAX: usize = 8;

/// A block as the disk index describes it: enough to use it again after a restart.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct DiskBlock {
    /// The block.
    pub key: BlockKey,
    /// The block before it; `None` for a prompt's first.
    pub parent: Option<BlockKey>,
    /// The prefix's length in tokens, this block included.
    pub tokens: u32,
    /// Digest of the bytes as the producer signed it.
    pub signed: SignedDigest,
    /// Who wants it kept, at most [`DISK_CLAIMS_MAX`]. Spans are what remains at the moment of the
    /// message; the tier keeps them against the wall clock, so that a pin also ages while the node
    /// is down.
    pub claims: Vec<Claim>,
}

/// What the block manager wants the NVMe tier to do. Never blocks; answered by [`DiskEvent`]s in
/// any order.
#[derive(Clone, PartialEq, Debug)]
pub enum DiskOp {
    /// Write a DRAM slot into a disk slot, then its index record: data, fdatasync, index. The block
    /// manager holds the DRAM slot until the answer, [`DiskEvent::Written`].
    Write {
        /// This operation.
        op: OpId,
        /// Source in DRAM.
        from: SlotRef,
        /// Destination on disk; its former block, if any, was forgotten before.
        to: SlotId,
        /// The block.
        block: Box<DiskBlock>,
    },
    /// Read a disk slot into a DRAM slot and verify it; answered by [`DiskEvent::Read`].
    Read {
        /// This operation.
        op: OpId,
        /// Which block is expected there.
        key: BlockKey,
        /// Source on disk.
        from: SlotId,
        /// Destination in DRAM.
        to: SlotRef,
        /// Of no use after this: recomputing is quicker.
        deadline: Time,
    },
    /// The slot's block has left the tier: its index record goes before any later write to the slot
    /// begins. Not answered.
    Forget {
        /// The slot.
        slot: SlotId,
        /// The block it held.
        key: BlockKey,
    },
    /// The claims of a block changed. Not answered; may be lost in a crash.
    Keep {
        /// The slot.
        slot: SlotId,
        /// The block it holds.
        key: BlockKey,
        /// All its claims now, at most [`DISK_CLAIMS_MAX`].
        claims: Vec<Claim>,
    },
}

/// What the NVMe tier tells the block manager.
#[derive(Clone, PartialEq, Debug)]
pub enum DiskEvent {
    /// Blocks that an earlier life of this node left, or that a disk which works again holds; one
    /// event or several, parents before children. The slots are theirs.
    Found(Vec<(SlotId, DiskBlock)>),
    /// Answer to [`DiskOp::Write`]: true when data and index record are durable. After false the
    /// slot holds nothing of use.
    Written {
        /// The operation.
        op: OpId,
        /// Whether it is on disk.
        durable: bool,
    },
    /// Answer to [`DiskOp::Read`].
    Read {
        /// The operation.
        op: OpId,
        /// What became of it.
        result: DiskRead,
    },
    /// The disk fails: what it holds cannot be used until [`DiskEvent::Found`] says otherwise.
    /// Operations under way are answered before this; those that cross it on their way are answered
    /// all the same.
    Quarantined {
        /// In words, for the operator.
        reason: String,
    },
}

/// What became of a read from disk.
#[derive(Clone, PartialEq, Debug)]
pub enum DiskRead {
    /// The bytes are in DRAM and match the producer's signed digest.
    Verified(Box<SignedDigest>),
    /// The slot holds other bytes: a torn or misdirected write, or a sick disk. Its record is gone.
    Corrupt,
    /// The disk gave an error.
    Failed,
    /// Not in time. The DRAM slot is not written any more.
    Late,
}
