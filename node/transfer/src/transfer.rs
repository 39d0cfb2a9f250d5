//! The endpoint of a node.

use crate::accept::{self, CLOSE_DOWN};
use crate::alpn::Alpn;
use crate::blobs;
use crate::clock;
use crate::config::{Limits, TransferConfig};
use crate::connections::{self, Connections};
use crate::credits::Credits;
use crate::error::TransferError;
use crate::fetch;
use crate::host::Host;
use crate::paths::{PathStats, Paths};
use crate::quic;
use crate::serve::{self, kept::Kept, sent::Sent};
use crate::sockets::Sockets;
use crate::tcp;
use crate::throttle::Throttle;
use crate::tls::Identity;
use bytes::Bytes;
use kernels::Pool;
use protocol::block::BlockKey;
use protocol::card::BlobDigest;
use protocol::id::NodeId;
use protocol::op::{FetchOp, Fetched};
use protocol::wire::handshake::Hello;
use protocol::wire::serve::{ServeAnswer, ServeRequest};
use quinn::{Endpoint, TokioRuntime, TransportConfig};
use std::borrow::Borrow;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, mpsc, watch};

/// [`Transfer::close`] waits so long for peers to hear of it.
const FAREWELL: Duration = Duration::from_millis(500);
/// TCP connections of one peer beside those for its requests: blocks, and idle ones.
const TCP_BESIDE_SERVE: usize = 96;

/// What all tasks of an endpoint share.
pub(crate) struct Inner {
    pub(crate) endpoint: Endpoint,
    /// Whether UDP is used.
    pub(crate) udp: bool,
    pub(crate) sockets: Sockets,
    /// Says true when the endpoint closes.
    down: watch::Sender<bool>,
    pub(crate) tcp_credits: Arc<Credits>,
    pub(crate) identity: Identity,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) issuer: NodeId,
    pub(crate) limits: Limits,
    pub(crate) throttle: Option<Throttle>,
    pub(crate) credits: Arc<Credits>,
    pub(crate) joins: Semaphore,
    pub(crate) paths: Paths,
    pub(crate) connections: Connections,
    pub(crate) client_transport: Arc<TransportConfig>,
    hello: Mutex<Arc<Hello>>,
    pub(crate) sent: Sent,
    pub(crate) kept: Kept,
}

impl Inner {
    pub(crate) fn hello(&self) -> Arc<Hello> {
        Arc::clone(&self.hello.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn close(&self) {
        self.endpoint.close(CLOSE_DOWN, b"the node goes down");
        self.down.send_replace(true);
        self.connections.close();
    }
}

/// The endpoint: one UDP port, and TCP on the next number, that serves members. Closes when
/// dropped.
pub struct Transfer {
    inner: Arc<Inner>,
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Transfer({:?})", self.inner.endpoint.local_addr())
    }
}

impl Transfer {
    /// Binds the ports and starts to accept. Must be called inside a tokio runtime.
    pub fn bind(config: TransferConfig, host: Arc<dyn Host>) -> Result<Arc<Self>, TransferError> {
        let sockets = Sockets::bind(config.listen, config.udp)?;
        Self::on(sockets, config, host)
    }

    /// [`Self::bind`] on given sockets; `config.listen` is not looked at.
    pub fn on(
        sockets: Sockets,
        config: TransferConfig,
        host: Arc<dyn Host>,
    ) -> Result<Arc<Self>, TransferError> {
        let TransferConfig { listen, udp, keypair, hello, issuer, limits, throttle_bytes_s } =
            config;
        let identity = Identity::new(&keypair).map_err(TransferError::Identity)?;
        let tls = identity.server(&host).map_err(|e| TransferError::Identity(e.to_string()))?;
        let server_transport = Arc::new(quic::server_transport(&limits));
        let server =
            quic::server_config(tls, &server_transport).map_err(TransferError::Identity)?;
        let settings =
            quic::endpoint_config(&keypair, sockets.seed).map_err(TransferError::Identity)?;
        let (socket, runtime) = (Arc::clone(&sockets.udp), Arc::new(TokioRuntime));
        let endpoint =
            Endpoint::new_with_abstract_socket(settings, Some(server.clone()), socket, runtime)
                .map_err(|e| TransferError::Bind(listen, e))?;
        let (down, going_down) = watch::channel(false);
        let tcp_per_peer = limits.serve_streams_per_connection as usize + TCP_BESIDE_SERVE;
        let inner = Arc::new(Inner {
            udp,
            sockets,
            down,
            tcp_credits: Credits::new(tcp_per_peer, limits.tcp_connections),
            endpoint: endpoint.clone(),
            identity,
            host,
            issuer,
            throttle: throttle_bytes_s.map(Throttle::new),
            credits: Credits::new(limits.block_streams_per_peer, limits.block_streams),
            joins: Semaphore::new(limits.joins),
            paths: Paths::new(&limits),
            connections: Connections::default(),
            client_transport: Arc::new(quic::client_transport(&limits)),
            hello: Mutex::new(Arc::new(hello)),
            sent: Sent::new(),
            kept: Kept::new(limits.prompts_kept),
            limits,
        });
        tokio::spawn(accept::run(Arc::clone(&inner), endpoint, server));
        tokio::spawn(tcp::run(Arc::clone(&inner), going_down));
        Ok(Arc::new(Self { inner }))
    }

