//! The first words between members: one Hello each way on a connection's first stream.

use crate::error::TransferError;
use crate::frame::{self, FrameReader};
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
    connection: &Connection,
    node: NodeId,
) -> Result<(), TransferError> {
    let ours = inner.hello();
    let (mut send, recv) =
        connection.open_bi().await.map_err(|e| lost(connection, node, e.to_string()))?;
    let exchange = async {
        frame::write(&mut send, &*ours).await?;
        FrameReader::new(recv).frame::<Hello>(HELLO_MAX).await
    };
    let theirs = exchange.await.map_err(|e| lost(connection, node, e.to_string()))?;
    let checked = check(inner, &ours, &theirs, node);
    if let Err(e) = &checked {
        connection.close(CLOSE_HELLO, e.to_string().as_bytes());
    }
    checked
}

/// Hears the Hello of a member that connected, answers it, and returns it. On error the
/// connection has been closed with the reason.
pub(crate) async fn as_server(
    inner: &Inner,
    connection: &Connection,
    node: NodeId,
) -> Result<Hello, TransferError> {
    let outcome = serve_hello(inner, connection, node).await;
    if let Err(e) = &outcome {
        connection.close(CLOSE_HELLO, e.to_string().as_bytes());
    }
    outcome
}

async fn serve_hello(
    inner: &Inner,
    connection: &Connection,
    node: NodeId,
) -> Result<Hello, TransferError> {
    let ours = inner.hello();
    let exchange = async {
        let (send, recv) =
            connection.accept_bi().await.map_err(|e| lost(connection, node, e.to_string()))?;
        let theirs = FrameReader::new(recv).frame::<Hello>(HELLO_MAX).await?;
        Ok::<_, TransferError>((send, theirs))
    };
    let (mut send, theirs) = tokio::time::timeout(inner.limits.first_frame, exchange)
        .await
        .map_err(|_| hello_error(node, "no Hello came in time"))??;
    let checked = check(inner, &ours, &theirs, node);
    if matches!(checked, Ok(()) | Err(TransferError::Mismatch { .. })) {
        // On a mismatch too: the client then names the differing field by itself.
        frame::write(&mut send, &*ours).await?;
        let _ = send.finish();
        if checked.is_err() {
            let _ = tokio::time::timeout(LAST_WORDS, send.stopped()).await;
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
