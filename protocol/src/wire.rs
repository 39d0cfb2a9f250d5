//! The encoding of everything that leaves a process, and the frames of each protocol.
//!
//! bincode 2 with its standard configuration and a decode limit. Versions are agreed in the
//! handshake; docs/formats.md lists every frame and its number. Decoders refuse what is longer than
//! the limit before they allocate, and numbers they do not know.

pub mod blobs;
pub mod blocks;
pub mod gossip;
pub mod handshake;
pub mod join;
pub(crate) mod packed;
pub mod serve;
pub mod state;

use serde::{Serialize, de::DeserializeOwned};

/// Longest frame of the control protocols, in bytes (block bytes are not framed by this).
pub const FRAME_MAX: usize = 8 << 20;

/// Why bytes are not a frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Longer than allowed.
    #[error("frame of {0} bytes is over the limit of {1}")]
    TooLong(usize, usize),
    /// Not a value of the expected type.
    #[error("malformed frame: {0}")]
    Malformed(String),
    /// Bytes follow the value.
    #[error("frame has {0} bytes too many")]
    Trailing(usize),
    /// The value cannot be encoded.
    #[error("value cannot be encoded: {0}")]
    Encode(String),
}

fn config() -> impl bincode::config::Config {
    bincode::config::standard().with_limit::<FRAME_MAX>()
}

/// Encodes a value.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, WireError> {
    bincode::serde::encode_to_vec(value, config()).map_err(|e| WireError::Encode(e.to_string()))
}

/// Encodes a value behind what `out` holds, which stays as it was when that fails.
pub fn encode_onto<T: Serialize>(out: &mut Vec<u8>, value: &T) -> Result<(), WireError> {
    let before = out.len();
    let encoded = bincode::serde::encode_into_std_write(value, out, config());
    encoded.map(|_| ()).map_err(|e| {
        out.truncate(before);
        WireError::Encode(e.to_string())
    })
}

/// Decodes a value that takes all of `bytes`.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, WireError> {
    if bytes.len() > FRAME_MAX {
        return Err(WireError::TooLong(bytes.len(), FRAME_MAX));
    }
    let (value, used) = bincode::serde::decode_from_slice(bytes, config())
        .map_err(|e| WireError::Malformed(e.to_string()))?;
    match bytes.len().saturating_sub(used) {
        0 => Ok(value),
        extra => Err(WireError::Trailing(extra)),
    }
}

#[cfg(test)]
mod tests;
