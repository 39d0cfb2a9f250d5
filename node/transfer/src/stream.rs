//! A stream as the protocols see it, whichever path carries it.

use crate::frame::{Chunks, FrameError};
use crate::tcp::session;
use bytes::Bytes;
use quinn::VarInt;
use std::time::Duration;

/// The half that is written.
pub(crate) enum Sender {
    /// A QUIC stream's.
    Quic(quinn::SendStream),
    /// A TLS session's over TCP.
    Tls(session::Sender),
}

/// The half that is read.
pub(crate) enum Receiver {
    /// A QUIC stream's.
    Quic(quinn::RecvStream),
    /// A TLS session's over TCP.
    Tls(session::Receiver),
}

/// Both halves.
pub(crate) struct Stream {
    pub(crate) send: Sender,
    pub(crate) recv: Receiver,
}

impl From<(quinn::SendStream, quinn::RecvStream)> for Stream {
    fn from((send, recv): (quinn::SendStream, quinn::RecvStream)) -> Self {
        Self { send: Sender::Quic(send), recv: Receiver::Quic(recv) }
    }
}

impl Sender {
    /// Sends bytes; waits while the peer takes none.
    pub(crate) async fn send(&mut self, bytes: Bytes) -> Result<(), FrameError> {
        match self {
            Self::Quic(send) => Ok(send.write_chunk(bytes).await?),
            Self::Tls(send) => send.send(bytes).await,
        }
    }

    /// Ends this half: all is said. A lost connection shows at the other half.
    pub(crate) async fn finish(&mut self) {
        match self {
            Self::Quic(send) => drop(send.finish()),
            Self::Tls(send) => drop(send.finish().await),
        }
    }

    /// Breaks this half off. (On TLS-TCP that costs the connection.)
    pub(crate) fn reset(&mut self, code: VarInt) {
        match self {
            Self::Quic(send) => drop(send.reset(code)),
            Self::Tls(send) => send.break_off(),
        }
    }

    /// After [`Self::finish`]: waits until all bytes have arrived, or nobody wants them. (TCP keeps
    /// a copy of what it has not delivered; there is nothing to wait for.)
    pub(crate) async fn arrived(&mut self) {
        if let Self::Quic(send) = self {
            let _ = send.stopped().await;
        }
    }

    /// Tells the peer that this half is in use, where the path does not do that by itself.
    pub(crate) async fn alive(&mut self) -> Result<(), FrameError> {
        match self {
            Self::Quic(_) => Ok(()),
            Self::Tls(send) => send.alive().await,
        }
    }
}

impl Receiver {
    /// Wants no more. (On TLS-TCP that costs the connection, when it is dropped.)
    pub(crate) fn stop(&mut self, code: VarInt) {
        match self {
            Self::Quic(recv) => drop(recv.stop(code)),
            Self::Tls(recv) => recv.break_off(),
        }
    }

    /// Takes a silence of `longest` for a lost connection, where the path does not notice a dead
    /// peer by itself.
    pub(crate) fn expect_signs_of_life(&mut self, longest: Duration) {
        if let Self::Tls(recv) = self {
            recv.expect_signs_of_life(longest);
        }
    }
}

impl Chunks for &mut Receiver {
    async fn chunk(&mut self, max: usize) -> Result<Option<Bytes>, FrameError> {
        match self {
            Receiver::Quic(recv) => Ok(recv.read_chunk(max, true).await?.map(|chunk| chunk.bytes)),
            Receiver::Tls(recv) => recv.chunk(max).await,
        }
    }
}

/// Returns when the one who reads from `send` wants no more. `recv` must have ended: the reader
/// has said all it has to say.
pub(crate) fn reader_gone<'r>(
    send: &Sender,
    recv: &'r mut Receiver,
) -> impl Future<Output = ()> + Send + use<'r> {
    let stopped = match send {
        Sender::Quic(send) => Some(send.stopped()),
        Sender::Tls(_) => None,
    };
    async move {
        match (stopped, recv) {
            (Some(stopped), _) => {
                if matches!(stopped.await, Ok(None)) {
                    // All has arrived: the sender is about to notice.
                    std::future::pending::<()>().await;
                }
            }
            (None, Receiver::Tls(recv)) => recv.gone().await,
            (None, Receiver::Quic(_)) => std::future::pending().await,
        }
    }
}
