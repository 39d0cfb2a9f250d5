//! The first words between members: one Hello each way on a connection's first stream.

use crate::error::TransferError;
use crate::frame::{self, FrameError, FrameReader};
use crate::stream::{Receiver, Stream};
use crate::transfer::Inner;
use protocol::id::NodeId;
use protocol::trust::UnixTime;
use protocol::wire::handshake::Hello;
use quinn::{Connection, VarInt};
use std::time::{Duration, SystemTime};

/// Longest Hello in bytes.
pub(crate) const HELLO_MAX: usize = 64 << 10;

/// Close code: the Hello did not fit; the reason says which field.
pub(crate) const CLOSE_HELLO: VarInt = VarInt::from_u32(2);

/// How long a server waits until its Hello has arrived before it closes on a mismatch.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The wall clock, for the validity of certificates only.
pub(crate) fn unix_now() -> UnixTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    UnixTime(since.map(|d| d.as_secs()).unwrap_or_default())
}

/// Says Hello as the one who connected, and checks the answer.
pub(crate) async fn as_client(
    inner: &Inner,
    stream: &mut Stream,
    node: NodeId,
) -> Result<(), TransferError> {
    let ours = inner.hello();
    let Stream { send, recv } = stream;
    let on_tls = matches!(recv, Receiver::Tls(_));
    let exchange = async {
        frame::write(send, &*ours).await?;
        send.finish().await;
        FrameReader::new(recv).frame::<Hello>(HELLO_MAX).await
    };
    let theirs = exchange.await.map_err(|e| match e {
        // QUIC's caller knows more from the connection.
        FrameError::Lost(reason) if on_tls => told_on_tls(node, reason),
        e => TransferError::Unreachable { node, reason: e.to_string() },
    })?;
    check(inner, &ours, &theirs, node)
}

/// TLS refuses a client after the client's handshake is done; it hears of that here.
fn told_on_tls(node: NodeId, reason: String) -> TransferError {
    if reason.contains("alert") {
        let reason = format!("the peer refused this node in the handshake ({reason})");
        return TransferError::Hello { node, reason };
    }
    TransferError::Unreachable { node, reason }
}

/// [`as_client`] over QUIC: on a first stream of `connection`, which is closed with the reason when
/// the Hellos do not fit.
pub(crate) async fn as_quic_client(
    inner: &Inner,
    connection: &Connection,
    node: NodeId,
) -> Result<(), TransferError> {
    let opened = connection.open_bi().await;
    let mut stream = match opened {
        Ok(halves) => Stream::from(halves),
        Err(e) => return Err(lost(connection, node, e.to_string())),
    };
    let said = as_client(inner, &mut stream, node).await;
    match said {
        Err(TransferError::Unreachable { reason, .. }) => Err(lost(connection, node, reason)),
        Err(e) => {
            connection.close(CLOSE_HELLO, e.to_string().as_bytes());
            Err(e)
        }
        Ok(()) => Ok(()),
    }
}

/// [`as_server`] over QUIC. On error the connection has been closed with the reason.
pub(crate) async fn as_quic_server(
    inner: &Inner,
    connection: &Connection,
    node: NodeId,
) -> Result<Hello, TransferError> {
    let accepting = tokio::time::timeout(inner.limits.first_frame, connection.accept_bi());
    let heard = match accepting.await {
        Ok(Ok(halves)) => as_server(inner, &mut Stream::from(halves), node).await,
        Ok(Err(e)) => Err(lost(connection, node, e.to_string())),
        Err(_) => Err(hello_error(node, "no Hello came in time")),
    };
    if let Err(e) = &heard {
        connection.close(CLOSE_HELLO, e.to_string().as_bytes());
    }
    heard
}

/// Hears the Hello of a member that connected, answers it, and returns it. On error the connection
/// is to be closed with the reason.
pub(crate) async fn as_server(
    inner: &Inner,
    stream: &mut Stream,
    node: NodeId,
) -> Result<Hello, TransferError> {
    let ours = inner.hello();
    let Stream { send, recv } = stream;
    let mut reader = FrameReader::new(recv);
    let hearing = reader.frame::<Hello>(HELLO_MAX);
    let theirs = tokio::time::timeout(inner.limits.first_frame, hearing)
        .await
        .map_err(|_| hello_error(node, "no Hello came in time"))??;
    let checked = check(inner, &ours, &theirs, node);
    if matches!(checked, Ok(()) | Err(TransferError::Mismatch { .. })) {
        // On a mismatch too: the client then names the differing field by itself.
        frame::write(send, &*ours).await?;
        send.finish().await;
        if checked.is_err() {
            let _ = tokio::time::timeout(LAST_WORDS, send.arrived()).await;
        }
    }
    checked.map(|()| theirs)
}

fn check(inner: &Inner, ours: &Hello, theirs: &Hello, node: NodeId) -> Result<(), TransferError> {
    ours.agree(theirs).map_err(|mismatch| TransferError::Mismatch { node, mismatch })?;
    let cert = &theirs.cert;
    if theirs.node != node {
        Err(hello_error(node, "the Hello names another node (field `node`)"))
    } else if cert.node != node {
        Err(hello_error(node, "the certificate is another node's (field `cert.node`)"))
    } else if !cert.is_valid(&inner.issuer, ours.cluster, unix_now()) {
        let expired = cert.expires < unix_now();
        let reason = match expired {
            true => "the membership certificate has run out (field `cert.expires`)",
            false => "the cluster's key did not sign the certificate (field `cert.signature`)",
        };
        Err(hello_error(node, reason))
    } else {
        Ok(())
    }
}

fn hello_error(node: NodeId, reason: &str) -> TransferError {
    TransferError::Hello { node, reason: reason.to_owned() }
}

/// What a connection that broke during the first exchange means.
fn lost(connection: &Connection, node: NodeId, otherwise: String) -> TransferError {
    use quinn::ConnectionError::{ApplicationClosed, ConnectionClosed};
    match connection.close_reason() {
        Some(ApplicationClosed(close)) => TransferError::Hello {
            node,
            reason: format!("the peer says: {}", String::from_utf8_lossy(&close.reason)),
        },
        Some(ConnectionClosed(close)) => TransferError::Hello {
            node,
            reason: format!("the peer refused this node in the handshake ({close})"),
        },
        _ => TransferError::Unreachable { node, reason: otherwise },
    }
}
