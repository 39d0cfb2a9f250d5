//! The accepting side of the UDP port.

use crate::alpn::Alpn;
use crate::stream::Stream;
use crate::transfer::Inner;
use crate::{blobs, blocks, hello, join, quic, serve, tls};
use protocol::id::NodeId;
use quinn::crypto::rustls::HandshakeData;
use quinn::{Connection, Endpoint, Incoming, VarInt};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

/// Handshakes in progress at once; more are refused.
const HANDSHAKES_MAX: usize = 256;
/// From so many on, a newcomer must first prove that it owns its address.
const HANDSHAKES_TRUSTED: usize = 32;
/// Streams at once on a connection for blocks or blobs; the credits are far below.
const BLOCKS_STREAMS: u32 = 64;

/// Close code: the port goes down.
pub(crate) const CLOSE_DOWN: VarInt = VarInt::from_u32(0);
/// Close code: not (any more) a member.
pub(crate) const CLOSE_STRANGER: VarInt = VarInt::from_u32(1);
/// Close code: too many joins at once.
pub(crate) const CLOSE_BUSY: VarInt = VarInt::from_u32(3);
/// Close code: the join frame was not one.
pub(crate) const CLOSE_MALFORMED: VarInt = VarInt::from_u32(4);

/// Accepts connections until the endpoint closes; their tasks end with it.
pub(crate) async fn run(inner: Arc<Inner>, endpoint: Endpoint, template: quinn::ServerConfig) {
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES_MAX));
    let mut connections = JoinSet::new();
    loop {
        let incoming = tokio::select! {
            biased;
            incoming = endpoint.accept() => incoming,
            Some(_) = connections.join_next() => continue,
        };
        let Some(incoming) = incoming else { return };
        if handshakes.available_permits() < HANDSHAKES_MAX - HANDSHAKES_TRUSTED
            && !incoming.remote_address_validated()
            && incoming.may_retry()
        {
            let _ = incoming.retry();
            continue;
        }
        let Ok(permit) = Arc::clone(&handshakes).try_acquire_owned() else {
            incoming.refuse();
            continue;
        };
        connections.spawn(handshake(Arc::clone(&inner), incoming, template.clone(), permit));
    }
}

/// Brings one connection through its handshake, each with a verifier of its own, and to the
/// protocol that it asked for.
async fn handshake(
    inner: Arc<Inner>,
    incoming: Incoming,
    mut config: quinn::ServerConfig,
    permit: OwnedSemaphorePermit,
) {
    let from = incoming.remote_address();
    let crypto = inner.identity.server(&inner.host).map_err(|e| e.to_string());
    match crypto.and_then(quic::server_crypto) {
        Ok(crypto) => config.crypto = crypto,
        Err(e) => {
            tracing::error!("TLS for {from}: {e}");
            return incoming.refuse();
        }
    }
    let Ok(connecting) = incoming.accept_with(Arc::new(config)) else { return };
    let connection = match tokio::time::timeout(inner.limits.first_frame, connecting).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(e)) => return tracing::debug!("handshake with {from}: {e}"),
        Err(_) => return tracing::debug!("handshake with {from}: not in time"),
    };
    drop(permit);
    let (Some(alpn), Some(peer)) = (alpn_of(&connection), tls::peer_of(&connection)) else {
        return connection.close(CLOSE_STRANGER, b"no protocol or no key");
    };
    match alpn {
        Alpn::Join => join::admit(&inner, &connection, peer).await,
        Alpn::Serve | Alpn::Blocks | Alpn::Blobs => member(inner, connection, alpn, peer).await,
    }
}

fn alpn_of(connection: &Connection) -> Option<Alpn> {
    let data = connection.handshake_data()?.downcast::<HandshakeData>().ok()?;
    Alpn::from_name(data.protocol.as_deref()?)
}

/// Serves a member's streams until its connection ends or it is no member any more.
async fn member(inner: Arc<Inner>, connection: Connection, alpn: Alpn, peer: NodeId) {
    match hello::as_quic_server(&inner, &connection, peer).await {
        Ok(hello) => {
            inner.paths.readmit(&peer);
            inner.host.greeted(&hello);
        }
        Err(e) => return tracing::info!("{peer:?} from {}: {e}", connection.remote_address()),
    }
    let most = match alpn {
        Alpn::Blocks | Alpn::Blobs => BLOCKS_STREAMS,
        _ => inner.limits.serve_streams_per_connection,
    };
    quic::welcome(&connection, most);
    let mut streams = JoinSet::new();
    loop {
        let (send, recv) = tokio::select! {
            biased;
            accepted = connection.accept_bi() => match accepted {
                Ok(stream) => stream,
                Err(e) => return tracing::debug!("{peer:?}: {e}"),
            },
            Some(_) = streams.join_next() => continue,
        };
        if !inner.host.is_member(&peer) {
            return connection.close(CLOSE_STRANGER, b"not a member any more");
        }
        let (inner, mut stream) = (Arc::clone(&inner), Stream::from((send, recv)));
        streams.spawn(async move {
            match alpn {
                Alpn::Blocks => blocks::answer(&inner, peer, &mut stream).await,
                Alpn::Blobs => blobs::answer(&inner, peer, &mut stream).await,
                _ => serve::answer(&inner, peer, &mut stream).await,
            }
        });
    }
}
