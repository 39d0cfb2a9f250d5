//! What happens to a node, and in which of its parts.

use crate::net::{Side, StreamId};
use protocol::block::SlotRef;
use protocol::disk::{DiskEvent, DiskOp};
use protocol::id::{EngineId, RequestId};
use protocol::op::{FetchOp, Grant, LeaseId, OpId, ReadId, Readable};
use protocol::prompt::{Prompt, Refusal};
use std::sync::Arc;

/// A part of a node that handles one message after the other: an actor, a thread, or its tasks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Part {
    Gossip,
    Router,
    Store,
    Admission,
    Engine(EngineId),
    Fetcher,
    Disk,
    Tasks,
    State,
    Records,
}

impl Part {
    /// A number for the digest.
    pub(crate) fn number(self) -> u64 {
        match self {
            Self::Gossip => 1,
            Self::Router => 2,
            Self::Store => 3,
            Self::Admission => 4,
            Self::Fetcher => 5,
            Self::Disk => 6,
            Self::Tasks => 7,
            Self::State => 80,
            Self::Records => 81,
            Self::Engine(engine) => 8 + u64::from(engine.0),
        }
    }
}

/// A local message.
#[derive(Debug)]
pub(crate) enum Mail {
    Gossip(Box<gossip::In>),
    Router(Box<router::In>),
    Store(Box<kvstore::In>),
    State(Box<state::In>),
    /// The thread of durable records has done this now.
    Record(Box<state::DiskOp>),
    Admission(router::admission::In),
    /// With the life of the engine that the sender believes in.
    Engine(EngineId, u32, Box<mock::In>),
    /// The engine's bytes are copied now.
    Copy(EngineId, u32, Box<mock::Out>),
    Fetch(Box<FetchOp>),
    CancelFetch(OpId),
    Disk(Box<DiskOp>),
    /// The disk has an answer, with bytes for a DRAM slot.
    DiskAnswer(Box<DiskEvent>, Option<(SlotRef, Vec<u8>)>),
    /// A lease, with the life of the engine in which it was given.
    Granted(Box<Grant>, u32),
    Refused(LeaseId, Refusal),
    Admitted(RequestId, Result<(), Refusal>),
    ReadGranted(ReadId, Vec<Readable>),
}

impl Mail {
    pub(crate) fn part(&self) -> Part {
        match self {
            Self::Gossip(_) => Part::Gossip,
            Self::Router(_) => Part::Router,
            Self::Store(_) => Part::Store,
            Self::Admission(_) => Part::Admission,
            Self::State(_) => Part::State,
            Self::Record(_) => Part::Records,
            Self::Engine(engine, ..) | Self::Copy(engine, ..) => Part::Engine(*engine),
            Self::Fetch(_) | Self::CancelFetch(_) => Part::Fetcher,
            Self::Disk(_) | Self::DiskAnswer(..) => Part::Disk,
            Self::Granted(..) | Self::Refused(..) | Self::Admitted(..) | Self::ReadGranted(..) => {
                Part::Tasks
            }
        }
    }
}

/// What a timer of a node's tasks is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Timer {
    /// A refused lease is asked for again.
    Lease(u64),
    /// A fetch's time is over.
    Fetch(OpId),
    /// A lent block is wanted no longer.
    Lend(ReadId),
    /// A connection for a prompt could not be made.
    Unreached(RequestId),
    /// Likewise for a fetch.
    Unfetched(OpId),
    /// An engine's supervisor starts it again.
    EngineUp(EngineId, u32),
    /// A disk that was given up is tried again.
    Revive,
    /// The load is told to gossip, and what the ways to peers measure to the router.
    Report,
    /// Somebody looks at the wall clock.
    Wall,
}

/// Something that happens.
#[derive(Debug)]
pub(crate) enum Event {
    /// A message is handled.
    Mail(Mail),
    /// A machine's deadline.
    Tick(Part),
    /// A frame arrives at this side of a stream.
    Frame {
        stream: StreamId,
        side: Side,
    },
    /// A stream ended without a last frame.
    Closed {
        stream: StreamId,
        peer: usize,
    },
    /// A topic message arrives.
    Topic {
        from: usize,
        bytes: Arc<[u8]>,
    },
    /// Another node's attempt to connect for gossip arrives.
    Dialled {
        by: usize,
    },
    /// A prompt arrives at its entry node.
    Asked(Box<Prompt>),
    /// Its client has left.
    Left(RequestId),
    /// A timer runs out.
    Timer(Timer),
    /// An agent acts.
    Agent(usize),
    /// A slow reader takes an item, or a client leaves.
    Reader(RequestId),
    /// A clerk acts, or gives up on a node that is gone.
    Clerk(usize),
    /// The next request of a trace.
    Trace,
    /// Faults are drawn.
    Weather,
    /// A cut heals, or its connections run into their idle time.
    Heal {
        from: usize,
        to: usize,
        cut: u64,
    },
    Idle {
        from: usize,
        to: usize,
        cut: u64,
    },
    /// A stopped node starts again.
    Start(usize),
}

impl Event {
    /// A number for the digest.
    pub(crate) fn number(&self) -> u64 {
        match self {
            Self::Mail(mail) => 100 + mail.part().number(),
            Self::Tick(part) => 200 + part.number(),
            Self::Frame { stream, side } => (*stream << 10) | 300 | (*side as u64),
            Self::Closed { stream, .. } => (*stream << 10) | 310,
            Self::Topic { from, .. } => ((*from as u64) << 10) | 320,
            Self::Dialled { by } => ((*by as u64) << 10) | 330,
            Self::Asked(_) => 338,
            Self::Left(_) => 339,
            Self::Timer(_) => 340,
            Self::Agent(agent) => ((*agent as u64) << 10) | 350,
            Self::Clerk(clerk) => ((*clerk as u64) << 10) | 355,
            Self::Reader(_) => 360,
            Self::Trace => 361,
            Self::Weather => 362,
            Self::Heal { .. } => 363,
            Self::Idle { .. } => 364,
            Self::Start(host) => ((*host as u64) << 10) | 370,
        }
    }

    /// In a few words, for the report of a failure.
    pub(crate) fn words(&self) -> String {
        let mut text = format!("{self:?}");
        if text.len() > 160 {
            let cut = (0..=160).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            text.truncate(cut);
            text.push('…');
        }
        text
    }
}
