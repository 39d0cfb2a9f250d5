//! `dn-join/1`: a stranger with a token becomes a member.
//!
//! Both sides prove the token's secret over the TLS exporter of their own connection. A proof that
//! is passed on by someone in the middle is worth nothing on the other connection, so neither side
//! needs to know the other's key beforehand.

use crate::accept::{CLOSE_BUSY, CLOSE_DOWN, CLOSE_MALFORMED};
use crate::alpn::Alpn;
use crate::config::Limits;
use crate::dial::{Won, patience, race};
use crate::error::JoinError;
use crate::frame::{self, FrameError, FrameReader};
use crate::hello::unix_now;
use crate::quic;
use crate::sockets::Sockets;
use crate::stream::{Receiver, Stream};
use crate::tcp::{self, session::Cut};
use crate::tls::{Identity, Rule, SERVER_NAME};
use crate::transfer::Inner;
use futures::stream;
use protocol::hash::HASH_VERSION;
use protocol::id::NodeId;
use protocol::sign::Keypair;
use protocol::trust::{JoinRole, JoinToken, cluster_of};
use protocol::wire::handshake::VERSION;
use protocol::wire::join::{
    ANSWER_MAX, Admission, EXPORTER_LABEL, JoinAnswer, JoinRefusal, JoinRequest, REQUEST_MAX,
};
use quinn::{Connection, ConnectionError, Endpoint, EndpointConfig, TokioRuntime};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

fn exporter(connection: &Connection) -> Result<[u8; 32], String> {
    let mut bytes = [0u8; 32];
    connection
        .export_keying_material(&mut bytes, EXPORTER_LABEL, b"")
        .map_err(|_| "the TLS session has no exporter".to_owned())?;
    Ok(bytes)
}

/// Answers one stranger over QUIC: takes its one stream, and closes.
pub(crate) async fn admit(inner: &Inner, connection: &Connection, peer: NodeId) {
    let Ok(_permit) = inner.joins.try_acquire() else {
        return connection.close(CLOSE_BUSY, b"too many nodes are joining");
    };
    let Ok(exporter) = exporter(connection) else {
        return connection.close(CLOSE_MALFORMED, b"no exporter");
    };
    let accepting = tokio::time::timeout(inner.limits.first_frame, connection.accept_bi());
    let answered = match accepting.await {
        Ok(Ok(halves)) => {
            let from = connection.remote_address();
            answer(inner, &mut Stream::from(halves), peer, exporter, from).await
        }
        _ => false,
    };
    match answered {
        true => connection.close(CLOSE_DOWN, b""),
        false => connection.close(CLOSE_MALFORMED, b"not a join request, or not in time"),
    }
}

/// Answers one stranger over TLS-TCP. The connection is closed when this returns.
pub(crate) async fn admit_over_tls(
    inner: &Inner,
    stream: &mut Stream,
    peer: NodeId,
    exporter: [u8; 32],
    from: SocketAddr,
) {
    let Ok(_permit) = inner.joins.try_acquire() else {
        let busy = JoinAnswer::Refused(JoinRefusal::Busy);
        let step = inner.limits.first_frame;
        let saying = async {
            frame::write(&mut stream.send, &busy).await?;
            stream.send.finish().await;
            last_words(stream).await;
            Ok::<_, FrameError>(())
        };
        let _ = tokio::time::timeout(step, saying).await;
        return;
    };
    if answer(inner, stream, peer, exporter, from).await {
        let _ = tokio::time::timeout(inner.limits.first_frame, last_words(stream)).await;
    }
}

/// Waits until the joiner closes: closing first, with bytes of it unread, could take the answer
/// away from it.
async fn last_words(stream: &mut Stream) {
    if let Receiver::Tls(recv) = &mut stream.recv {
        while let Ok(Some(_)) = recv.chunk(REQUEST_MAX).await {}
        recv.gone().await;
    }
}

/// Reads the one frame of a stranger, asks the host, and answers. False when there was no proper
/// frame.
async fn answer(
    inner: &Inner,
    stream: &mut Stream,
    peer: NodeId,
    exporter: [u8; 32],
    from: SocketAddr,
) -> bool {
    // Each step has its own bound, so that a stranger who delays holds its permit briefly.
    let step = inner.limits.first_frame;
    let Stream { send, recv } = stream;
    let mut reader = FrameReader::new(recv);
    let reading = reader.frame::<JoinRequest>(REQUEST_MAX);
    let request = match tokio::time::timeout(step, reading).await {
        // The key of the session is the one that asks: nobody joins in another's name.
        Ok(Ok(request)) if request.node == peer => request,
        _ => return false,
    };
    let answering = async {
        let answer = inner.host.join(request, exporter, from).await;
        frame::write(send, &answer).await?;
        send.finish().await;
        send.arrived().await;
        Ok::<_, FrameError>(())
    };
    match tokio::time::timeout(step, answering).await {
        Ok(Ok(())) => tracing::info!("answered a join of {peer:?} from {from}"),
        Ok(Err(e)) => tracing::info!("a join of {peer:?} from {from} broke: {e}"),
        Err(_) => tracing::info!("a join of {peer:?} from {from} took too long"),
    }
    true
}

