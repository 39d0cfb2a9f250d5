//! Frames of `dn-blocks/1`: one bidirectional stream per fetch. The request names blocks; for each,
//! in order, the answer carries a [`BlockHead`] frame and, when present, the raw bytes.

use crate::block::{BlockKey, SignedDigest};
use serde::{Deserialize, Serialize};

/// Most blocks in one request.
pub const BLOCKS_MAX: usize = 1024;

/// Asks for blocks.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct BlocksRequest {
    /// Which, at most [`BLOCKS_MAX`].
    pub keys: Vec<BlockKey>,
    /// The reader gives up after so many milliseconds; the holder's lease expires with it.
    pub within_ms: u32,
}

/// Announces one block of the answer.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub enum BlockHead {
    /// `length` raw bytes follow.
    Present {
        /// Digest as the producer signed it.
        digest: Box<SignedDigest>,
        /// Bytes that follow.
        length: u64,
    },
    /// Not here; nothing follows.
    Absent,
    /// The holder is over its limits: this and all later blocks are not sent.
    Busy,
}
