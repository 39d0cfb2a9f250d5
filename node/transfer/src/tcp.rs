//! The TLS-TCP path, for peers behind a UDP block: the same certificates, protocols and frames as
//! on QUIC, on the next port number. One connection carries one stream at a time; connections that
//! fall idle are kept for the next one.

use crate::alpn::Alpn;
use crate::error::TransferError;
use crate::sockets::{BoxPipe, tls_addr};
use crate::stream::{Receiver, Sender, Stream};
use crate::tls::{self, Identity, Rule, SERVER_NAME};
use crate::transfer::Inner;
use crate::{blobs, blocks, clock, hello, join, serve};
use protocol::id::NodeId;
use protocol::wire::join::EXPORTER_LABEL;
use rustls::pki_types::ServerName;
use session::Cut;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

pub(crate) mod pool;
pub(crate) mod session;

/// Handshakes in progress at once; more connections are closed.
const HANDSHAKES_MAX: usize = 256;
/// Pause after a failed accept, which is mostly a lack of file descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// A server keeps an idle connection for so many idle times of [`crate::Limits::idle`]; a client
/// for less, so that it does not use one that is about to be closed.
pub(crate) const KEPT_BY_SERVER: u32 = 4;
pub(crate) const KEPT_BY_CLIENT: u32 = 2;

/// A TLS session whose peer is known.
pub(crate) struct Opened {
    stream: TlsStream<BoxPipe>,
    /// The key at the other end.
    pub(crate) peer: NodeId,
    alpn: Option<Alpn>,
    /// Keying material of this session, for the join's proofs.
    pub(crate) exporter: [u8; 32],
}

impl Opened {
    fn new(stream: TlsStream<BoxPipe>) -> Result<Self, String> {
        let (_, session) = stream.get_ref();
        let chain = session.peer_certificates().and_then(|chain| chain.first());
        let peer = chain.and_then(tls::node_of).ok_or("the peer shows no key")?;
        let alpn = session.alpn_protocol().and_then(Alpn::from_name);
        let exported = match &stream {
            TlsStream::Client(stream) => {
                stream.get_ref().1.export_keying_material([0; 32], EXPORTER_LABEL, Some(b""))
            }
            TlsStream::Server(stream) => {
                stream.get_ref().1.export_keying_material([0; 32], EXPORTER_LABEL, Some(b""))
            }
        };
        let exporter = exported.map_err(|e| format!("the TLS session has no exporter: {e}"))?;
        Ok(Self { stream, peer, alpn, exporter })
    }

    /// Its streams.
    pub(crate) fn split(self, cut: &Cut) -> Stream {
        let (send, recv) = session::split(self.stream, cut);
        Stream { send: Sender::Tls(send), recv: Receiver::Tls(recv) }
    }
}

/// Connects to the TLS-TCP port of the node whose cluster address is `addr`.
pub(crate) async fn connect(
    identity: &Identity,
    sockets: &dyn crate::sockets::Tcp,
    alpn: Alpn,
    rule: Rule,
    addr: SocketAddr,
) -> Result<Opened, String> {
    let next = tls_addr(addr).ok_or("there is no port after 65535")?;
    let failed = |e: io::Error| format!("{next} (TCP): {e}");
    let config = identity.client(alpn, rule).map_err(|e| e.to_string())?;
    let name = ServerName::try_from(SERVER_NAME).map_err(|e| e.to_string())?;
    let pipe = sockets.connect(next).await.map_err(failed)?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, pipe).await.map_err(failed)?;
    Opened::new(TlsStream::Client(stream))
}