/// A joiner gives up on an address after this.
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);
/// A joiner tries TLS-TCP beside QUIC when QUIC has brought nothing for so long.
const JOIN_PATIENCE: Duration = Duration::from_millis(500);

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

/// Joins a cluster through the member at `addr`, giving up after `within`: over QUIC, or over
/// TLS-TCP on the next port number when QUIC stays silent.
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
    let sockets = Sockets::client(addr)
        .map_err(|e| JoinError::Unreachable { addr, reason: e.to_string() })?;
    join_over(&sockets, addr, token, keypair, within).await
}

/// [`join_within`] on given sockets.
pub async fn join_over(
    sockets: &Sockets,
    addr: SocketAddr,
    token: &JoinToken,
    keypair: &Keypair,
    within: Duration,
) -> Result<Admission, JoinError> {
    let identity = Identity::new(keypair).map_err(JoinError::Identity)?;
    let unreachable = |reason: String| JoinError::Unreachable { addr, reason };
    let mut config = EndpointConfig::default();
    config.rng_seed(sockets.seed);
    let socket = Arc::clone(&sockets.udp);
    let endpoint = Endpoint::new_with_abstract_socket(config, None, socket, Arc::new(TokioRuntime))
        .map_err(|e| unreachable(e.to_string()))?;
    let mut told = "no answer in time".to_owned();
    let asking = async {
        let mut line = connect(&endpoint, &identity, sockets, addr, within, &mut told).await?;
        let answer = ask(&mut line, addr, token, keypair.node()).await?;
        Ok((answer, line.exporter))
    };
    let outcome = tokio::time::timeout(within, asking).await;
    endpoint.close(CLOSE_DOWN, b"");
    let (answer, exporter) = outcome.unwrap_or_else(|_| Err(unreachable(told)))?;
    match answer {
        JoinAnswer::Refused(refusal) => Err(refusal.into()),
        JoinAnswer::Admitted(admission) => believe(addr, token, keypair, &exporter, *admission),
    }
}

/// A session with the member, over one of the paths.
struct Line {
    stream: Stream,
    exporter: [u8; 32],
    /// Over QUIC: knows why it was closed.
    connection: Option<Connection>,
}

/// Reaches the member. The token is not shown before one path has won, so that it is used once.
/// What went wrong on one path is noted in `told`.
async fn connect(
    endpoint: &Endpoint,
    identity: &Identity,
    sockets: &Sockets,
    addr: SocketAddr,
    within: Duration,
    told: &mut String,
) -> Result<Line, JoinError> {
    let client = |rule| identity.client(Alpn::Join, rule);
    let tls = client(Rule::Anyone).map_err(|e| JoinError::Identity(e.to_string()))?;
    let transport = Arc::new(quic::client_transport(&Limits::default()));
    let config = quic::client_config(tls, &transport).map_err(JoinError::Identity)?;
    let over_quic = async {
        let connecting = endpoint.connect_with(config, addr, SERVER_NAME);
        connecting.map_err(|e| e.to_string())?.await.map_err(|e| format!("{addr} (UDP): {e}"))
    };
    let over_tls = async {
        let rule = Rule::Anyone;
        let connected = tcp::connect(identity, &*sockets.tcp, Alpn::Join, rule, addr).await;
        connected.inspect_err(|reason| told.clone_from(reason))
    };
    let patience = patience(JOIN_PATIENCE, within);
    let (over_quic, over_tls) = (stream::once(over_quic), stream::once(over_tls));
    match race(over_quic, over_tls, patience, |_| true).await {
        Ok(Won::Quic(connection)) => {
            let broken = |reason: String| JoinError::Broken { addr, reason };
            let exporter = exporter(&connection).map_err(broken)?;
            let halves = connection.open_bi().await.map_err(|e| broken(e.to_string()))?;
            Ok(Line { stream: Stream::from(halves), exporter, connection: Some(connection) })
        }
        Ok(Won::Tls(opened)) => {
            let exporter = opened.exporter;
            Ok(Line { stream: opened.split(&Cut::never()), exporter, connection: None })
        }
        Err(reasons) => Err(JoinError::Unreachable { addr, reason: reasons.join("; ") }),
    }
}

async fn ask(
    line: &mut Line,
    addr: SocketAddr,
    token: &JoinToken,
    node: NodeId,
) -> Result<JoinAnswer, JoinError> {
    let request = JoinRequest {
        version: VERSION,
        hash_version: HASH_VERSION,
        token: token.fields.clone(),
        proof: token.prove(JoinRole::Joiner, &line.exporter),
        node,
    };
    let Stream { send, recv } = &mut line.stream;
    let exchange = async {
        frame::write(send, &request).await?;
        send.finish().await;
        FrameReader::new(recv).frame::<JoinAnswer>(ANSWER_MAX).await
    };
    exchange.await.map_err(|e| {
        let closed = line.connection.as_ref().and_then(Connection::close_reason);
        match closed {
            Some(ConnectionError::ApplicationClosed(close)) if close.error_code == CLOSE_BUSY => {
                JoinRefusal::Busy.into()
            }
            _ => JoinError::Broken { addr, reason: e.to_string() },
        }
    })
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
