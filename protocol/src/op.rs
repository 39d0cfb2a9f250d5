//! Operations between the block manager and those who move bytes, and the engine's words.
//!
//! Control goes by these messages; bytes go by region, tokens by channel.

use crate::block::{BlockKey, ContentDigest, SignedDigest, SlotId, SlotRef, StorageNamespace};
use crate::event::EngineLoad;
use crate::hash::{RoutingNamespace, Token};
use crate::id::{EngineId, NodeId};
use crate::prompt::Refusal;
use crate::time::Time;
use serde::{Deserialize, Serialize};

/// A running operation of the block manager; late answers are ignored by id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug)]
pub struct OpId(pub u64);

/// A lease on slots for one request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug)]
pub struct LeaseId(pub u64);

/// A peer's lease on blocks that it reads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug)]
pub struct ReadId(pub u64);

/// What an engine is, told once when it starts.
#[derive(Clone, PartialEq, Debug)]
pub struct EngineSpec {
    /// Which.
    pub engine: EngineId,
    /// Kind: `embedded`, `mock`, …
    pub kind: String,
    /// Served model name.
    pub model: String,
    /// What must be equal for equal prefix names.
    pub routing: RoutingNamespace,
    /// What must be equal to use each other's bytes.
    pub storage: StorageNamespace,
    /// Slots of its pool, one block each.
    pub slots: u32,
    /// Longest prompt plus answer, in tokens.
    pub context: u32,
}

impl EngineSpec {
    /// Refuses a prompt and its slots when they can never run on this engine.
    ///
    /// # Errors
    /// [`Refusal::TooLong`] when no answer token fits behind the prompt, [`Refusal::Failed`] for
    /// tokens outside the vocabulary and for a lease that does not fit.
    pub fn accepts(&self, vocabulary: u32, prompt: &[Token], grant: &Grant) -> Result<(), Refusal> {
        let malformed = |what: &str| Err(Refusal::Failed(what.into()));
        // One token must fit after the prompt.
        let limit = self.context.saturating_sub(1);
        if prompt.len() > limit as usize {
            let tokens = u32::try_from(prompt.len()).unwrap_or(u32::MAX);
            return Err(Refusal::TooLong { tokens, limit });
        }
        if prompt.is_empty() {
            return malformed("the prompt has no tokens");
        }
        if prompt.iter().any(|token| token.0 >= vocabulary) {
            return malformed("the prompt has a token outside the model's vocabulary");
        }
        let blocks = prompt.len().div_ceil(self.storage.block_tokens.max(1) as usize);
        if grant.slots.len() < blocks {
            return malformed("the lease does not cover the prompt");
        }
        if grant.slots.iter().any(|slot| slot.slot.0 >= self.slots) {
            return malformed("the lease has a slot outside the pool");
        }
        Ok(())
    }
}

/// What the block manager wants an engine to do. Resident engines only.
#[derive(Clone, PartialEq, Debug)]
pub enum EngineOp {
    /// Copy a DRAM slot into a slot of the engine's pool, unless the sequence of `lease` has begun
    /// to compute that block; answered by [`EngineEvent::Imported`].
    Import {
        /// This operation.
        op: OpId,
        /// The sequence that waits for it.
        lease: LeaseId,
        /// Index of the block in the sequence.
        index: u32,
        /// Destination in the engine's pool.
        to: SlotRef,
        /// Source in DRAM; the manager holds it until the answer.
        from: SlotRef,
        /// What the bytes must be.
        digest: ContentDigest,
    },
    /// Copy a sealed slot of the engine's pool to DRAM; answered by [`EngineEvent::Exported`].
    Export {
        /// This operation.
        op: OpId,
        /// Source in the engine's pool.
        from: SlotRef,
        /// Destination in DRAM.
        to: SlotRef,
    },
    /// A block that the sequence waits for will not come: compute it.
    Missed {
        /// The sequence.
        lease: LeaseId,
        /// Index of the block in the sequence.
        index: u32,
    },
    /// More slots for a sequence that asked with [`EngineEvent::NeedSlots`]; empty when there is
    /// no room now (the youngest sequence pauses and asks again).
    Grant {
        /// The sequence.
        lease: LeaseId,
        /// Slots for its next blocks.
        slots: Vec<SlotRef>,
    },
    /// Stop the sequence; complete when its lease is dropped.
    Abort {
        /// The sequence.
        lease: LeaseId,
    },
}

