//! Signs of life, shared with those who ask for health.

#[cfg(test)]
mod tests;

use crate::api::Health;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Shortest silence that counts as sick.
const SILENCE_MIN: Duration = Duration::from_secs(5);
/// Or so many times the 99th percentile of the interval between tokens.
const SILENCE_FACTOR: u32 = 10;

/// The engine's last signs of life.
#[derive(Debug)]
pub(crate) struct Pulse(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Whether it has something to compute.
    busy: bool,
    /// The end of the last step, or when it became busy.
    last: Instant,
    interval_p99: Duration,
    died: Option<String>,
}

impl Pulse {
    pub(crate) fn new(now: Instant) -> Self {
        let state = State { busy: false, last: now, interval_p99: Duration::ZERO, died: None };
        Self(Mutex::new(state))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A step begins.
    pub(crate) fn begin(&self, now: Instant) {
        let mut state = self.lock();
        if !state.busy {
            state.busy = true;
            state.last = now;
        }
    }

    /// A step ended: each brings a token or a chunk of a prompt.
    pub(crate) fn beat(&self, now: Instant, interval_p99: Duration) {
        let mut state = self.lock();
        state.last = now;
        state.interval_p99 = interval_p99;
    }

    /// Nothing can be computed now.
    pub(crate) fn rest(&self) {
        self.lock().busy = false;
    }

    pub(crate) fn die(&self, reason: String) {
        self.lock().died = Some(reason);
    }

    pub(crate) fn died(&self) -> Option<String> {
        self.lock().died.clone()
    }

    pub(crate) fn health(&self, now: Instant) -> Health {
        let state = self.lock();
        if let Some(reason) = &state.died {
            return Health::Died { reason: reason.clone() };
        }
        let silence = now.saturating_duration_since(state.last);
        let most = SILENCE_MIN.max(state.interval_p99.saturating_mul(SILENCE_FACTOR));
        if state.busy && silence > most {
            let reason = format!("it has work but finished no step for {silence:.1?}");
            return Health::Sick { reason };
        }
        Health::Healthy
    }
}
