//! What goes into the machine and what comes out.

use protocol::event::{
    BlockEvent, BucketDigests, Buckets, BucketsWanted, Contact, EngineReport, EventBatch,
    MemberView, Seq, Snapshot,
};
use protocol::id::{Incarnation, NodeId};
use protocol::trust::{MemberCert, UnixTime};
use protocol::wire::gossip::{Direct, Published};
use protocol::wire::handshake::Mismatch;

/// What can happen to the gossip machine.
#[derive(Clone, PartialEq, Debug)]
pub enum In {
    /// The own store changed.
    Event(BlockEvent),
    /// The own engines, and what else the heartbeat says. Replaces the last report.
    Report {
        /// Engines.
        engines: Vec<EngineReport>,
        /// Bytes promised to others and not yet sent.
        owed_bytes: u64,
        /// Blocks held: engine, DRAM, NVMe.
        blocks: [u64; 3],
        /// True while it takes nothing new.
        draining: bool,
    },
    /// A direct stream to this node works now, either way.
    Connected(NodeId),
    /// It is gone.
    Disconnected(NodeId),
    /// A frame on a direct stream; `from` is what the connection proved.
    Direct {
        /// The peer.
        from: NodeId,
        /// What it said.
        frame: Direct,
    },
    /// A message on the topic. `from` only passed it on.
    Published {
        /// The neighbour that passed it on.
        from: NodeId,
        /// What it says.
        frame: Published,
    },
    /// This node admitted a member, or renewed its own certificate: the others must know.
    Admitted(MemberCert),
    /// A member known from elsewhere (the join answer, the disk), and where it was.
    Known {
        /// Its certificate.
        cert: MemberCert,
        /// Its last known addresses; a hint until it says so itself.
        contact: Contact,
    },
    /// Answer to [`Out::CutSnapshot`].
    SnapshotCut {
        /// For whom.
        to: NodeId,
        /// One per origin.
        snapshots: Vec<Snapshot>,
    },
    /// The index holds another set for this origin than its signed digest says.
    Diverged {
        /// The origin.
        origin: NodeId,
        /// In which life.
        incarnation: Incarnation,
        /// After which batch.
        seq: Seq,
        /// What the index holds there.
        buckets: BucketDigests,
    },
    /// Answer to [`Out::CutBuckets`].
    BucketsCut {
        /// For whom.
        to: NodeId,
        /// `None` where the index cannot help.
        buckets: Option<Box<Buckets>>,
    },
    /// The wall clock, a few times a minute; only certificates look at it.
    WallClock(UnixTime),
    /// Answer to [`Out::JumpPast`]: this node lives on under a new, durable incarnation. Everything
    /// it holds is told again.
    Reborn(Incarnation),
    /// Say goodbye; the machine does nothing after it.
    Leave,
}

/// What the machine wants done.
#[derive(Clone, PartialEq, Debug)]
pub enum Out {
    /// Send on the direct stream, in order. May be dropped when the peer is slow: it will ask.
    Direct {
        /// The peer.
        to: NodeId,
        /// What to say.
        frame: Direct,
    },
    /// Publish on the site's topic.
    Publish(Published),
    /// For the index: the next verified batch of its origin, own ones too.
    Learn(Box<EventBatch>),
    /// For the index: replaces the origin's set; batches after the watermark follow.
    LearnSnapshot(Box<Snapshot>),
    /// For the index: replaces some buckets of the origin's set as it was at their watermark, and
    /// applies `later` again: all that came after it up to the last batch learned. The place from
    /// which batches continue stays.
    LearnBuckets {
        /// The buckets, all parts in one.
        buckets: Box<Buckets>,
        /// In order, without a gap.
        later: Vec<EventBatch>,
    },
    /// For the index: cut these sets and answer with [`In::SnapshotCut`]. Never this node's own.
    CutSnapshot {
        /// Who wants them.
        to: NodeId,
        /// Whose; at least one.
        origins: Vec<NodeId>,
    },
    /// For the index: cut what differs from what a peer has, and answer with [`In::BucketsCut`].
    /// Never of this node's own set.
    CutBuckets {
        /// Who wants it.
        to: NodeId,
        /// What it has, and of whom.
        wanted: Box<BucketsWanted>,
        /// The origin's batches after the peer's place, up to the last one learned.
        later: Vec<EventBatch>,
    },
    /// For the index: the entries of that life go now.
    Forget {
        /// The node.
        node: NodeId,
        /// The life that is over.
        incarnation: Incarnation,
    },
    /// A member (this node too) changed state, contact or load.
    Member(Box<MemberView>),
    /// A valid member, new or renewed: let it in, and keep its certificate.
    Allow(MemberCert),
    /// No member any more: let it in no longer.
    Disallow(NodeId),
    /// Try to connect.
    Dial {
        /// Whom.
        node: NodeId,
        /// Where.
        contact: Contact,
    },
    /// Close the connection.
    Close(NodeId),
    /// Why a connection is closed, for the log.
    Refused {
        /// The peer.
        node: NodeId,
        /// Why.
        reason: Refused,
    },
    /// Another process lives under this identity: stop, and print the remedy.
    Twin {
        /// This life.
        ours: Incarnation,
        /// The other.
        theirs: Incarnation,
    },
    /// This identity has lived with this counter before (an old disk came back): write a higher one
    /// to disk and answer with [`In::Reborn`].
    JumpPast(u64),
}

/// Why a peer is refused at `Hello`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// The two builds or clusters do not fit.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// It names another node than the connection proved.
    #[error("the peer claims an identity that is not its own (field `node`)")]
    NotItself,
    /// Its certificate is not the issuer's, or has run out.
    #[error("the peer has no valid membership certificate (field `cert`): let it join again")]
    NotMember,
    /// No room.
    #[error("this node knows as many members as it may")]
    Full,
}
