//! One TLS session over TCP, carrying one stream after another.
//!
//! Each half is cut into chunks: `u32:length`, little endian, then so many bytes. Length 0 ends the
//! stream, length `u32::MAX` is a sign of life without bytes. A stream that breaks off takes its
//! session with it: there is no other way to say so in the middle of a chunk.

use crate::frame::FrameError;
use crate::sockets::BoxPipe;
use bytes::{Buf, Bytes, BytesMut};
use futures::FutureExt;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio_rustls::TlsStream;

/// Length that ends a stream.
const END: u32 = 0;
/// Length that says only that the peer lives.
const ALIVE: u32 = u32::MAX;
/// Bytes taken from TLS at once.
const READ_AHEAD: usize = 64 << 10;

/// Cuts sessions from outside: the peer is known to be dead, or the endpoint closes.
#[derive(Clone, Debug)]
pub(crate) struct Cut(Option<watch::Receiver<bool>>);

impl Cut {
    /// Nobody will cut.
    pub(crate) fn never() -> Self {
        Self(None)
    }

    /// Cut when `source` says true or is dropped.
    pub(crate) fn by(source: &watch::Sender<bool>) -> Self {
        Self(Some(source.subscribe()))
    }

    async fn happened(&mut self) {
        match &mut self.0 {
            Some(cut) => drop(cut.wait_for(|cut| *cut).await),
            None => std::future::pending().await,
        }
    }
}

/// The half that is written.
pub(crate) struct Sender {
    half: WriteHalf<TlsStream<BoxPipe>>,
    cut: Cut,
    /// False while a chunk is half written, and for ever when it stays so.
    whole: bool,
    ended: bool,
}

/// The half that is read.
pub(crate) struct Receiver {
    half: ReadHalf<TlsStream<BoxPipe>>,
    cut: Cut,
    buffer: BytesMut,
    /// Bytes of the chunk that have not been taken.
    left: usize,
    ended: bool,
    broken: bool,
    longest_silence: Option<Duration>,
}

/// Splits an established session.
pub(crate) fn split(stream: TlsStream<BoxPipe>, cut: &Cut) -> (Sender, Receiver) {
    let (read, write) = tokio::io::split(stream);
    let send = Sender { half: write, cut: cut.clone(), whole: true, ended: false };
    let recv = Receiver {
        half: read,
        cut: cut.clone(),
        buffer: BytesMut::new(),
        left: 0,
        ended: false,
        broken: false,
        longest_silence: None,
    };
    (send, recv)
}

fn lost(e: impl std::fmt::Display) -> FrameError {
    FrameError::Lost(e.to_string())
}

impl Sender {
    async fn write(&mut self, length: u32, bytes: Bytes) -> Result<(), FrameError> {
        if !self.whole {
            return Err(lost("the stream was broken off"));
        }
        self.whole = false;
        let head = length.to_le_bytes();
        let mut chunk = Buf::chain(head.as_slice(), bytes);
        let writing = async {
            self.half.write_all_buf(&mut chunk).await?;
            self.half.flush().await
        };
        tokio::select! {
            biased;
            () = self.cut.happened() => return Err(lost("disconnected")),
            written = writing => written.map_err(lost)?,
        }
        self.whole = true;
        Ok(())
    }

    /// Sends bytes.
    pub(crate) async fn send(&mut self, mut bytes: Bytes) -> Result<(), FrameError> {
        while !bytes.is_empty() {
            let most = bytes.len().min(ALIVE as usize - 1);
            let piece = bytes.split_to(most);
            self.write(most as u32, piece).await?;
        }
        Ok(())
    }

    /// Says that this side lives.
    pub(crate) async fn alive(&mut self) -> Result<(), FrameError> {
        self.write(ALIVE, Bytes::new()).await
    }

    /// Ends the stream.
    pub(crate) async fn finish(&mut self) -> Result<(), FrameError> {
        self.write(END, Bytes::new()).await?;
        self.ended = true;
        Ok(())
    }

    /// The session is not used again.
    pub(crate) fn break_off(&mut self) {
        self.whole = false;
    }
}

impl Receiver {
    /// From now on, a silence of `longest` means that the connection is lost.
    pub(crate) fn expect_signs_of_life(&mut self, longest: Duration) {
        self.longest_silence = Some(longest);
    }

    /// The session is not used again.
    pub(crate) fn break_off(&mut self) {
        self.broken = true;
    }

    /// Takes more bytes from TLS. Cancel safe.
    async fn fill(&mut self, longest_silence: Option<Duration>) -> Result<(), FrameError> {
        self.buffer.reserve(READ_AHEAD);
        let reading = self.half.read_buf(&mut self.buffer);
        let reading = async {
            match longest_silence {
                None => reading.await.map_err(lost),
                Some(longest) => match tokio::time::timeout(longest, reading).await {
                    Ok(read) => read.map_err(lost),
                    Err(_) => Err(lost(format!("no sign of life for {} ms", longest.as_millis()))),
                },
            }
        };
        let read = tokio::select! {
            biased;
            () = self.cut.happened() => return Err(lost("disconnected")),
            read = reading => read?,
        };
        if read == 0 { Err(lost("the peer closed the connection")) } else { Ok(()) }
    }

    /// The next bytes of the stream, at most `max`; `None` at its end. Cancel safe.
    pub(crate) async fn chunk(&mut self, max: usize) -> Result<Option<Bytes>, FrameError> {
        if self.ended {
            return Ok(None);
        }
        while self.left == 0 {
            while self.buffer.len() < 4 {
                self.fill(self.longest_silence).await?;
            }
            match self.buffer.get_u32_le() {
                ALIVE => {}
                END => {
                    self.ended = true;
                    return Ok(None);
                }
                length => self.left = length as usize,
            }
        }
        if self.buffer.is_empty() {
            self.fill(self.longest_silence).await?;
        }
        let length = self.left.min(self.buffer.len()).min(max);
        self.left -= length;
        Ok(Some(self.buffer.split_to(length).freeze()))
    }

    /// Returns when the peer closes the connection, or says something although it is not its turn.
    pub(crate) async fn gone(&mut self) {
        if self.buffer.is_empty() {
            let _ = self.fill(None).await;
        }
        self.broken = true;
    }

    /// Waits at most `within` until the peer begins the next stream.
    pub(crate) async fn next(&mut self, within: Duration) -> Result<(), FrameError> {
        if self.buffer.is_empty() { self.fill(Some(within)).await } else { Ok(()) }
    }
}

/// After a stream: whether both halves have ended well, and the session can carry another now.
/// Waits for the peer's end, at most `within`.
pub(crate) async fn ended_well(send: &mut Sender, recv: &mut Receiver, within: Duration) -> bool {
    if !(send.whole && send.ended) || recv.broken {
        return false;
    }
    recv.longest_silence = Some(within);
    // Bytes instead of the end were said to nobody.
    if !matches!(recv.chunk(1).await, Ok(None)) {
        return false;
    }
    send.ended = false;
    recv.ended = false;
    recv.longest_silence = None;
    true
}

/// Whether an idle session still lives, as far as this side has heard.
pub(crate) fn is_quiet(recv: &mut Receiver) -> bool {
    // Anything that has come, the end above all, means that it cannot be used.
    recv.buffer.is_empty() && recv.fill(None).now_or_never().is_none()
}
