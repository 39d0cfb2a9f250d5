//! Frames of `dn-blobs/1`: one bidirectional stream fetches one blob, such as a model's card or its
//! tokenizer. The answer is a [`BlobHead`] frame and, when present, the raw bytes.

use crate::card::BlobDigest;
use serde::{Deserialize, Serialize};

/// Longest blob in bytes: twice the largest tokenizer files there are.
pub const BLOB_MAX: u64 = 64 << 20;

/// Asks for a blob.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct BlobRequest {
    /// Which.
    pub digest: BlobDigest,
}

/// Begins the answer.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub enum BlobHead {
    /// `length` raw bytes follow, at most [`BLOB_MAX`].
    Present {
        /// Bytes that follow.
        length: u64,
    },
    /// Not here; nothing follows.
    Absent,
    /// The holder is over its limits; nothing follows.
    Busy,
}
