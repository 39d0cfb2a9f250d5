//! Frames between the machines that keep replicated records.

use crate::state::{Record, RecordId, Version};
use serde::{Deserialize, Serialize};

/// What a node holds of a record, without its value.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Newest {
    /// Of the newest write that it has seen.
    pub version: Version,
    /// That write was a deletion.
    pub deleted: bool,
}

/// A record by name and write.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Holding {
    /// Which record.
    pub id: RecordId,
    /// Which write.
    pub version: Version,
}

/// What two owners should hold alike.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Summary {
    /// First byte of the records' places.
    pub bucket: u8,
    /// How many.
    pub count: u32,
    /// Sum of [`crate::state::mix`] over them, modulo 2^128.
    pub digest: u128,
}

/// All that a node holds of one bucket and shares with the receiver, between two ids.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Range {
    /// Which bucket.
    pub bucket: u8,
    /// Only ids after this one; from the beginning without it.
    pub after: Option<RecordId>,
    /// Only ids up to this one; to the end without it.
    pub upto: Option<RecordId>,
    /// In the order of their ids.
    pub held: Vec<Holding>,
}

/// A frame of `node/state`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub enum StateFrame {
    /// Keep this write; answered by `Kept`, `Newer` or `NotKept`.
    Put {
        /// Told back.
        op: u64,
        /// The write.
        record: Record,
    },
    /// It is durable here.
    Kept {
        /// From the `Put`.
        op: u64,
    },
    /// A later write is here already.
    Newer {
        /// From the `Put`.
        op: u64,
        /// Its version.
        version: Version,
    },
    /// There is no room for it, or the disk fails.
    NotKept {
        /// From the `Put`.
        op: u64,
    },
    /// What is held of a record? Answered by `Got`.
    Get {
        /// Told back.
        op: u64,
        /// Which record.
        id: RecordId,
        /// The asker has this write or a later one.
        than: Option<Version>,
        /// The value is wanted too, if it is newer than that.
        value: bool,
    },
    /// The answer.
    Got {
        /// From the `Get`.
        op: u64,
        /// `None` when nothing is held.
        newest: Option<Newest>,
        /// The record, if it was wanted.
        record: Option<Record>,
    },
    /// What the sender holds of what it shares with the receiver, in short. Where that differs, the
    /// receiver answers with `Range`.
    Digests(Vec<Summary>),
    /// All of a bucket, or of a part of it. The receiver pushes what is newer with it, and wants
    /// what is older.
    Range(Range),
    /// Push these.
    Want(Vec<RecordId>),
    /// Records that the receiver should have; answered by `Holds` once durable.
    Push(Vec<Record>),
    /// The sender has these and is no owner. The receiver answers with `Want` and `Holds`.
    Offer(Vec<Holding>),
    /// These or later writes are durable at the sender.
    Holds(Vec<Holding>),
}
