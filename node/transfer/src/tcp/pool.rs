//! The connections to one peer for one protocol: those in use are counted, those idle are kept.

use super::session::{self, Cut};
use crate::clock;
use crate::stream::{Receiver, Sender, Stream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Idle connections that are kept.
const IDLE_MAX: usize = 8;

/// A connection that carries a stream or waits for one.
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    /// Round trip of its Hello.
    pub(crate) rtt: Duration,
}

impl Connection {
    fn halves(&mut self) -> Option<(&mut session::Sender, &mut session::Receiver)> {
        match &mut self.stream {
            Stream { send: Sender::Tls(send), recv: Receiver::Tls(recv) } => Some((send, recv)),
            _ => None,
        }
    }

    /// Whether its stream has ended on both sides; waits for the peer's end, at most `within`.
    pub(crate) async fn ended_well(&mut self, within: Duration) -> bool {
        let Some((send, recv)) = self.halves() else { return false };
        session::ended_well(send, recv, within).await
    }

    fn is_quiet(&mut self) -> bool {
        self.halves().is_some_and(|(_, recv)| session::is_quiet(recv))
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Pool {
    idle: Mutex<Vec<(Instant, Connection)>>,
    permits: Arc<Semaphore>,
    cut: watch::Sender<bool>,
    keep: Duration,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connection")
    }
}

impl Pool {
    /// At most `most` connections in use at once; idle ones are used again within `keep`.
    pub(crate) fn new(most: usize, keep: Duration) -> Arc<Self> {
        let (cut, _) = watch::channel(false);
        let permits = Arc::new(Semaphore::new(most));
        Arc::new(Self { idle: Mutex::default(), permits, cut, keep })
    }

    /// The right to use one more connection.
    pub(crate) async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.permits).acquire_owned().await.ok()
    }

    /// Cuts the connections of this pool when it is cut.
    pub(crate) fn cutter(&self) -> Cut {
        Cut::by(&self.cut)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<(Instant, Connection)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An idle connection that lives, as far as this side has heard.
    pub(crate) fn take(&self) -> Option<Connection> {
        let now = clock::now();
        loop {
            // The one used last: the others grow old and go.
            let (since, mut connection) = self.idle().pop()?;
            if now.saturating_duration_since(since) < self.keep && connection.is_quiet() {
                return Some(connection);
            }
        }
    }

    /// Whether there is an idle connection.
    pub(crate) fn has_idle(&self) -> bool {
        let now = clock::now();
        self.idle().iter().any(|(since, _)| now.saturating_duration_since(*since) < self.keep)
    }

    /// Keeps a connection whose stream has ended well.
    pub(crate) fn put(&self, connection: Connection) {
        if *self.cut.borrow() {
            return;
        }
        let now = clock::now();
        let mut idle = self.idle();
        idle.retain(|(since, _)| now.saturating_duration_since(*since) < self.keep);
        if idle.len() < IDLE_MAX {
            idle.push((now, connection));
        }
    }

    /// Ends all connections, in use or not.
    pub(crate) fn cut(&self) {
        self.cut.send_replace(true);
        self.idle().clear();
    }
}
