//! Direct frames on a libp2p stream: one length-prefixed list out, an empty answer back.

use futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use libp2p::StreamProtocol;
use libp2p::request_response::Codec;
use protocol::wire::gossip::Direct;
use std::io;

/// Name of the protocol; the number is its major version.
pub(super) const PROTOCOL: StreamProtocol = StreamProtocol::new("/dynamo-node/gossip/1");

/// Writes and reads lists of [`Direct`] frames.
#[derive(Clone, Default)]
pub(super) struct DirectCodec;

fn invalid(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

impl Codec for DirectCodec {
    type Protocol = StreamProtocol;
    type Request = Vec<Direct>;
    type Response = ();

    async fn read_request<T>(&mut self, _: &Self::Protocol, io: &mut T) -> io::Result<Vec<Direct>>
    where
        T: AsyncRead + Unpin + Send,
    {
        let mut length = [0u8; 4];
        io.read_exact(&mut length).await?;
        let length = u32::from_le_bytes(length) as usize;
        if length > protocol::wire::FRAME_MAX {
            return Err(invalid(format!("{length} bytes are over the limit")));
        }
        let mut bytes = Vec::new();
        io.take(length as u64).read_to_end(&mut bytes).await?;
        protocol::wire::decode(&bytes).map_err(invalid)
    }

    async fn read_response<T>(&mut self, _: &Self::Protocol, io: &mut T) -> io::Result<()>
    where
        T: AsyncRead + Unpin + Send,
    {
        io.read_exact(&mut [0u8; 1]).await
    }

    async fn write_request<T>(
        &mut self,
        _: &Self::Protocol,
        io: &mut T,
        frames: Vec<Direct>,
    ) -> io::Result<()>
    where
        T: AsyncWrite + Unpin + Send,
    {
        let bytes = protocol::wire::encode(&frames).map_err(invalid)?;
        let length = u32::try_from(bytes.len()).map_err(invalid)?;
        io.write_all(&length.to_le_bytes()).await?;
        io.write_all(&bytes).await?;
        io.flush().await
    }

    async fn write_response<T>(&mut self, _: &Self::Protocol, io: &mut T, (): ()) -> io::Result<()>
    where
        T: AsyncWrite + Unpin + Send,
    {
        io.write_all(&[0]).await?;
        io.flush().await
    }
}
