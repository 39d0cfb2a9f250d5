//! `dn-serve/1`: one placed request out, its stream back.
//!
//! The client leaves its sending side open for as long as it wants answers; resetting it, or
//! closing the connection, cancels. The server ends its side when the stream is complete.

use crate::error::TransferError;
use crate::frame::{self, Chunks, FrameError, FrameReader};
use crate::transfer::Inner;
use protocol::id::NodeId;
use protocol::wire::FRAME_MAX;
use protocol::wire::serve::{ServeAnswer, ServeRequest};
use quinn::{Connection, RecvStream, SendStream, VarInt};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Answers that wait between the stream and either end; then flow control holds the sender.
pub(crate) const ANSWERS_WAITING: usize = 64;
/// Answers written with one call.
const ANSWERS_AT_ONCE: usize = 32;

/// Stream code: the reader wants no more.
pub(crate) const STREAM_CANCELLED: VarInt = VarInt::from_u32(1);
/// Stream code: the request frame was not one.
pub(crate) const STREAM_MALFORMED: VarInt = VarInt::from_u32(2);
/// Stream code: the serving side failed or ran out of time.
pub(crate) const STREAM_FAILED: VarInt = VarInt::from_u32(3);

/// Serves one stream of a member.
pub(crate) async fn answer(
    inner: Arc<Inner>,
    peer: NodeId,
    mut send: SendStream,
    recv: RecvStream,
) {
    let mut reader = FrameReader::new(recv);
    let request = reader.frame::<ServeRequest>(FRAME_MAX);
    let request = match tokio::time::timeout(inner.limits.first_frame, request).await {
        Ok(Ok(request)) => request,
        failed => {
            tracing::debug!("request of {peer:?}: {:?}", failed.map(|r| r.map(|_| ())));
            let _ = send.reset(STREAM_MALFORMED);
            return;
        }
    };
    let (answers, waiting) = mpsc::channel(ANSWERS_WAITING);
    let serving = async {
        inner.host.serve(peer, request, answers).await;
        Ok(())
    };
    let mut recv = reader.into_stream();
    let outcome = tokio::select! {
        biased;
        () = cancelled(&mut recv) => Err(FrameError::Ended),
        outcome = async { tokio::try_join!(serving, write_answers(&mut send, waiting)) } => outcome,
    };
    let _ = match outcome {
        Ok(_) => send.finish(),
        Err(_) => send.reset(STREAM_CANCELLED),
    };
}

/// Returns when the client cancels: it says nothing after its request, so anything ends it.
async fn cancelled(recv: &mut RecvStream) {
    let _ = recv.chunk(1).await;
}

async fn write_answers(
    send: &mut SendStream,
    mut waiting: mpsc::Receiver<ServeAnswer>,
) -> Result<(), FrameError> {
    let mut answers = Vec::with_capacity(ANSWERS_AT_ONCE);
    while waiting.recv_many(&mut answers, ANSWERS_AT_ONCE).await > 0 {
        let mut bytes = Vec::new();
        for answer in answers.drain(..) {
            frame::append(&mut bytes, &answer)?;
        }
        send.write_chunk(bytes.into()).await?;
    }
    Ok(())
}

/// Sends a request over an open stream and returns its answers. The channel closes when the stream
/// ends, complete or not; whether it was complete is told by its last item.
pub(crate) async fn ask(
    inner: Arc<Inner>,
    connection: Connection,
    (mut send, recv): (SendStream, RecvStream),
    node: NodeId,
    request: &ServeRequest,
) -> Result<mpsc::Receiver<ServeAnswer>, TransferError> {
    frame::write(&mut send, request).await?;
    let (answers, waiting) = mpsc::channel(ANSWERS_WAITING);
    let mut reader = FrameReader::new(recv);
    tokio::spawn(async move {
        let complete = tokio::select! {
            biased;
            () = answers.closed() => false,
            complete = forward(&mut reader, &answers, || {
                inner.paths.answered(&node, connection.rtt());
            }) => complete,
        };
        if complete {
            let _ = send.finish();
        } else {
            let _ = send.reset(STREAM_CANCELLED);
            let _ = reader.into_stream().stop(STREAM_CANCELLED);
        }
    });
    Ok(waiting)
}

/// Hands answers on until the stream ends; false when it was cut or nobody listens.
async fn forward(
    reader: &mut FrameReader<RecvStream>,
    answers: &mpsc::Sender<ServeAnswer>,
    heard: impl FnOnce(),
) -> bool {
    let mut heard = Some(heard);
    loop {
        match reader.frame_or_end(FRAME_MAX).await {
            Ok(Some(answer)) => {
                if let Some(heard) = heard.take() {
                    heard();
                }
                if answers.send(answer).await.is_err() {
                    return false;
                }
            }
            Ok(None) => return true,
            Err(e) => {
                tracing::debug!("a stream of answers broke: {e}");
                return false;
            }
        }
    }
}