    /// Where the endpoint listens.
    pub fn local_addr(&self) -> Result<SocketAddr, TransferError> {
        self.inner.endpoint.local_addr().map_err(|_| TransferError::Closed)
    }

    /// Replaces what is said first on new connections: a renewed certificate, other addresses.
    pub fn set_hello(&self, hello: Hello) {
        *self.inner.hello.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(hello);
    }

    /// Connects to a member ahead of need, so that the first request or fetch does not wait for a
    /// handshake and [`Self::paths`] knows the round-trip time.
    pub async fn warm(&self, node: NodeId, addrs: &[SocketAddr]) -> Result<(), TransferError> {
        for alpn in [Alpn::Serve, Alpn::Blocks] {
            connections::warm(&self.inner, node, alpn, addrs).await?;
        }
        Ok(())
    }

    /// Sends a placed request to a member. Its answers come on the returned channel, which closes
    /// when the stream ends; a stream without a last item was cut. Dropping the receiver cancels
    /// at the server.
    ///
    /// Errors are about the way to the peer: a peer in quarantine is refused at once, an unknown
    /// one costs at most the connect timeout.
    pub async fn serve(
        &self,
        node: NodeId,
        addrs: &[SocketAddr],
        request: impl Borrow<ServeRequest>,
    ) -> Result<mpsc::Receiver<ServeAnswer>, TransferError> {
        self.inner
            .paths
            .admit(&node, clock::now())
            .map_err(|left| TransferError::Quarantined { node, for_ms: left.as_millis() as u64 })?;
        let open = connections::open(&self.inner, node, Alpn::Serve, addrs).await?;
        serve::ask(Arc::clone(&self.inner), open, node, request.borrow()).await
    }

    /// Fetches blocks of one member into slots of `pool`, until `deadline` (which stands for
    /// [`FetchOp::deadline`] on this process's clock).
    ///
    /// Each block that ends before the deadline is told on `progress` at once, by its place in
    /// `op.blocks`, so that it can be used while others arrive; the returned list has all, in
    /// order. Only blocks whose bytes, digest and producer were checked are `Verified`. When this
    /// returns, or is dropped, no further write to the slots happens. A peer in quarantine fails
    /// at once.
    pub async fn fetch(
        &self,
        op: FetchOp,
        addrs: &[SocketAddr],
        pool: Arc<Pool>,
        deadline: Instant,
        progress: mpsc::Sender<(usize, Fetched)>,
    ) -> Vec<(BlockKey, Fetched)> {
        fetch::fetch(&self.inner, &op, addrs, &pool, deadline, &progress).await
    }

    /// Fetches the bytes that `digest` names from one member, and checks them. Takes as long as bytes
    /// come; a member that stalls for [`Limits::idle`] has failed.
    ///
    /// Errors are about the way to the peer, or say why it did not give the bytes.
    pub async fn fetch_blob(
        &self,
        node: NodeId,
        addrs: &[SocketAddr],
        digest: BlobDigest,
    ) -> Result<Bytes, TransferError> {
        blobs::fetch(&self.inner, node, addrs, digest).await
    }

    /// Closes the connections to `node`, for a node that is known to be dead or has left: its
    /// streams end now instead of at the idle timeout.
    pub fn disconnect(&self, node: &NodeId) {
        self.inner.connections.disconnect(*node, CLOSE_DOWN, b"disconnected");
    }

    /// Ends a quarantine: the peer is known to be back (a new incarnation, say).
    pub fn readmit(&self, node: &NodeId) {
        self.inner.paths.readmit(node);
    }

    /// What has been measured of the paths from here, by node.
    pub fn paths(&self) -> Vec<PathStats> {
        self.inner.paths.stats(clock::now())
    }

    /// Closes the ports and all connections, and waits briefly until peers have been told.
    pub async fn close(&self) {
        self.inner.close();
        let _ = tokio::time::timeout(FAREWELL, self.inner.endpoint.wait_idle()).await;
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.inner.close();
    }
}
