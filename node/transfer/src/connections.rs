//! Connections out: one per peer and protocol, made on demand and kept while they live.

use crate::alpn::Alpn;
use crate::error::TransferError;
use crate::tls::{Rule, SERVER_NAME};
use crate::transfer::Inner;
use crate::{hello, quic};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use protocol::id::NodeId;
use quinn::{Connection, RecvStream, SendStream, VarInt};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Addresses of one peer that are tried.
const ADDRESSES_MAX: usize = 8;
/// A further address is tried when the ones before have not answered after this.
const STAGGER: Duration = Duration::from_millis(100);

/// The place of one connection; locked while it is being made, so that it is made once.
type Cell = Arc<tokio::sync::Mutex<Option<Connection>>>;

/// All connections out.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    cells: Mutex<BTreeMap<(NodeId, Alpn), Cell>>,
}

impl Connections {
    fn cell(&self, node: NodeId, alpn: Alpn) -> Cell {
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(cells.entry((node, alpn)).or_default())
    }

    /// Closes the connections to `node`; streams over them end at once.
    pub(crate) fn disconnect(&self, node: NodeId, code: VarInt, reason: &[u8]) {
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        for alpn in Alpn::ALL {
            let connection =
                cells.remove(&(node, alpn)).and_then(|cell| cell.try_lock().ok()?.take());
            if let Some(connection) = connection {
                connection.close(code, reason);
            }
        }
    }
}

fn alive(connection: Option<&Connection>) -> Option<Connection> {
    connection.filter(|connection| connection.close_reason().is_none()).cloned()
}

/// A live connection to a member, new or kept.
pub(crate) async fn connection(
    inner: &Arc<Inner>,
    node: NodeId,
    alpn: Alpn,
    addrs: &[SocketAddr],
) -> Result<Connection, TransferError> {
    if !inner.host.is_member(&node) {
        return Err(TransferError::NotMember(node));
    }
    let cell = inner.connections.cell(node, alpn);
    let failures = inner.paths.failures(&node);
    if let Some(connection) = alive(cell.lock().await.as_ref()) {
        return Ok(connection);
    }
    // In a task of its own: a caller whose deadline passes leaves a warm connection behind.
    let addrs = addrs.iter().copied().take(ADDRESSES_MAX).collect();
    let connecting = connect(Arc::clone(inner), cell, node, alpn, addrs, failures);
    tokio::spawn(connecting).await.map_err(|_| TransferError::Closed)?
}

async fn connect(
    inner: Arc<Inner>,
    cell: Cell,
    node: NodeId,
    alpn: Alpn,
    addrs: Vec<SocketAddr>,
    failures: u64,
) -> Result<Connection, TransferError> {
    let mut place = cell.lock().await;
    if let Some(connection) = alive(place.as_ref()) {
        return Ok(connection);
    }
    if inner.paths.failures(&node) != failures {
        // Another caller has just waited for this peer in vain.
        let reason = "it failed a moment ago".to_owned();
        return Err(TransferError::Unreachable { node, reason });
    }
    match dial(&inner, node, alpn, addrs).await {
        Ok(connection) => {
            inner.paths.answered(&node, connection.rtt());
            *place = Some(connection.clone());
            Ok(connection)
        }
        Err(e) => {
            tracing::info!("{e}");
            inner.paths.failed(&node, Instant::now());
            *place = None;
            Err(e)
        }
    }
}

/// Tries the addresses, each a little later than the one before; the first that answers wins.
async fn dial(
    inner: &Arc<Inner>,
    node: NodeId,
    alpn: Alpn,
    addrs: Vec<SocketAddr>,
) -> Result<Connection, TransferError> {
    let attempts = addrs.into_iter().enumerate().map(|(n, addr)| async move {
        tokio::time::sleep(STAGGER * n as u32).await;
        let attempt = dial_one(inner, node, alpn, addr);
        let outcome = tokio::time::timeout(inner.limits.connect, attempt).await;
        outcome.unwrap_or_else(|_| {
            Err(TransferError::Unreachable { node, reason: format!("no answer from {addr}") })
        })
    });
    let mut attempts: FuturesUnordered<_> = attempts.collect();
    let mut told = TransferError::NoAddress(node);
    while let Some(outcome) = attempts.next().await {
        match outcome {
            Ok(connection) => return Ok(connection),
            // An answer that says why is worth more than silence.
            Err(e) if matches!(e, TransferError::Unreachable { .. }) => {
                if matches!(told, TransferError::NoAddress(_)) {
                    told = e;
                }
            }
            Err(e) => told = e,
        }
    }
    Err(told)
}

async fn dial_one(
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
    hello::as_client(inner, &connection, node).await?;
    Ok(connection)
}

/// Opens a stream to a member. A kept connection that turns out to be closed is replaced once.
pub(crate) async fn open(
    inner: &Arc<Inner>,
    node: NodeId,
    alpn: Alpn,
    addrs: &[SocketAddr],
) -> Result<(Connection, SendStream, RecvStream), TransferError> {
    let mut reason = String::new();
    for _ in 0..2 {
        let connection = connection(inner, node, alpn, addrs).await?;
        match connection.open_bi().await {
            Ok((send, recv)) => return Ok((connection, send, recv)),
            Err(e) => reason = e.to_string(),
        }
    }
    Err(TransferError::Unreachable { node, reason })
}
