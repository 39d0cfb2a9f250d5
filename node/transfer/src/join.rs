//! `dn-join/1`: a stranger with a token becomes a member.
//!
//! Both sides prove the token's secret over the TLS exporter of their own connection. A proof that
//! is passed on by someone in the middle is worth nothing on the other connection, so neither side
//! needs to know the other's key beforehand.

use crate::accept::{CLOSE_BUSY, CLOSE_DOWN, CLOSE_MALFORMED};
use crate::alpn::Alpn;
use crate::config::Limits;
use crate::error::JoinError;
use crate::frame::{self, FrameError, FrameReader};
use crate::hello::unix_now;
use crate::quic;
use crate::tls::{Identity, Rule, SERVER_NAME};
use crate::transfer::Inner;
use protocol::hash::HASH_VERSION;
use protocol::id::NodeId;
use protocol::sign::Keypair;
use protocol::trust::{JoinRole, JoinToken, cluster_of};
use protocol::wire::handshake::VERSION;
use protocol::wire::join::{
    ANSWER_MAX, Admission, EXPORTER_LABEL, JoinAnswer, JoinRefusal, JoinRequest, REQUEST_MAX,
};
use quinn::{Connection, ConnectionError, Endpoint};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

fn exporter(connection: &Connection) -> Result<[u8; 32], String> {
    let mut bytes = [0u8; 32];
    connection
        .export_keying_material(&mut bytes, EXPORTER_LABEL, b"")
        .map_err(|_| "the TLS session has no exporter".to_owned())?;
    Ok(bytes)
}

/// Answers one stranger: reads its one frame, asks the host, and closes.
pub(crate) async fn admit(inner: &Inner, connection: &Connection, peer: NodeId) {
    let Ok(_permit) = inner.joins.try_acquire() else {
        return connection.close(CLOSE_BUSY, b"too many nodes are joining");
    };
    // Each step has its own bound, so that a stranger who delays holds its permit briefly.
    let step = inner.limits.first_frame;
    let reading = async {
        let (send, recv) = connection.accept_bi().await.ok()?;
        let request = FrameReader::new(recv).frame::<JoinRequest>(REQUEST_MAX).await.ok()?;
        // The key of the session is the one that asks: nobody joins in another's name.
        (request.node == peer).then_some((send, request))
    };
    let Ok(Some((mut send, request))) = tokio::time::timeout(step, reading).await else {
        return connection.close(CLOSE_MALFORMED, b"not a join request, or not in time");
    };
    let Ok(exporter) = exporter(connection) else {
        return connection.close(CLOSE_MALFORMED, b"no exporter");
    };
    let from = connection.remote_address();
    let answering = async {
        let answer = inner.host.join(request, exporter, from).await;
        frame::write(&mut send, &answer).await?;
        let _ = send.finish();
        let _ = send.stopped().await;
        Ok::<_, FrameError>(())
    };
    match tokio::time::timeout(step, answering).await {
        Ok(Ok(())) => tracing::info!("answered a join of {peer:?} from {from}"),
        Ok(Err(e)) => tracing::info!("a join of {peer:?} from {from} broke: {e}"),
        Err(_) => tracing::info!("a join of {peer:?} from {from} took too long"),
    }
    connection.close(CLOSE_DOWN, b"");
}

/// A joiner gives up on an address after this.
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Joins a cluster through the member at `addr`, giving up after ten seconds.
///
/// See [`join_within`] for what is checked.
pub async fn join(
    addr: SocketAddr,
    token: &JoinToken,
    keypair: &Keypair,
) -> Result<Admission, JoinError> {
    join_within(addr, token, keypair, JOIN_TIMEOUT).await
}

