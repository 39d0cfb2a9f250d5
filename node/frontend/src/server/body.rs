//! The bytes of a request.

use super::Limits;
use crate::error::{ApiError, Kind};
use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Longest and shortest limit of a body of which tokens are only counted or told: a token takes far
/// more memory than its text while it is made.
const COUNTED: (usize, usize) = (1 << 20, 8 << 20);
/// Bytes of a body per token of the largest context: there is no use in counting more.
const PER_TOKEN: usize = 8;
/// Longest time for a body to come as a whole.
const WHOLE_WITHIN: Duration = Duration::from_secs(600);
/// Bodies up to this many bytes take no part in the room for bodies under way.
const SMALL: usize = 16 << 10;

/// Memory taken for a body before any of it has come, at most.
const PROMISED: usize = 1 << 20;
/// The byte order mark of UTF-8.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// Room for the bodies that are under way, in KiB: clients may begin many and end none.
pub(super) struct Room(Arc<Semaphore>);

/// A part of the room, until it is dropped.
#[derive(Default)]
pub(super) struct Held(Option<OwnedSemaphorePermit>);

impl Room {
    /// Room for some of the largest bodies at once.
    pub(super) fn new(limits: &Limits) -> Self {
        const LARGEST: usize = 8;
        const LEAST: usize = 256 << 20;
        let kib = limits.body_bytes.saturating_mul(LARGEST).max(LEAST) >> 10;
        Self(Arc::new(Semaphore::new(kib.min(Semaphore::MAX_PERMITS))))
    }

    /// Makes what is `held` enough for a body of `bytes` bytes.
    fn hold(&self, held: &mut Held, bytes: usize) -> Result<(), ApiError> {
        let has = held.0.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = bytes.div_ceil(1 << 10).saturating_sub(has);
        if bytes <= SMALL || more == 0 {
            return Ok(());
        }
        let busy = || ApiError {
            retry_after: Some(1),
            ..ApiError::new(Kind::Busy, "too many large requests are under way")
        };
        let more = u32::try_from(more).map_err(|_| busy())?;
        let more = self.0.clone().try_acquire_many_owned(more).map_err(|_| busy())?;
        match &mut held.0 {
            Some(held) => held.merge(more),
            none => *none = Some(more),
        }
        Ok(())
    }
}

/// The limit of a body that is only to be counted or tokenised, where the largest context has so many
/// tokens.
pub(super) fn counted_bytes(limits: &Limits, context: u32) -> usize {
    let (least, most) = COUNTED;
    (context as usize).saturating_mul(PER_TOKEN).clamp(least, most).min(limits.body_bytes)
}

/// The whole body, within its bounds of size and time, and the room that it holds.
pub(super) async fn read(
    headers: &HeaderMap,
    body: Body,
    limits: &Limits,
    room: &Room,
) -> Result<(Bytes, Held), ApiError> {
    let limit = limits.body_bytes;
    let last = tokio::time::Instant::now() + WHOLE_WITHIN;
    if headers.get(header::CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
        let why = "packed bodies are not read here: send the JSON as it is";
        return Err(ApiError::field("content-encoding", why));
    }
    let mut stream = body.into_data_stream();
    // A length is only a promise, and no reason to take much memory.
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    let length = length.and_then(|length| length.parse::<usize>().ok()).unwrap_or_default();
    let mut read = BytesMut::with_capacity(length.min(limit).min(PROMISED));
    let silent = |_| ApiError::new(Kind::Late, "the request body did not come to its end in time");
    let mut held = Held::default();
    loop {
        let until = last.min(tokio::time::Instant::now() + limits.body_silence);
        let chunk = tokio::time::timeout_at(until, stream.next()).await.map_err(silent)?;
        let Some(chunk) = chunk else { break };
        let chunk =
            chunk.map_err(|e| ApiError::invalid(format!("the body could not be read: {e}")))?;
        if read.len().saturating_add(chunk.len()) > limit {
            let message = format!("the request body is over the limit of {limit} bytes");
            return Err(ApiError::new(Kind::TooLarge, message));
        }
        room.hold(&mut held, read.len() + chunk.len())?;
        read.extend_from_slice(&chunk);
    }
    let read = read.freeze();
    // Some tools put one before their JSON; readers may leave it out (RFC 8259, 8.1).
    let read = if read.starts_with(BOM) { read.slice(BOM.len()..) } else { read };
    Ok((read, held))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(body_bytes: usize) -> Limits {
        Limits { body_bytes, ..Limits::default() }
    }

    async fn begun(room: &Room, bytes: usize) -> Result<Held, ApiError> {
        let limits = limits(64 << 20);
        let body = Body::from(vec![b' '; bytes]);
        read(&HeaderMap::new(), body, &limits, room).await.map(|(_, held)| held)
    }

    #[tokio::test]
    async fn bodies_under_way_share_a_room() {
        let room = Room::new(&limits(1 << 20));
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(begun(&room, 60 << 20).await.unwrap());
        }
        let refused = begun(&room, 60 << 20).await.err().unwrap();
        assert_eq!((refused.kind, refused.retry_after), (Kind::Busy, Some(1)));
        // Small ones are no matter, and what ends makes room.
        begun(&room, SMALL).await.unwrap();
        held.pop();
        begun(&room, 60 << 20).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_drips_has_an_end() {
        let drip = futures::stream::unfold((), async |()| {
            tokio::time::sleep(Duration::from_secs(3)).await;
            Some((Ok::<_, std::io::Error>(Bytes::from_static(b" ")), ()))
        });
        let room = Room::new(&limits(1 << 20));
        let began = tokio::time::Instant::now();
        let body = Body::from_stream(Box::pin(drip));
        let late = read(&HeaderMap::new(), body, &limits(1 << 20), &room).await.err().unwrap();
        assert_eq!(late.kind, Kind::Late);
        assert!(began.elapsed() <= WHOLE_WITHIN + Duration::from_secs(1));
    }

    #[test]
    fn what_is_counted_has_the_limit_of_what_a_context_can_hold() {
        let bytes = |context| counted_bytes(&limits(32 << 20), context);
        assert_eq!(
            [0, 8_192, 500_000, 2_000_000].map(bytes),
            [1 << 20, 1 << 20, 4_000_000, 8 << 20]
        );
        assert_eq!(counted_bytes(&limits(1000), 8_192), 1000);
    }
}