/// What became of an [`EngineOp::Import`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Copied {
    /// The sequence has the block.
    Used,
    /// The sequence had computed the block itself or was gone, or the slot could not be read.
    Unused,
    /// The bytes in DRAM are not those of the digest: memory has failed. The sequence computes the
    /// block.
    Corrupt,
}

/// What an engine tells the block manager.
#[derive(Clone, PartialEq, Debug)]
pub enum EngineEvent {
    /// A block of a sequence is full and will not change. Told in order of index; for blocks that
    /// were imported or reused it is not told.
    Sealed {
        /// The sequence.
        lease: LeaseId,
        /// Index of the block in the sequence.
        index: u32,
        /// Its tokens (all of them, one block).
        tokens: Vec<Token>,
    },
    /// The sequence will soon need slots beyond those leased.
    NeedSlots {
        /// The sequence.
        lease: LeaseId,
        /// How many blocks more.
        blocks: u32,
    },
    /// Answer to [`EngineOp::Import`].
    Imported {
        /// The operation.
        op: OpId,
        /// What became of the copy.
        copied: Copied,
    },
    /// Answer to [`EngineOp::Export`]; `digest` is `None` when the copy failed. The block manager
    /// signs the digest.
    Exported {
        /// The operation.
        op: OpId,
        /// Digest of the bytes now in DRAM.
        digest: Option<ContentDigest>,
    },
    /// Load and measured rates, after a step that changed them.
    Load(EngineLoad),
    /// The engine stopped: all its sequences are gone and its pool is lost.
    Died(String),
}

/// What a lease gives a sequence.
#[derive(Clone, PartialEq, Debug)]
pub struct Grant {
    /// The lease.
    pub lease: LeaseId,
    /// Slots for the prompt's blocks and the first answer blocks, in order.
    pub slots: Vec<SlotRef>,
    /// Blocks that are usable at once, from the first on.
    pub ready: u32,
    /// Blocks on their way (by index); each ends as an import or as [`EngineOp::Missed`].
    pub arriving: Vec<Arriving>,
}

/// A block on its way into a sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arriving {
    /// Index of the block in the sequence.
    pub index: u32,
    /// Where it comes from.
    pub from: ArrivingFrom,
    /// After this the engine computes the block itself.
    pub deadline: Time,
}

/// Source of an arriving block, for the accounts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArrivingFrom {
    /// The node's DRAM.
    Dram,
    /// The node's NVMe.
    Nvme,
    /// Another node.
    Peer(NodeId),
}

/// A fetch of blocks from one peer into leased DRAM slots.
#[derive(Clone, PartialEq, Debug)]
pub struct FetchOp {
    /// This operation.
    pub op: OpId,
    /// From whom.
    pub from: NodeId,
    /// What, and where to put it.
    pub blocks: Vec<(BlockKey, SlotRef)>,
    /// Bytes of each block.
    pub block_bytes: u64,
    /// Give up then.
    pub deadline: Time,
}

/// What became of one block of a fetch.
#[derive(Clone, PartialEq, Debug)]
pub enum Fetched {
    /// Arrived whole; bytes, digest and signature agree.
    Verified(Box<SignedDigest>),
    /// The peer does not hold it.
    Absent,
    /// The bytes or the signature were wrong: the peer lies or its memory fails.
    Corrupt,
    /// It did not come in time, or the peer could not be reached.
    Failed,
}

/// A block a peer may read: which slot and the digest that travels with it.
#[derive(Clone, PartialEq, Debug)]
pub struct Readable {
    /// The block.
    pub key: BlockKey,
    /// Its DRAM slot and digest; `None` when it is not here.
    pub place: Option<(SlotRef, SignedDigest)>,
}

/// Number of a slot in a pool of `n`, or `None` outside.
pub fn slot_index(slot: SlotId, n: usize) -> Option<usize> {
    usize::try_from(slot.0).ok().filter(|index| *index < n)
}

#[cfg(test)]
mod tests;
