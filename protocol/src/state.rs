//! The cluster's small replicated records: stored responses, sessions and the like.
//!
//! A record is kept by three owners, chosen by its place; `node/state` decides who and how. Nobody
//! there looks into a value.

use crate::id::NodeId;
use crate::time::Span;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Longest value of a record in bytes.
pub const VALUE_MAX: usize = 1 << 20;
/// Longest life of a record from its last write; longer ones are cut to it (30 days).
pub const TTL_MAX: Span = Span::secs(30 * 24 * 3600);
/// How long a deletion is remembered: longer than any copy of what it deletes can live, with a day
/// for clocks that are wrong.
pub const DELETED_TTL: Span = Span::secs(31 * 24 * 3600);

/// What a record is for. Each kind has limits of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug)]
pub enum RecordKind {
    /// A stored response.
    Response,
    /// What is known of an agent session.
    Session,
    /// A certificate that is valid no more.
    Revocation,
    /// Blocks that must not come back.
    Tombstone,
    /// A tenant's share on a node.
    Quota,
}

impl RecordKind {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 5] =
        [Self::Response, Self::Session, Self::Revocation, Self::Tombstone, Self::Quota];

    /// Its number on the wire.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Its name, for metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Response => "response",
            Self::Session => "session",
            Self::Revocation => "revocation",
            Self::Tombstone => "tombstone",
            Self::Quota => "quota",
        }
    }
}

/// Names a record of a kind. Records of one place have the same owners.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RecordKey {
    /// What decides the owners: a conversation, say. Evenly distributed, so a digest.
    pub place: [u8; 16],
    /// Which record of that place.
    pub name: [u8; 16],
}

impl fmt::Debug for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [place, name] = [self.place, self.name].map(u128::from_be_bytes);
        write!(f, "{:08x}/{:08x}", place >> 96, name >> 96)
    }
}

/// A record's full name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug)]
pub struct RecordId {
    /// Its key; first, so that what lies at one place is together.
    pub key: RecordKey,
    /// Its kind.
    pub kind: RecordKind,
}

/// Which of two writes of one record counts: the greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug)]
pub struct Version {
    /// One more than that of the write which the writer knew of.
    pub counter: u64,
    /// The node at which the write came in.
    pub writer: NodeId,
    /// Tells the writer's writes apart, in all its lives: it begins at random.
    pub write: u64,
}

/// How much `node` wants the records of a place: the members that want them most are their owners.
/// (Rendezvous hashing: a member that comes or goes moves no other member's records.)
pub fn weight(place: &[u8; 16], node: &NodeId) -> u64 {
    let mut short = [0u8; 8];
    blake3::Hasher::new_keyed(&node.0).update(place).finalize_xof().fill(&mut short);
    u64::from_le_bytes(short)
}

/// A write as a number, to be summed up: equal sets of writes have equal sums.
pub fn mix(id: &RecordId, version: &Version) -> u128 {
    let Version { counter, writer, write } = version;
    let mut hasher = blake3::Hasher::new_keyed(&writer.0);
    hasher.update(&[id.kind.number()]).update(&id.key.place).update(&id.key.name);
    hasher.update(&counter.to_le_bytes()).update(&write.to_le_bytes());
    let mut short = [0u8; 16];
    hasher.finalize_xof().fill(&mut short);
    u128::from_le_bytes(short)
}

/// A record, or that it was deleted.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its name.
    pub id: RecordId,
    /// Which write this is.
    pub version: Version,
    /// It was deleted: the value is empty, and stays away for `ttl`.
    pub deleted: bool,
    /// What remains of its life; at most [`TTL_MAX`], or [`DELETED_TTL`] when deleted.
    pub ttl: Span,
    /// At most [`VALUE_MAX`] bytes.
    pub value: Vec<u8>,
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values are tenants' texts: never in a log.
        let Self { id, version, deleted, ttl, value } = self;
        let what = if *deleted { "deleted".into() } else { format!("{} bytes", value.len()) };
        write!(
            f,
            "{id:?} {}:{:?} {what} for {} s",
            version.counter,
            version.writer,
            ttl.0 / 1_000_000_000
        )
    }
}

/// How well a write is kept when it is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kept {
    /// Durable on two owners; in a cluster of one, on that node.
    Safe,
    /// Durable on fewer, within the time that a write may take; the owners go on to copy it.
    Degraded {
        /// Nodes that have it; at least one.
        acks: u32,
    },
}

/// Why a record can be neither read nor written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StateError {
    /// Too few owners answered in time: it may exist or not.
    #[error("the record's owners do not answer")]
    Unavailable,
    /// No node could keep it: disks fail or are full.
    #[error("no node could keep the record")]
    NotKept,
    /// The value is longer than [`VALUE_MAX`].
    #[error("a record of {0} bytes is over the limit of {VALUE_MAX}")]
    TooLong(usize),
    /// Too many reads and writes are under way here.
    #[error("too many records are being read and written")]
    Busy,
    /// The node goes down.
    #[error("the node stops")]
    Stopped,
}

#[cfg(test)]
mod tests;
