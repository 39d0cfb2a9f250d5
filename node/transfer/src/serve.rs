//! `dn-serve/1`: one placed request out, its stream back.
//!
//! The client leaves its sending side open for as long as it wants answers; resetting it, or
//! closing the connection, cancels. The server ends its side when the stream is complete.
//!
//! Prompts that grow are sent from where the server has them: [`sent`] knows what it has, [`kept`] has
//! it. When they disagree the server says so, and gets the whole prompt.

pub(crate) mod kept;
pub(crate) mod sent;

use crate::connections::Open;
use crate::error::TransferError;
use crate::frame::{self, Chunks, FrameError, FrameReader};
use crate::stream::{Receiver, Sender, Stream};
use crate::transfer::Inner;
use protocol::id::NodeId;
use protocol::wire::FRAME_MAX;
use protocol::wire::serve::{ServeAnswer, ServeAsk, ServeRequest};
use quinn::VarInt;
use std::sync::Arc;
use std::time::Duration;
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
pub(crate) async fn answer(inner: &Arc<Inner>, peer: NodeId, stream: &mut Stream) {
    let Stream { send, recv } = stream;
    let request = match read(inner, peer, send, recv).await {
        Ok(request) => request,
        Err(error) => {
            tracing::debug!("request of {peer:?}: {error}");
            send.reset(STREAM_MALFORMED);
            return;
        }
    };
    let (answers, waiting) = mpsc::channel(ANSWERS_WAITING);
    let serving = async {
        inner.host.serve(peer, request, answers).await;
        Ok(())
    };
    recv.expect_signs_of_life(inner.limits.idle);
    let writing = write_answers(send, waiting, inner.limits.keep_alive);
    let outcome = tokio::select! {
        biased;
        () = cancelled(recv) => Err(FrameError::Ended),
        outcome = async { tokio::try_join!(serving, writing) } => outcome,
    };
    match outcome {
        Ok(_) => send.finish().await,
        Err(_) => send.reset(STREAM_CANCELLED),
    }
}

/// Reads the request, whose prompt may go on from one that is kept.
async fn read(
    inner: &Arc<Inner>,
    peer: NodeId,
    send: &mut Sender,
    recv: &mut Receiver,
) -> Result<ServeRequest, FrameError> {
    let mut reader = FrameReader::new(&mut *recv);
    let frame = async |reader: &mut FrameReader<_>| {
        let ask = reader.frame::<ServeAsk>(FRAME_MAX);
        tokio::time::timeout(inner.limits.first_frame, ask).await.unwrap_or(Err(FrameError::Ended))
    };
    let ask = frame(&mut reader).await?;
    if let Some(request) = inner.kept.whole(peer, ask) {
        return Ok(request);
    }
    frame::write(send, &ServeAnswer::Unknown).await?;
    // An ask that has no beginning is always whole.
    inner.kept.whole(peer, frame(&mut reader).await?).ok_or(FrameError::Ended)
}

/// Returns when the client cancels: it says nothing after its request, so anything ends it.
async fn cancelled(mut recv: &mut Receiver) {
    let _ = recv.chunk(1).await;
}

/// Writes answers, and a sign of life when there has been none for `keep_alive`.
async fn write_answers(
    send: &mut Sender,
    mut waiting: mpsc::Receiver<ServeAnswer>,
    keep_alive: Duration,
) -> Result<(), FrameError> {
    let mut answers = Vec::with_capacity(ANSWERS_AT_ONCE);
    loop {
        let more = waiting.recv_many(&mut answers, ANSWERS_AT_ONCE);
        match tokio::time::timeout(keep_alive, more).await {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(_) => {
                send.alive().await?;
                continue;
            }
        }
        let mut bytes = Vec::new();
        for answer in answers.drain(..) {
            frame::append(&mut bytes, &answer)?;
        }
        send.send(bytes.into()).await?;
    }
}

