//! The words of the door: what can happen to the engine, and what it wants done.

use crate::{Pattern, Script};
use protocol::block::{ContentDigest, SlotRef};
use protocol::hash::Token;
use protocol::id::{NodeId, RequestId};
use protocol::op::{EngineEvent, EngineOp, Grant, LeaseId, OpId};
use protocol::prompt::{Limits, Refusal, Sampling, StreamItem};
use protocol::time::Time;
use std::sync::Arc;

/// One sequence to run.
#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    /// The request, for logs.
    pub request: RequestId,
    /// Its slots; they must cover the prompt.
    pub grant: Grant,
    /// The whole prompt; at least one token.
    pub prompt: Arc<Vec<Token>>,
    /// How to choose tokens.
    pub sampling: Sampling,
    /// When to stop.
    pub limits: Limits,
    /// Higher goes sooner.
    pub priority: i32,
    /// When the request reached this node; earlier goes sooner among equal priorities.
    pub arrived: Time,
    /// This node, to be told in the stream.
    pub serving_node: NodeId,
    /// What to answer; `None` takes [`crate::Config::script`].
    pub script: Option<Arc<Script>>,
    /// Tokens at the prompt's end that earlier runs of the same request generated. A script and
    /// [`crate::Config::answer_tokens`] go on after them.
    pub resumed: u32,
}

/// What can happen to an [`crate::Engine`].
#[derive(Clone, PartialEq, Debug)]
pub enum In {
    /// A sequence to run.
    Submit(Box<Job>),
    /// An operation of the block manager. One that comes before its lease's job is kept for it.
    Op(EngineOp),
    /// The reader of a lease's stream went away: the sequence ends without a word.
    Gone(LeaseId),
    /// The reader's channel is full (`true`), or has room again.
    Blocked(LeaseId, bool),
    /// Answer to [`Out::Write`]: the digest of the bytes now in the slot, or `None` when the slot
    /// could not be written.
    Written {
        /// The operation.
        op: OpId,
        /// Digest.
        digest: Option<ContentDigest>,
    },
    /// Answer to [`Out::Read`]; `None` when the bytes are no pattern. They are used all the same,
    /// as an engine would that cannot tell: the answer changes, and [`crate::Stats`] counts it.
    Read {
        /// The operation.
        op: OpId,
        /// What the slot holds.
        pattern: Option<Pattern>,
    },
    /// Answer to [`Out::Read`] when the slot could not be read (its generation is over): the
    /// sequence computes the block.
    Unreadable(OpId),
    /// Answer to [`Out::Read`] when the bytes are not those of the digest: the sequence computes the
    /// block.
    Corrupt(OpId),
    /// The engine's process died and is up again, empty. Leases granted before must not be submitted
    /// any more: their slots went with the pool.
    Restart,
}

/// What an [`crate::Engine`] wants done.
#[derive(Clone, PartialEq, Debug)]
pub enum Out {
    /// For the stream of a lease.
    Item(LeaseId, StreamItem),
    /// A job that is not run.
    Refused(LeaseId, Refusal),
    /// For the block manager, in this order.
    Event(EngineEvent),
    /// No more write to the lease's slots can land: its guard may drop. The last output for a lease.
    Done(LeaseId),
    /// Fill a DRAM slot; answered by [`In::Written`].
    Write {
        /// The operation.
        op: OpId,
        /// With what.
        pattern: Pattern,
        /// Where.
        to: SlotRef,
    },
    /// Look at a DRAM slot; answered by [`In::Read`], [`In::Corrupt`] or
    /// [`In::Unreadable`].
    Read {
        /// The operation.
        op: OpId,
        /// Where.
        from: SlotRef,
        /// What the bytes must be.
        digest: ContentDigest,
    },
}
