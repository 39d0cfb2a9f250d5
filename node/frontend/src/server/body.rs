//! The bytes of a request.

use super::Limits;
use crate::error::{ApiError, Kind};
use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use futures::StreamExt;

/// Longest body of which tokens are only counted or told: a token takes far more memory than its
/// text, and no context holds as many.
const COUNTED: usize = 8 << 20;

/// Memory taken for a body before any of it has come, at most.
const PROMISED: usize = 1 << 20;
/// The byte order mark of UTF-8.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// As [`read`], of what is only to be counted or tokenised.
pub(super) async fn read_counted(
    headers: &HeaderMap,
    body: Body,
    limits: &Limits,
) -> Result<Bytes, ApiError> {
    let limits = Limits { body_bytes: limits.body_bytes.min(COUNTED), ..*limits };
    read(headers, body, &limits).await
}

/// The whole body, within its bounds of size and silence.
pub(super) async fn read(
    headers: &HeaderMap,
    body: Body,
    limits: &Limits,
) -> Result<Bytes, ApiError> {
    let limit = limits.body_bytes;
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
    while let Some(chunk) =
        tokio::time::timeout(limits.body_silence, stream.next()).await.map_err(silent)?
    {
        let chunk =
            chunk.map_err(|e| ApiError::invalid(format!("the body could not be read: {e}")))?;
        if read.len().saturating_add(chunk.len()) > limit {
            let message = format!("the request body is over the limit of {limit} bytes");
            return Err(ApiError::new(Kind::TooLarge, message));
        }
        read.extend_from_slice(&chunk);
    }
    let read = read.freeze();
    // Some tools put one before their JSON; readers may leave it out (RFC 8259, 8.1).
    Ok(if read.starts_with(BOM) { read.slice(BOM.len()..) } else { read })
}
