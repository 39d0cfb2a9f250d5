//! Shapes a flow of bytes to a rate.

use crate::clock;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes that are let through at once; also the size in which a shaped sender cuts its bytes.
pub(crate) const PIECE: usize = 64 << 10;

/// Gives each piece of bytes its time, one after another.
#[derive(Debug)]
pub(crate) struct Throttle {
    bytes_s: f64,
    free_at: Mutex<Option<Instant>>,
}

impl Throttle {
    /// `bytes_s` of zero is taken as one.
    pub(crate) fn new(bytes_s: u64) -> Self {
        Self { bytes_s: bytes_s.max(1) as f64, free_at: Mutex::new(None) }
    }

    /// When `bytes` more may be sent, asked at `now`; reserves the time that they take.
    pub(crate) fn reserve(&self, now: Instant, bytes: usize) -> Instant {
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let start = free_at.unwrap_or(now).max(now);
        *free_at = Some(start + Duration::from_secs_f64(bytes as f64 / self.bytes_s));
        start
    }

    /// Waits until `bytes` more may be sent.
    pub(crate) async fn wait(&self, bytes: usize) {
        tokio::time::sleep_until(self.reserve(clock::now(), bytes).into()).await;
    }
}

#[cfg(test)]
mod tests;
