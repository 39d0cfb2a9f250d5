//! `dn-blocks/1`, the holder's side: blocks out of DRAM slots, without copying them.

use crate::asked;
use crate::frame::{self, FrameError};
use crate::host::ReadBlock;
use crate::serve::{STREAM_FAILED, STREAM_MALFORMED};
use crate::stream::{Sender, Stream, reader_gone};
use crate::throttle::PIECE;
use crate::transfer::Inner;
use bytes::Bytes;
use kernels::SlotReader;
use protocol::id::NodeId;
use protocol::wire::blocks::{BLOCKS_MAX, BlockHead, BlocksRequest};
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

/// Longest request in bytes.
pub(crate) const REQUEST_MAX: usize = BLOCKS_MAX * 64;
/// A reader cannot ask for more time than this, in milliseconds.
const WITHIN_MAX_MS: u32 = 60_000;

/// Answers one request of a member.
pub(crate) async fn answer(inner: &Arc<Inner>, peer: NodeId, stream: &mut Stream) {
    let Stream { send, recv } = stream;
    let within = inner.limits.first_frame;
    let request = asked::request::<BlocksRequest>(send, recv, REQUEST_MAX, within).await;
    let Some(request) = request else {
        return tracing::debug!("{peer:?} sent no request for blocks");
    };
    if request.keys.len() > BLOCKS_MAX {
        return send.reset(STREAM_MALFORMED);
    }
    let Some(_credit) = inner.credits.take(peer) else {
        let _ = frame::write(send, &BlockHead::Busy).await;
        return send.finish().await;
    };
    let within = Duration::from_millis(request.within_ms.min(WITHIN_MAX_MS).into());
    let gone = reader_gone(send, recv);
    if !asked::sent(within, gone, send_blocks(inner, peer, request, send)).await {
        // Also lets go of the slots whose bytes still wait to be sent.
        send.reset(STREAM_FAILED);
    }
}

/// Sends the blocks and waits until they have arrived: so long the credit is taken.
async fn send_blocks(
    inner: &Inner,
    peer: NodeId,
    request: BlocksRequest,
    send: &mut Sender,
) -> Result<(), FrameError> {
    let keys = request.keys.len();
    let found = inner.host.read_blocks(peer, request).await;
    for block in found.into_iter().chain(std::iter::repeat_with(|| None)).take(keys) {
        match block {
            None => frame::write(send, &BlockHead::Absent).await?,
            Some(block) => send_block(inner, block, send).await?,
        }
    }
    send.finish().await;
    send.arrived().await;
    Ok(())
}

async fn send_block(inner: &Inner, block: ReadBlock, send: &mut Sender) -> Result<(), FrameError> {
    let ReadBlock { digest, bytes, lease } = block;
    let length = bytes.len() as u64;
    frame::write(send, &BlockHead::Present { digest: Box::new(digest), length }).await?;
    // The slot itself becomes the send buffer; it is released when its last byte is acknowledged
    // (QUIC), or has been encrypted (TLS-TCP).
    send_paced(inner, Bytes::from_owner(Leased { bytes, _lease: lease }), send).await
}

/// Sends bytes, no faster than the configuration allows.
pub(crate) async fn send_paced(
    inner: &Inner,
    mut bytes: Bytes,
    send: &mut Sender,
) -> Result<(), FrameError> {
    let Some(throttle) = &inner.throttle else {
        return send.send(bytes).await;
    };
    while !bytes.is_empty() {
        let piece = bytes.split_to(bytes.len().min(PIECE));
        throttle.wait(piece.len()).await;
        send.send(piece).await?;
    }
    Ok(())
}

/// A slot being sent, with what its reading holds.
struct Leased {
    bytes: SlotReader,
    _lease: Option<Box<dyn Any + Send + Sync>>,
}

impl AsRef<[u8]> for Leased {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
