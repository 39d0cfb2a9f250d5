//! The answering side of a stream that carries one request and one answer of raw bytes.

use crate::frame::{FrameError, FrameReader};
use crate::serve::STREAM_MALFORMED;
use crate::stream::{Receiver, Sender};
use serde::de::DeserializeOwned;
use std::time::Duration;

/// The request, of at most `longest` bytes, behind which the reader says no more; `None`, and the
/// stream is reset, when none comes within `within`.
pub(crate) async fn request<T: DeserializeOwned>(
    send: &mut Sender,
    recv: &mut Receiver,
    longest: usize,
    within: Duration,
) -> Option<T> {
    let mut reader = FrameReader::new(recv);
    let request = async {
        let request = reader.frame::<T>(longest).await?;
        // Whatever comes from now on means that the reader has gone.
        match reader.frame_or_end::<u8>(0).await? {
            None => Ok(request),
            Some(_) => Err(FrameError::Ended),
        }
    };
    let request = tokio::time::timeout(within, request).await;
    let request = request.ok().and_then(Result::ok);
    if request.is_none() {
        send.reset(STREAM_MALFORMED);
    }
    request
}

/// Whether `sending` came to its end well, within `within` and before the reader has `gone`.
pub(crate) async fn sent(
    within: Duration,
    gone: impl Future<Output = ()>,
    sending: impl Future<Output = Result<(), FrameError>>,
) -> bool {
    tokio::select! {
        biased;
        sent = tokio::time::timeout(within, sending) => matches!(sent, Ok(Ok(()))),
        () = gone => false,
    }
}
