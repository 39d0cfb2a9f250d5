//! `dn-blobs/1`, both sides: bytes that are named by their content, such as a model's card or its
//! tokenizer.

use crate::alpn::Alpn;
use crate::asked;
use crate::blocks::send_paced;
use crate::clock;
use crate::connections::{self, Open};
use crate::error::TransferError;
use crate::frame::{self, Chunks, FrameError, FrameReader};
use crate::serve::{STREAM_CANCELLED, STREAM_FAILED};
use crate::stream::{Sender, Stream, reader_gone};
use crate::transfer::Inner;
use bytes::Bytes;
use protocol::card::BlobDigest;
use protocol::id::NodeId;
use protocol::wire::blobs::{BLOB_MAX, BlobHead, BlobRequest};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Longest request and longest head in bytes.
const FRAME_SHORT: usize = 64;
/// Bytes that must come within [`crate::Limits::idle`], else the holder has stalled.
const PIECE: usize = 64 << 10;
/// A blob is not on its way for longer: a reader does not hold it in the holder's memory, nor a
/// holder that sends drop by drop a place among the blobs that are fetched at once.
const WHOLE_WITHIN: Duration = Duration::from_secs(600);

/// Answers one request of a member.
pub(crate) async fn answer(inner: &Arc<Inner>, peer: NodeId, stream: &mut Stream) {
    let Stream { send, recv } = stream;
    let within = inner.limits.first_frame;
    let Some(request) = asked::request::<BlobRequest>(send, recv, FRAME_SHORT, within).await else {
        return tracing::debug!("{peer:?} sent no request for a blob");
    };
    let Some(_credit) = inner.credits.take(peer) else {
        let _ = frame::write(send, &BlobHead::Busy).await;
        return send.finish().await;
    };
    let gone = reader_gone(send, recv);
    if !asked::sent(WHOLE_WITHIN, gone, send_blob(inner, peer, request, send)).await {
        send.reset(STREAM_FAILED);
    }
}

async fn send_blob(
    inner: &Inner,
    peer: NodeId,
    request: BlobRequest,
    send: &mut Sender,
) -> Result<(), FrameError> {
    let found = inner.host.read_blob(peer, request.digest).await;
    match found.filter(|bytes| bytes.len() as u64 <= BLOB_MAX) {
        None => frame::write(send, &BlobHead::Absent).await?,
        Some(bytes) => {
            frame::write(send, &BlobHead::Present { length: bytes.len() as u64 }).await?;
            send_paced(inner, bytes, send).await?;
        }
    }
    send.finish().await;
    send.arrived().await;
    Ok(())
}

/// See [`crate::Transfer::fetch_blob`].
pub(crate) async fn fetch(
    inner: &Arc<Inner>,
    node: NodeId,
    addrs: &[SocketAddr],
    digest: BlobDigest,
) -> Result<Bytes, TransferError> {
    inner
        .paths
        .admit(&node, clock::now())
        .map_err(|left| TransferError::Quarantined { node, for_ms: left.as_millis() as u64 })?;
    let mut open = connections::open(inner, node, Alpn::Blobs, addrs).await?;
    let blob = in_time(receive(&mut open, digest, inner.limits.idle)).await;
    match blob {
        Ok(bytes) => {
            open.give_back(inner.limits.connect).await;
            Ok(bytes)
        }
        Err(reason) => {
            open.stream.recv.stop(STREAM_CANCELLED);
            Err(TransferError::NoBlob { node, reason })
        }
    }
}

/// What comes of `receiving`, unless it takes too long as a whole.
async fn in_time(receiving: impl Future<Output = Result<Bytes, String>>) -> Result<Bytes, String> {
    match tokio::time::timeout(WHOLE_WITHIN, receiving).await {
        Ok(blob) => blob,
        Err(_) => Err(format!("not all had come after {} s", WHOLE_WITHIN.as_secs())),
    }
}

/// Asks for the blob; or why it did not come, in words.
async fn receive(open: &mut Open, digest: BlobDigest, idle: Duration) -> Result<Bytes, String> {
    let Stream { send, recv } = &mut open.stream;
    frame::write(send, &BlobRequest { digest }).await.map_err(|e| e.to_string())?;
    send.finish().await;
    content(recv, digest, idle).await
}

/// The blob, checked.
async fn content<S: Chunks>(
    stream: S,
    digest: BlobDigest,
    idle: Duration,
) -> Result<Bytes, String> {
    let broke = |e: FrameError| e.to_string();
    let stalled = |_| "nothing came for too long".to_owned();
    let mut reader = FrameReader::new(stream);
    let head = tokio::time::timeout(idle, reader.frame::<BlobHead>(FRAME_SHORT));
    let length = match head.await.map_err(stalled)?.map_err(broke)? {
        BlobHead::Present { length } if length <= BLOB_MAX => length as usize,
        BlobHead::Present { length } => return Err(format!("{length} bytes are too many")),
        BlobHead::Absent => return Err("it has no such bytes".into()),
        BlobHead::Busy => return Err("it is busy".into()),
    };
    let mut bytes = Vec::new();
    let mut content = blake3::Hasher::new();
    while bytes.len() < length {
        // What is announced costs memory only as it comes.
        let from = bytes.len();
        bytes.resize(length.min(from + PIECE), 0);
        let piece = bytes.get_mut(from..).unwrap_or_default();
        let read = tokio::time::timeout(idle, reader.read_exact(piece));
        read.await.map_err(stalled)?.map_err(broke)?;
        content.update(piece);
    }
    if *content.finalize().as_bytes() != digest.0 {
        return Err("it sent other bytes than those named".into());
    }
    Ok(bytes.into())
}

#[cfg(test)]
mod tests;
