//! The words of the door: what can happen to the store, and what it wants done.

use protocol::block::BlockKey;
use protocol::disk::{DiskEvent, DiskOp};
use protocol::event::BlockEvent;
use protocol::hash::{PrefixHash, RoutingKey};
use protocol::id::{EngineId, NodeId, SessionId, TenantId};
use protocol::op::{
    EngineEvent, EngineOp, FetchOp, Fetched, Grant, LeaseId, OpId, ReadId, Readable,
};
use protocol::plan::Source;
use protocol::prompt::{RangeClaim, Refusal};
use protocol::time::Span;
use std::sync::Arc;

/// A placed request asks for its slots.
#[derive(Clone, Debug)]
pub struct Prepare {
    /// The lease it will have; never used before.
    pub lease: LeaseId,
    /// The engine that serves it.
    pub engine: EngineId,
    /// Whose request.
    pub tenant: TenantId,
    /// Its agent session, when named; ends with [`In::SessionFinal`].
    pub session: Option<SessionId>,
    /// The key of its tenant's names, for the blocks it will generate.
    pub key: RoutingKey,
    /// Names of all full granules of the prompt.
    pub prefix: Arc<Vec<PrefixHash>>,
    /// The prompt's length in tokens; at least 1.
    pub prompt_tokens: u32,
    /// Most tokens it will generate.
    pub max_tokens: u32,
    /// What peers hold and the plan wants fetched.
    pub sources: Vec<Source>,
    /// Claims on ranges of the prompt. Their tenant is taken to be the request's.
    pub claims: Vec<RangeClaim>,
    /// Priority of blocks that no range claims.
    pub priority: i32,
}

/// A prefetch, numbered by its asker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PrefetchId(pub u64);

/// Blocks that will be wanted soon: they are brought up from NVMe to DRAM, within bounds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prefetch {
    /// This prefetch; not in use.
    pub id: PrefetchId,
    /// What, in the order of the prompt, from its first block on.
    pub keys: Vec<BlockKey>,
    /// Of no use after so long; blocks not used until then count as wasted.
    pub within: Span,
}

/// What can happen to a [`crate::Store`].
#[derive(Clone, Debug)]
pub enum In {
    /// A request asks for slots; answered by one [`Out::Granted`] or [`Out::Refused`], at once unless
    /// another request is about to compute what it needs.
    Prepare(Box<Prepare>),
    /// The engine has taken the sequence of this lease. Operations for the sequence are held back
    /// until now, so that none reaches the engine before the sequence does.
    Submitted(LeaseId),
    /// An engine's word. `Load` is ignored.
    Engine(EngineId, EngineEvent),
    /// An engine runs again after it died, with an empty pool.
    EngineUp(EngineId),
    /// One block of a fetch is decided: its slot will not be written any more.
    Fetched {
        /// The fetch.
        op: OpId,
        /// Index into [`FetchOp::blocks`].
        index: usize,
        /// What became of it.
        result: Fetched,
    },
    /// A fetch is over; blocks without a word until now have failed.
    FetchEnded {
        /// The fetch.
        op: OpId,
    },
    /// The lease's guard was dropped: its engine can write to none of its slots any more.
    /// Imports under way for it are still answered.
    Released(LeaseId),
    /// A peer wants to read blocks; answered by one [`Out::ReadGranted`], at once unless some of
    /// them must come up from NVMe first.
    Read {
        /// The read; never used before.
        read: ReadId,
        /// Who.
        reader: NodeId,
        /// What, at most [`protocol::wire::blocks::BLOCKS_MAX`].
        keys: Vec<BlockKey>,
        /// The blocks stay for so long (within a limit), or until [`In::ReadDone`].
        within: Span,
    },
    /// The peer has read or gone away.
    ReadDone(ReadId),
    /// Bring blocks up ahead of need. Not answered; counted.
    Prefetch(Prefetch),
    /// Bring up no more for this prefetch.
    PrefetchEnd(PrefetchId),
    /// The NVMe tier's word. Until its first `Found`, and from `Quarantined` to the next, nothing
    /// is written to disk.
    Disk(DiskEvent),
    /// A session will send no more: its claims end, the blocks stay.
    SessionFinal {
        /// Whose session.
        tenant: TenantId,
        /// Which.
        session: SessionId,
    },
}

/// What a [`crate::Store`] wants done.
#[derive(Clone, PartialEq, Debug)]
pub enum Out {
    /// A request has its slots.
    Granted(Grant),
    /// A request cannot be served now (`Busy`), here (`Gone`, `Failed`) or at all (`TooLong`).
    Refused(LeaseId, Refusal),
    /// For an engine, in this order.
    Engine(EngineId, EngineOp),
    /// Fetch blocks from a peer.
    Fetch(FetchOp),
    /// Nobody waits for this fetch any more: end it. It is still answered by
    /// [`In::FetchEnded`].
    CancelFetch(OpId),
    /// For the NVMe tier, in this order.
    Disk(DiskOp),
    /// A change of what this node holds, for every block.
    Event(BlockEvent),
    /// What a peer may read, in the order it asked.
    ReadGranted {
        /// The read.
        read: ReadId,
        /// One per key.
        blocks: Vec<Readable>,
    },
}