/// Accepts connections until the endpoint closes; their tasks end with it.
pub(crate) async fn run(inner: Arc<Inner>, mut down: watch::Receiver<bool>) {
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES_MAX));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = down.wait_for(|down| *down) => return,
            Some(_) = connections.join_next() => continue,
            accepted = inner.sockets.tcp.accept() => accepted,
        };
        match accepted {
            Ok((pipe, from)) => {
                if let Ok(permit) = Arc::clone(&handshakes).try_acquire_owned() {
                    connections.spawn(handshake(Arc::clone(&inner), pipe, from, permit));
                }
            }
            Err(e) => {
                tracing::warn!("no TCP connection can be accepted: {e}");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

/// Brings one connection through its handshake and to the protocol that it asked for.
async fn handshake(
    inner: Arc<Inner>,
    pipe: BoxPipe,
    from: SocketAddr,
    permit: OwnedSemaphorePermit,
) {
    let config = match inner.identity.server(&inner.host) {
        Ok(config) => Arc::new(config),
        Err(e) => return tracing::error!("TLS for {from}: {e}"),
    };
    let accepting = TlsAcceptor::from(config).accept(pipe);
    let stream = match tokio::time::timeout(inner.limits.first_frame, accepting).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(e)) => return tracing::debug!("TLS handshake with {from}: {e}"),
        Err(_) => return tracing::debug!("TLS handshake with {from}: not in time"),
    };
    drop(permit);
    let opened = match Opened::new(TlsStream::Server(stream)) {
        Ok(opened) => opened,
        Err(e) => return tracing::debug!("TLS handshake with {from}: {e}"),
    };
    match opened.alpn {
        None => {}
        Some(Alpn::Join) => {
            let (peer, exporter) = (opened.peer, opened.exporter);
            let mut stream = opened.split(&Cut::never());
            join::admit_over_tls(&inner, &mut stream, peer, exporter, from).await;
        }
        Some(alpn) => member(&inner, opened, alpn, from).await,
    }
}

/// Serves a member's streams, one after another, until its connection ends or it is no member any
/// more.
async fn member(inner: &Arc<Inner>, opened: Opened, alpn: Alpn, from: SocketAddr) {
    let peer = opened.peer;
    let Some(_credit) = inner.tcp_credits.take(peer) else {
        return tracing::info!("{peer:?} has too many TCP connections here");
    };
    let mut stream = opened.split(&Cut::never());
    match hello::as_server(inner, &mut stream, peer).await {
        Ok(hello) => {
            inner.paths.readmit(&peer);
            inner.host.greeted(&hello);
        }
        Err(e) => return tracing::info!("{peer:?} from {from}: {e}"),
    }
    let limits = &inner.limits;
    loop {
        let Stream { send: Sender::Tls(send), recv: Receiver::Tls(recv) } = &mut stream else {
            return;
        };
        if !session::ended_well(send, recv, limits.first_frame).await
            || recv.next(limits.idle * KEPT_BY_SERVER).await.is_err()
            || !inner.host.is_member(&peer)
        {
            return;
        }
        match alpn {
            Alpn::Blocks => blocks::answer(inner, peer, &mut stream).await,
            Alpn::Blobs => blobs::answer(inner, peer, &mut stream).await,
            _ => serve::answer(inner, peer, &mut stream).await,
        }
    }
}

/// Connects to a member and says Hello. Also tells the round trip that this took.
pub(crate) async fn connect_member(
    inner: &Arc<Inner>,
    node: NodeId,
    alpn: Alpn,
    addr: SocketAddr,
    cut: &Cut,
) -> Result<pool::Connection, TransferError> {
    let rule = Rule::Member { node, host: Arc::clone(&inner.host) };
    let opened = connect(&inner.identity, &*inner.sockets.tcp, alpn, rule, addr)
        .await
        .map_err(|reason| TransferError::Unreachable { node, reason })?;
    let mut stream = opened.split(cut);
    let asked = clock::now();
    hello::as_client(inner, &mut stream, node).await?;
    let rtt = clock::now().saturating_duration_since(asked);
    let mut connection = pool::Connection { stream, rtt };
    if !connection.ended_well(inner.limits.connect).await {
        let reason = "the peer broke off after its Hello".to_owned();
        return Err(TransferError::Unreachable { node, reason });
    }
    Ok(connection)
}