/// Joins a cluster through the member at `addr`, giving up after `within`.
///
/// Nothing of the answer is believed before the member has proven the token's secret for this very
/// session and the certificate's signature by the token's issuer has been checked. Certificates in
/// the list of members that do not hold are left out.
pub async fn join_within(
    addr: SocketAddr,
    token: &JoinToken,
    keypair: &Keypair,
    within: Duration,
) -> Result<Admission, JoinError> {
    let identity = Identity::new(keypair).map_err(JoinError::Identity)?;
    let from = match addr {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let unreachable = |reason: String| JoinError::Unreachable { addr, reason };
    let endpoint = Endpoint::client(from).map_err(|e| unreachable(e.to_string()))?;
    let asking = ask(&endpoint, &identity, addr, token, keypair.node());
    let outcome = tokio::time::timeout(within, asking).await;
    endpoint.close(CLOSE_DOWN, b"");
    let (answer, exporter) =
        outcome.unwrap_or_else(|_| Err(unreachable("no answer in time".into())))?;
    match answer {
        JoinAnswer::Refused(refusal) => Err(refusal.into()),
        JoinAnswer::Admitted(admission) => believe(addr, token, keypair, &exporter, *admission),
    }
}

async fn ask(
    endpoint: &Endpoint,
    identity: &Identity,
    addr: SocketAddr,
    token: &JoinToken,
    node: NodeId,
) -> Result<(JoinAnswer, [u8; 32]), JoinError> {
    let unreachable = |reason: String| JoinError::Unreachable { addr, reason };
    let broken = |reason: String| JoinError::Broken { addr, reason };
    let tls = identity
        .client(Alpn::Join, Rule::Anyone)
        .map_err(|e| JoinError::Identity(e.to_string()))?;
    let transport = Arc::new(quic::client_transport(&Limits::default()));
    let config = quic::client_config(tls, &transport).map_err(JoinError::Identity)?;
    let connection = endpoint
        .connect_with(config, addr, SERVER_NAME)
        .map_err(|e| unreachable(e.to_string()))?
        .await
        .map_err(|e| unreachable(e.to_string()))?;
    let exporter = exporter(&connection).map_err(broken)?;
    let request = JoinRequest {
        version: VERSION,
        hash_version: HASH_VERSION,
        token: token.fields.clone(),
        proof: token.prove(JoinRole::Joiner, &exporter),
        node,
    };
    let exchange = async {
        let (mut send, recv) =
            connection.open_bi().await.map_err(|e| FrameError::Lost(e.to_string()))?;
        frame::write(&mut send, &request).await?;
        let _ = send.finish();
        FrameReader::new(recv).frame::<JoinAnswer>(ANSWER_MAX).await
    };
    match exchange.await {
        Ok(answer) => Ok((answer, exporter)),
        Err(e) => Err(match connection.close_reason() {
            Some(ConnectionError::ApplicationClosed(close)) if close.error_code == CLOSE_BUSY => {
                JoinRefusal::Busy.into()
            }
            _ => broken(e.to_string()),
        }),
    }
}

/// Checks an admission before anything of it is used.
fn believe(
    addr: SocketAddr,
    token: &JoinToken,
    keypair: &Keypair,
    exporter: &[u8; 32],
    mut admission: Admission,
) -> Result<Admission, JoinError> {
    let (issuer, cluster, now) = (&token.fields.issuer, token.fields.cluster, unix_now());
    let issuing = admission.issuing_seed.as_ref().map(|seed| Keypair::from_seed(seed).node());
    let checks = [
        (token.accepts(JoinRole::Member, exporter, &admission.proof), "its proof of the token"),
        (cluster_of(issuer) == cluster, "the token's cluster and issuer"),
        (admission.cert.node == keypair.node(), "the certificate's node"),
        (admission.cert.is_valid(issuer, cluster, now), "the certificate's signature or validity"),
        (issuing.is_none_or(|node| node == *issuer), "the issuing key"),
    ];
    if let Some((_, what)) = checks.iter().find(|(holds, _)| !holds) {
        return Err(JoinError::FakeMember { addr, what });
    }
    admission.members.retain(|(cert, _)| cert.is_valid(issuer, cluster, now));
    Ok(admission)
}
