//! What the endpoint asks of its node.

use bytes::Bytes;
use futures::future::BoxFuture;
use kernels::SlotReader;
use protocol::block::SignedDigest;
use protocol::card::BlobDigest;
use protocol::id::NodeId;
use protocol::wire::blocks::BlocksRequest;
use protocol::wire::handshake::Hello;
use protocol::wire::join::{JoinAnswer, JoinRequest};
use protocol::wire::serve::{ServeAnswer, ServeRequest};
use std::any::Any;
use std::net::SocketAddr;
use tokio::sync::mpsc;

/// The node behind the endpoint. Methods are called from many tasks at once.
pub trait Host: Send + Sync + 'static {
    /// Whether `node` is a member now: on the allow list, with a certificate that has not run out.
    /// Asked in the TLS handshake, for each stream, and for the producer of each fetched block, so
    /// it must be quick.
    fn is_member(&self, node: &NodeId) -> bool;

    /// A member's first words on a new connection to us; its certificate has been checked.
    fn greeted(&self, _hello: &Hello) {}

    /// A stranger asks to join. Its key is the one of its TLS session; the proofs of both sides
    /// are over `exporter`.
    fn join(
        &self,
        request: JoinRequest,
        exporter: [u8; 32],
        peer: SocketAddr,
    ) -> BoxFuture<'_, JoinAnswer>;

    /// A member placed a request here. The stream ends when all senders of `answers` are dropped;
    /// it is cut when the future ends in a panic. When the peer goes away or cancels, the future
    /// is dropped and `answers` closes.
    fn serve(
        &self,
        from: NodeId,
        request: ServeRequest,
        answers: mpsc::Sender<ServeAnswer>,
    ) -> BoxFuture<'_, ()>;

    /// A member wants blocks: one answer per key, in order; `None` for what is not here. Missing
    /// answers at the end count as `None`.
    fn read_blocks(
        &self,
        from: NodeId,
        request: BlocksRequest,
    ) -> BoxFuture<'_, Vec<Option<ReadBlock>>>;

    /// A member wants the bytes of this name; `None` when they are not here.
    fn read_blob(&self, _from: NodeId, _digest: BlobDigest) -> BoxFuture<'_, Option<Bytes>> {
        Box::pin(std::future::ready(None))
    }
}

/// A block that a peer may read.
pub struct ReadBlock {
    /// Digest as its producer signed it.
    pub digest: SignedDigest,
    /// Its bytes; the slot is released when they have arrived at the peer, or with the request's
    /// deadline.
    pub bytes: SlotReader,
    /// Dropped together with `bytes`: whatever must end when the reading ends.
    pub lease: Option<Box<dyn Any + Send + Sync>>,
}
