//! Frames on a stream: length as four bytes, little endian, then the encoded value.

use crate::stream::Sender;
use bytes::{Buf, Bytes};
use protocol::wire::{self, FRAME_MAX, WireError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::future::Future;

/// Bytes reserved before any of a frame has arrived: a length alone must not cost memory.
const RESERVE_MAX: usize = 64 << 10;

/// Most bytes taken from the transport at once.
const CHUNK_MAX: usize = 256 << 10;

/// Why a frame was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The announced length is over the limit of this place; nothing was reserved for it.
    #[error("a frame of {0} bytes is over the limit of {1}")]
    TooLong(usize, usize),
    /// The stream ended inside a frame or before an expected one.
    #[error("the stream ended early")]
    Ended,
    /// The bytes are not the expected value.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The stream was reset or the connection lost.
    #[error("the stream was lost: {0}")]
    Lost(String),
}

impl From<quinn::WriteError> for FrameError {
    fn from(e: quinn::WriteError) -> Self {
        Self::Lost(e.to_string())
    }
}

impl From<quinn::ReadError> for FrameError {
    fn from(e: quinn::ReadError) -> Self {
        Self::Lost(e.to_string())
    }
}

/// Appends the frame of `value` to `out`.
pub(crate) fn append<T: Serialize>(out: &mut Vec<u8>, value: &T) -> Result<(), FrameError> {
    let before = out.len();
    out.extend([0; 4]);
    let encoded = wire::encode_onto(out, value);
    let length = (out.len() - before).saturating_sub(4);
    match (encoded, out.get_mut(before..before + 4)) {
        (Ok(()), Some(place)) if length <= FRAME_MAX => {
            place.copy_from_slice(&(length as u32).to_le_bytes());
            Ok(())
        }
        (encoded, _) => {
            out.truncate(before);
            encoded?;
            Err(FrameError::TooLong(length, FRAME_MAX))
        }
    }
}

/// Writes one frame.
pub(crate) async fn write<T: Serialize>(send: &mut Sender, value: &T) -> Result<(), FrameError> {
    let mut bytes = Vec::new();
    append(&mut bytes, value)?;
    send.send(bytes.into()).await
}

/// A source of bytes in order.
pub(crate) trait Chunks: Send {
    /// The next bytes, at most `max`; `None` at the end.
    fn chunk(
        &mut self,
        max: usize,
    ) -> impl Future<Output = Result<Option<Bytes>, FrameError>> + Send;
}

/// Reads frames and raw bytes from a stream.
pub(crate) struct FrameReader<S> {
    stream: S,
    rest: Bytes,
}

impl<S: Chunks> FrameReader<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, rest: Bytes::new() }
    }

    /// Takes up to `max` bytes; empty only at the end of the stream.
    async fn take(&mut self, max: usize) -> Result<Bytes, FrameError> {
        while self.rest.is_empty() {
            match self.stream.chunk(CHUNK_MAX).await? {
                Some(bytes) => self.rest = bytes,
                None => return Ok(Bytes::new()),
            }
        }
        Ok(self.rest.split_to(self.rest.len().min(max)))
    }

    /// Fills `out`.
    pub(crate) async fn read_exact(&mut self, out: &mut [u8]) -> Result<(), FrameError> {
        let mut left = out;
        while !left.is_empty() {
            let bytes = self.take(left.len()).await?;
            let (now, later) = left.split_at_mut_checked(bytes.len()).ok_or(FrameError::Ended)?;
            if now.is_empty() {
                return Err(FrameError::Ended);
            }
            now.copy_from_slice(&bytes);
            left = later;
        }
        Ok(())
    }

    /// Throws `length` bytes away.
    pub(crate) async fn skip(&mut self, length: u64) -> Result<(), FrameError> {
        let mut left = length;
        while left > 0 {
            let bytes = self.take(usize::try_from(left).unwrap_or(usize::MAX)).await?;
            if bytes.is_empty() {
                return Err(FrameError::Ended);
            }
            left -= bytes.len() as u64;
        }
        Ok(())
    }

    /// Reads one frame of at most `max` bytes, or `None` when the stream ends before it.
    pub(crate) async fn frame_or_end<T: DeserializeOwned>(
        &mut self,
        max: usize,
    ) -> Result<Option<T>, FrameError> {
        let mut length = self.take(4).await?;
        if length.is_empty() {
            return Ok(None);
        }
        let mut raw = [0u8; 4];
        let (got, missing) = raw.split_at_mut(length.len());
        length.copy_to_slice(got);
        self.read_exact(missing).await?;
        let length = u32::from_le_bytes(raw) as usize;
        if length > max {
            return Err(FrameError::TooLong(length, max));
        }
        let whole = self.rest.len() >= length;
        let body = if whole { self.rest.split_to(length) } else { self.gather(length).await? };
        Ok(Some(wire::decode(&body)?))
    }

    /// Reads one frame of at most `max` bytes.
    pub(crate) async fn frame<T: DeserializeOwned>(&mut self, max: usize) -> Result<T, FrameError> {
        self.frame_or_end(max).await?.ok_or(FrameError::Ended)
    }

    /// Collects `length` bytes; memory grows with what has arrived.
    async fn gather(&mut self, length: usize) -> Result<Bytes, FrameError> {
        let mut body = Vec::with_capacity(length.min(RESERVE_MAX));
        while body.len() < length {
            let bytes = self.take(length - body.len()).await?;
            if bytes.is_empty() {
                return Err(FrameError::Ended);
            }
            body.extend_from_slice(&bytes);
        }
        Ok(body.into())
    }
}

#[cfg(test)]
mod tests;
