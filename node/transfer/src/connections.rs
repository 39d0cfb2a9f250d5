//! Connections out, made on demand and kept while they live: over QUIC one per peer and protocol,
//! which carries all streams; over TLS-TCP a pool per peer and protocol.

use crate::alpn::Alpn;
use crate::clock;
use crate::dial::{self, Won};
use crate::error::TransferError;
use crate::paths::{Route, Via};
use crate::stream::Stream;
use crate::tcp::KEPT_BY_CLIENT;
use crate::tcp::pool::{self, Pool};
use crate::transfer::Inner;
use protocol::id::NodeId;
use quinn::{Connection, VarInt};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// Addresses of one peer that are tried.
const ADDRESSES_MAX: usize = 8;
/// Streams for blocks to one peer at once over TLS-TCP; the peer's credits are far below.
const BLOCKS_STREAMS: usize = 64;

/// The place of one QUIC connection; locked while it is being made, so that it is made once.
type Cell = Arc<tokio::sync::Mutex<Option<Connection>>>;

/// All connections out.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    cells: Mutex<BTreeMap<(NodeId, Alpn), Cell>>,
    pools: Mutex<BTreeMap<(NodeId, Alpn), Arc<Pool>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connections {
    fn cell(&self, node: NodeId, alpn: Alpn) -> Cell {
        Arc::clone(lock(&self.cells).entry((node, alpn)).or_default())
    }

    fn pool(&self, inner: &Inner, node: NodeId, alpn: Alpn) -> Arc<Pool> {
        let limits = &inner.limits;
        let most = match alpn {
            Alpn::Blocks | Alpn::Blobs => BLOCKS_STREAMS,
            _ => limits.serve_streams_per_connection as usize,
        };
        let make = || Pool::new(most, limits.idle * KEPT_BY_CLIENT);
        Arc::clone(lock(&self.pools).entry((node, alpn)).or_insert_with(make))
    }

    /// Closes the connections to `node`; streams over them end at once.
    pub(crate) fn disconnect(&self, node: NodeId, code: VarInt, reason: &[u8]) {
        for alpn in Alpn::ALL {
            let cell = lock(&self.cells).remove(&(node, alpn));
            if let Some(connection) = cell.and_then(|cell| cell.try_lock().ok()?.take()) {
                connection.close(code, reason);
            }
            if let Some(pool) = lock(&self.pools).remove(&(node, alpn)) {
                pool.cut();
            }
        }
    }

    /// Ends all TLS-TCP connections.
    pub(crate) fn close(&self) {
        std::mem::take(&mut *lock(&self.pools)).values().for_each(|pool| pool.cut());
    }
}

/// An open stream to a member, and what carries it.
pub(crate) struct Open {
    pub(crate) stream: Stream,
    pub(crate) link: Link,
}

/// What carries a stream.
pub(crate) enum Link {
    /// A QUIC connection.
    Quic(Connection),
    /// A TLS-TCP connection of its own.
    Tls {
        /// Round trip of its first exchange.
        rtt: Duration,
        /// Where it goes back to.
        pool: Arc<Pool>,
        /// Counts it as used.
        permit: OwnedSemaphorePermit,
    },
}

impl Link {
    /// Round-trip time of the path.
    pub(crate) fn rtt(&self) -> Duration {
        match self {
            Self::Quic(connection) => connection.rtt(),
            Self::Tls { rtt, .. } => *rtt,
        }
    }
}

impl Open {
    /// The stream is over: what carried it may carry another. Waits for the peer's end of the
    /// stream, at most `within`.
    pub(crate) async fn give_back(self, within: Duration) {
        let Link::Tls { rtt, pool, permit } = self.link else { return };
        let mut connection = pool::Connection { stream: self.stream, rtt };
        if connection.ended_well(within).await {
            pool.put(connection);
        }
        drop(permit);
    }
}

fn alive(connection: Option<&Connection>) -> Option<Connection> {
    connection.filter(|connection| connection.close_reason().is_none()).cloned()
}

/// Opens a stream to a member. A kept connection that turns out to be closed is replaced.
pub(crate) async fn open(
    inner: &Arc<Inner>,
    node: NodeId,
    alpn: Alpn,
    addrs: &[SocketAddr],
) -> Result<Open, TransferError> {
    let mut reason = String::new();
    for _ in 0..3 {
        if let Some(pool) = tls_pool(inner, node, alpn, addrs)? {
            return open_tls(inner, pool, node, alpn, addrs).await;
        }
        // Without a connection the peer has been reached over TLS-TCP.
        let Some(connection) = connection(inner, node, alpn, addrs).await? else { continue };
        match connection.open_bi().await {
            Ok(halves) => {
                return Ok(Open { stream: Stream::from(halves), link: Link::Quic(connection) });
            }
            Err(e) => reason = e.to_string(),
        }
    }
    Err(TransferError::Unreachable { node, reason })
}

/// Makes sure that a stream can be opened without a handshake.
pub(crate) async fn warm(
    inner: &Arc<Inner>,
    node: NodeId,
    alpn: Alpn,
    addrs: &[SocketAddr],
) -> Result<(), TransferError> {
    let Some(pool) = tls_pool(inner, node, alpn, addrs)? else {
        return connection(inner, node, alpn, addrs).await.map(|_| ());
    };
    if !pool.has_idle() {
        pool.put(connect_tls(inner, &pool, node, alpn, addrs).await?);
    }
    Ok(())
}