/// Sends a request over an open stream and returns its answers. The channel closes when the stream
/// ends, complete or not; whether it was complete is told by its last item.
pub(crate) async fn ask(
    inner: Arc<Inner>,
    mut open: Open,
    node: NodeId,
    request: &ServeRequest,
) -> Result<mpsc::Receiver<ServeAnswer>, TransferError> {
    let parcel = inner.sent.parcel(node, request);
    // A short one may have to be sent again.
    let whole = parcel.is_short().then(|| request.clone());
    let bytes = match &whole {
        Some(_) => framed(&parcel.short(request), 0)?,
        None => framed(&parcel.whole(request), length(request))?,
    };
    open.stream.send.send(bytes.into()).await?;
    let (answers, waiting) = mpsc::channel(ANSWERS_WAITING);
    tokio::spawn(async move {
        let Open { stream: Stream { send, recv }, link } = &mut open;
        recv.expect_signs_of_life(inner.limits.idle);
        let mut reader = FrameReader::new(&mut *recv);
        let (mut parcel, mut whole) = (parcel, whole);
        let complete = loop {
            let heard = || {
                inner.paths.answered(&node, link.rtt());
                inner.sent.arrived(&parcel);
            };
            let end = tokio::select! {
                biased;
                () = answers.closed() => End::Cut,
                () = stay_alive(send, inner.limits.keep_alive) => End::Cut,
                end = forward(&mut reader, &answers, heard) => end,
            };
            match (end, whole.take()) {
                (End::Unknown, Some(request)) => {
                    inner.sent.unknown(&mut parcel);
                    let bytes = framed(&parcel.whole(&request), length(&request));
                    let sent = match bytes {
                        Ok(bytes) => send.send(bytes.into()).await,
                        Err(error) => Err(error),
                    };
                    if sent.is_err() {
                        break false;
                    }
                }
                (end, _) => break matches!(end, End::Complete),
            }
        };
        if complete {
            send.finish().await;
            open.give_back(inner.limits.connect).await;
        } else {
            send.reset(STREAM_CANCELLED);
            recv.stop(STREAM_CANCELLED);
        }
    });
    Ok(waiting)
}

/// A frame of about `length` bytes.
fn framed<T: serde::Serialize>(value: &T, length: usize) -> Result<Vec<u8>, FrameError> {
    let mut bytes = Vec::with_capacity(length);
    frame::append(&mut bytes, value)?;
    Ok(bytes)
}

/// About as many bytes as the request takes: a long prompt is written without growing.
fn length(request: &ServeRequest) -> usize {
    const REST: usize = 4096;
    let prompt = &request.prompt;
    size_of_val(prompt.tokens.as_slice()) + size_of_val(prompt.prefix.as_slice()) + REST
}

/// Gives signs of life; returns when they cannot be given any more.
async fn stay_alive(send: &mut Sender, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        if send.alive().await.is_err() {
            return;
        }
    }
}

/// How a stream of answers ended.
enum End {
    Complete,
    /// Or nobody listens.
    Cut,
    /// Before it began: all of the request is wanted.
    Unknown,
}

/// Hands answers on until the stream ends.
async fn forward(
    reader: &mut FrameReader<&mut Receiver>,
    answers: &mpsc::Sender<ServeAnswer>,
    heard: impl FnOnce(),
) -> End {
    let mut heard = Some(heard);
    loop {
        match reader.frame_or_end(FRAME_MAX).await {
            Ok(Some(ServeAnswer::Unknown)) if heard.is_some() => return End::Unknown,
            Ok(Some(ServeAnswer::Unknown)) => return End::Cut,
            Ok(Some(answer)) => {
                if let Some(heard) = heard.take() {
                    heard();
                }
                if answers.send(answer).await.is_err() {
                    return End::Cut;
                }
            }
            Ok(None) => return End::Complete,
            Err(e) => {
                tracing::debug!("a stream of answers broke: {e}");
                return End::Cut;
            }
        }
    }
}

#[cfg(test)]
mod tests;
