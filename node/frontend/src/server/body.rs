//! The bytes of a request.

use super::Limits;
use crate::error::{ApiError, Kind};
use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;

/// The whole body, within its bounds of size and silence.
pub(super) async fn read(body: Body, limits: &Limits) -> Result<Bytes, ApiError> {
    let limit = limits.body_bytes;
    let mut stream = body.into_data_stream();
    let mut read = BytesMut::new();
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
    Ok(read.freeze())
}
