//! Frames between gossip machines.

use crate::event::{Buckets, BucketsWanted, EventBatch, Heartbeat, Seq, Snapshot, Suspicion};
use crate::id::{Incarnation, NodeId};
use crate::trust::MemberCert;
use crate::wire::handshake::Hello;
use crate::wire::state::StateFrame;
use serde::{Deserialize, Serialize};

/// A frame on a direct stream between two members.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub enum Direct {
    /// First on a new connection, both ways.
    Hello(Box<Hello>),
    /// Certificates of members the sender knows.
    Members(Vec<MemberCert>),
    /// Batches of one or several origins.
    Batches(Vec<EventBatch>),
    /// Batches `from..=to` of an origin are missing here.
    Want {
        /// Whose batches.
        origin: NodeId,
        /// Of which life.
        incarnation: Incarnation,
        /// First missing.
        from: Seq,
        /// Last missing.
        to: Seq,
    },
    /// Whole sets are wanted: all origins, or one.
    WantSnapshot {
        /// The origin; `None` for all that the donor knows.
        origin: Option<NodeId>,
    },
    /// A donor's sets, one frame or several.
    Snapshots(Vec<Snapshot>),
    /// The sender leaves the cluster for good or goes down in order.
    Goodbye {
        /// Of which life.
        incarnation: Incarnation,
    },
    /// Are you there? (suspicion; answered by `Ack`)
    Probe {
        /// Told back.
        nonce: u64,
    },
    /// Yes.
    Ack {
        /// From the probe.
        nonce: u64,
    },
    /// Ask `subject` whether it is there and tell me.
    ProbeFor {
        /// Whom to ask.
        subject: NodeId,
        /// Told back.
        nonce: u64,
    },
    /// A heartbeat under the receiver's identity: another process lives under it, unless it is the
    /// receiver's own. Whoever hears of two such lives tells both.
    Echo(Box<Heartbeat>),
    /// A heartbeat off the topic: the sender's own, or proof that somebody lives whom the receiver
    /// suspects.
    Heard(Box<Heartbeat>),
    /// Members that the sender suspects since a moment ago. Who knows better says so by `Heard`; a
    /// suspect that hears of it beats at once.
    Suspects(Vec<Suspicion>),
    /// The buckets are wanted in which the receiver's set of an origin differs from the sender's.
    WantBuckets(Box<BucketsWanted>),
    /// The answer, or a part of it.
    Buckets(Box<Buckets>),
    /// Not for the gossip machine: about replicated records.
    State(Box<StateFrame>),
}

/// A message on the site's gossipsub topic.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub enum Published {
    /// Presence, load and digest of a node.
    Heartbeat(Box<Heartbeat>),
    /// A member was admitted.
    Admitted(Box<MemberCert>),
}
