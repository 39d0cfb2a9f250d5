//! Which path reaches a peer: QUIC first; when its handshake stays silent, TLS-TCP beside it, so
//! that a peer behind a UDP block costs a short wait and a dead one no more than one timeout.

use crate::alpn::Alpn;
use crate::error::TransferError;
use crate::tcp::session::Cut;
use crate::tcp::{self, pool};
use crate::tls::{Rule, SERVER_NAME};
use crate::transfer::Inner;
use crate::{hello, quic};
use futures::stream::FuturesUnordered;
use futures::{Stream, StreamExt};
use protocol::id::NodeId;
use quinn::Connection;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// A further address is tried when the ones before have not answered after this.
const STAGGER: Duration = Duration::from_millis(100);
/// Reasons of failure that are told.
const REASONS_MAX: usize = 2;

/// The path that answered first.
pub(crate) enum Won<Q, T> {
    /// QUIC.
    Quic(Q),
    /// TLS-TCP.
    Tls(T),
}

/// Runs the attempts over QUIC, and those over TLS-TCP beside them as soon as QUIC has brought
/// nothing for `patience`, or has failed without an answer. `silent` tells such failures from
/// answers. Without a winner, all errors.
pub(crate) async fn race<Q, T, E>(
    quic: impl Stream<Item = Result<Q, E>>,
    tls: impl Stream<Item = Result<T, E>>,
    patience: Duration,
    silent: impl Fn(&E) -> bool,
) -> Result<Won<Q, T>, Vec<E>> {
    tokio::pin!(quic, tls);
    let patience = tokio::time::sleep(patience);
    tokio::pin!(patience);
    let mut errors = Vec::new();
    let (mut quic_runs, mut tls_begun, mut tls_runs) = (true, false, true);
    loop {
        tokio::select! {
            biased;
            outcome = quic.next(), if quic_runs => match outcome {
                Some(Ok(won)) => return Ok(Won::Quic(won)),
                Some(Err(e)) => errors.push(e),
                None => {
                    quic_runs = false;
                    tls_begun |= errors.iter().all(&silent);
                    tls_runs &= tls_begun;
                }
            },
            outcome = tls.next(), if tls_begun && tls_runs => match outcome {
                Some(Ok(won)) => return Ok(Won::Tls(won)),
                Some(Err(e)) => errors.push(e),
                None => tls_runs = false,
            },
            () = &mut patience, if quic_runs && !tls_begun => tls_begun = true,
            else => return Err(errors),
        }
    }
}

/// How long QUIC has for itself out of `whole`.
pub(crate) fn patience(wanted: Duration, whole: Duration) -> Duration {
    wanted.min(whole / 3)
}

/// Reaches a member at one of its addresses, over one of the paths.
pub(crate) async fn dial(
    inner: &Arc<Inner>,
    node: NodeId,
    alpn: Alpn,
    addrs: &[SocketAddr],
    cut: &Cut,
) -> Result<Won<Connection, pool::Connection>, TransferError> {
    let whole = inner.limits.connect;
    let patience = patience(inner.limits.udp_patience, whole);
    let over_udp = if inner.udp { addrs } else { &[] };
    let quic = staggered(over_udp, node, whole, |addr| dial_quic(inner, node, alpn, addr));
    let tls = staggered(addrs, node, whole.saturating_sub(patience), |addr| {
        tcp::connect_member(inner, node, alpn, addr, cut)
    });
    let raced = race(quic, tls, patience, |e| matches!(e, TransferError::Unreachable { .. }));
    raced.await.map_err(|errors| summary(node, errors))
}

/// Reaches a member over TLS-TCP only.
pub(crate) async fn dial_tls(
    inner: &Arc<Inner>,
    node: NodeId,
    alpn: Alpn,
    addrs: &[SocketAddr],
    cut: &Cut,
) -> Result<pool::Connection, TransferError> {
    let mut attempts = staggered(addrs, node, inner.limits.connect, |addr| {
        tcp::connect_member(inner, node, alpn, addr, cut)
    });
    let mut errors = Vec::new();
    while let Some(outcome) = attempts.next().await {
        match outcome {
            Ok(connection) => return Ok(connection),
            Err(e) => errors.push(e),
        }
    }
    Err(summary(node, errors))
}

/// Reaches a member over QUIC only.
pub(crate) async fn dial_udp(
    inner: &Arc<Inner>,
    node: NodeId,
    alpn: Alpn,
    addrs: &[SocketAddr],
) -> Option<Connection> {
    let limit = inner.limits.connect;
    let mut attempts = staggered(addrs, node, limit, |addr| dial_quic(inner, node, alpn, addr));
    while let Some(outcome) = attempts.next().await {
        if let Ok(connection) = outcome {
            return Some(connection);
        }
    }
    None
}

/// Attempts at several addresses, each a little later than the one before and with its own limit.
fn staggered<T, F: Future<Output = Result<T, TransferError>>>(
    addrs: &[SocketAddr],
    node: NodeId,
    limit: Duration,
    attempt: impl Fn(SocketAddr) -> F,
) -> FuturesUnordered<impl Future<Output = Result<T, TransferError>>> {
    let attempts = addrs.iter().enumerate().map(|(n, addr)| {
        let (addr, attempt) = (*addr, attempt(*addr));
        async move {
            tokio::time::sleep(STAGGER * n as u32).await;
            let outcome = tokio::time::timeout(limit, attempt).await;
            outcome.unwrap_or_else(|_| {
                Err(TransferError::Unreachable { node, reason: format!("no answer from {addr}") })
            })
        }
    });
    attempts.collect()
}

/// One error of several: an answer that says why is worth more than silence.
fn summary(node: NodeId, errors: Vec<TransferError>) -> TransferError {
    let mut reasons: Vec<String> = Vec::new();
    for error in errors {
        match error {
            TransferError::Unreachable { reason, .. } if !reasons.contains(&reason) => {
                reasons.push(reason);
            }
            TransferError::Unreachable { .. } => {}
            answer => return answer,
        }
    }
    if reasons.is_empty() {
        return TransferError::NoAddress(node);
    }
    reasons.truncate(REASONS_MAX);
    TransferError::Unreachable { node, reason: reasons.join("; ") }
}

async fn dial_quic(
    inner: &Arc<Inner>,
    node: NodeId,
    alpn: Alpn,
    addr: SocketAddr,
) -> Result<Connection, TransferError> {
    let unreachable = |reason: String| TransferError::Unreachable { node, reason };
    let rule = Rule::Member { node, host: Arc::clone(&inner.host) };
    let tls = inner.identity.client(alpn, rule).map_err(|e| unreachable(e.to_string()))?;
    let config = quic::client_config(tls, &inner.client_transport).map_err(unreachable)?;
    let connection = inner
        .endpoint
        .connect_with(config, addr, SERVER_NAME)
        .map_err(|e| unreachable(format!("{addr}: {e}")))?
        .await
        .map_err(|e| unreachable(format!("{addr}: {e}")))?;
    hello::as_quic_client(inner, &connection, node).await?;
    Ok(connection)
}