/// The pool of TLS-TCP connections, when that is the way to this peer now. Starts a try of UDP when
/// one is due.
fn tls_pool(
    inner: &Arc<Inner>,
    node: NodeId,
    alpn: Alpn,
    addrs: &[SocketAddr],
) -> Result<Option<Arc<Pool>>, TransferError> {
    if !inner.host.is_member(&node) {
        return Err(TransferError::NotMember(node));
    }
    match inner.paths.route(&node, clock::now()) {
        Route::Quic => return Ok(None),
        Route::TlsAndProbe if inner.udp => {
            tokio::spawn(probe_udp(Arc::clone(inner), node, alpn, capped(addrs)));
        }
        Route::Tls | Route::TlsAndProbe => {}
    }
    Ok(Some(inner.connections.pool(inner, node, alpn)))
}

fn capped(addrs: &[SocketAddr]) -> Vec<SocketAddr> {
    addrs.iter().copied().take(ADDRESSES_MAX).collect()
}

/// Finds out whether UDP gets through again.
async fn probe_udp(inner: Arc<Inner>, node: NodeId, alpn: Alpn, addrs: Vec<SocketAddr>) {
    let cell = inner.connections.cell(node, alpn);
    let Ok(mut place) = cell.try_lock() else { return };
    if let Some(connection) = dial::dial_udp(&inner, node, alpn, &addrs).await {
        tracing::info!("{node:?} is reached over QUIC again");
        inner.paths.reached(&node, Via::Quic, clock::now());
        *place = Some(connection);
    }
}

async fn open_tls(
    inner: &Arc<Inner>,
    pool: Arc<Pool>,
    node: NodeId,
    alpn: Alpn,
    addrs: &[SocketAddr],
) -> Result<Open, TransferError> {
    let permit = pool.permit().await.ok_or(TransferError::Closed)?;
    let connection = match pool.take() {
        Some(connection) => connection,
        None => connect_tls(inner, &pool, node, alpn, addrs).await?,
    };
    let pool::Connection { stream, rtt } = connection;
    Ok(Open { stream, link: Link::Tls { rtt, pool, permit } })
}

async fn connect_tls(
    inner: &Arc<Inner>,
    pool: &Pool,
    node: NodeId,
    alpn: Alpn,
    addrs: &[SocketAddr],
) -> Result<pool::Connection, TransferError> {
    let failures = inner.paths.failures(&node);
    let dialled = dial::dial_tls(inner, node, alpn, &capped(addrs), &pool.cutter()).await;
    match &dialled {
        Ok(connection) => inner.paths.answered(&node, connection.rtt),
        Err(e) => {
            tracing::info!("{e}");
            inner.paths.tls_failed(&node);
            inner.paths.failed_since(&node, failures, clock::now());
        }
    }
    dialled
}

/// A live QUIC connection to a member, new or kept; `None` when the peer has been reached over
/// TLS-TCP instead.
async fn connection(
    inner: &Arc<Inner>,
    node: NodeId,
    alpn: Alpn,
    addrs: &[SocketAddr],
) -> Result<Option<Connection>, TransferError> {
    let cell = inner.connections.cell(node, alpn);
    let failures = inner.paths.failures(&node);
    if let Some(connection) = alive(cell.lock().await.as_ref()) {
        return Ok(Some(connection));
    }
    // In a task of its own: a caller whose deadline passes leaves a warm connection behind.
    let connecting = connect(Arc::clone(inner), cell, node, alpn, capped(addrs), failures);
    tokio::spawn(connecting).await.map_err(|_| TransferError::Closed)?
}

async fn connect(
    inner: Arc<Inner>,
    cell: Cell,
    node: NodeId,
    alpn: Alpn,
    addrs: Vec<SocketAddr>,
    failures: u64,
) -> Result<Option<Connection>, TransferError> {
    let mut place = cell.lock().await;
    if let Some(connection) = alive(place.as_ref()) {
        return Ok(Some(connection));
    }
    if inner.paths.on_tls(&node) {
        return Ok(None);
    }
    if inner.paths.failures(&node) != failures {
        // Another caller has just waited for this peer in vain.
        let reason = "it failed a moment ago".to_owned();
        return Err(TransferError::Unreachable { node, reason });
    }
    let pool = inner.connections.pool(&inner, node, alpn);
    match dial::dial(&inner, node, alpn, &addrs, &pool.cutter()).await {
        Ok(Won::Quic(connection)) => {
            inner.paths.answered(&node, connection.rtt());
            inner.paths.reached(&node, Via::Quic, clock::now());
            *place = Some(connection.clone());
            Ok(Some(connection))
        }
        Ok(Won::Tls(connection)) => {
            if inner.udp {
                tracing::info!("{node:?} does not answer over UDP; reached over TLS-TCP");
            }
            inner.paths.answered(&node, connection.rtt);
            inner.paths.reached(&node, Via::TlsTcp, clock::now());
            pool.put(connection);
            Ok(None)
        }
        Err(e) => {
            tracing::info!("{e}");
            inner.paths.failed_since(&node, failures, clock::now());
            *place = None;
            Err(e)
        }
    }
}
