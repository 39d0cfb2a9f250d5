//! What is known of the path to each peer: measured rates, failures, quarantine.

use crate::config::Limits;
use protocol::id::NodeId;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Weight of a new measurement of bandwidth.
const SMOOTHING: f64 = 0.3;

/// Smaller fetches say more about latency than about bandwidth.
const SAMPLE_MIN_BYTES: u64 = 64 << 10;

/// How a peer is reached.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Via {
    /// QUIC over UDP.
    Quic,
    /// TLS over TCP, because UDP did not get through.
    TlsTcp,
}

impl Via {
    /// Its name, as `status` and metrics show it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quic => "quic",
            Self::TlsTcp => "tls-tcp",
        }
    }
}

/// How to reach a peer now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Route {
    /// QUIC first.
    Quic,
    /// TLS-TCP: UDP did not get through a moment ago.
    Tls,
    /// TLS-TCP, and the caller finds out meanwhile whether UDP gets through again.
    TlsAndProbe,
}

/// The path to one peer, as measured from here.
#[derive(Clone, PartialEq, Debug)]
pub struct PathStats {
    /// The peer.
    pub node: NodeId,
    /// How the peer was reached last; `None` before the first time.
    pub via: Option<Via>,
    /// Times that the peer was reached over TLS-TCP because QUIC was silent, since start.
    pub udp_blocked: u64,
    /// Round-trip time of the newest connection in milliseconds; `None` before the first.
    pub rtt_ms: Option<f64>,
    /// Bytes per second of fetched blocks, smoothed; `None` before the first fetch of 64 KiB.
    pub bandwidth_bytes_s: Option<f64>,
    /// Bytes of blocks that arrived and were right.
    pub fetched_bytes: u64,
    /// Times the peer did not answer, since start.
    pub failures: u64,
    /// Blocks that were wrong, since start.
    pub corrupt: u64,
    /// Milliseconds until the next probe of a peer in quarantine.
    pub quarantined_ms: Option<u64>,
}

/// All paths from here.
#[derive(Debug)]
pub(crate) struct Paths {
    first: Duration,
    longest: Duration,
    probe: Duration,
    probe_max: Duration,
    paths: Mutex<BTreeMap<NodeId, Path>>,
}

#[derive(Debug, Default)]
struct Path {
    rtt: Option<Duration>,
    bandwidth: Option<f64>,
    fetched_bytes: u64,
    failures: u64,
    corrupt: u64,
    /// Failures in a row.
    strikes: u32,
    quarantined_until: Option<Instant>,
    via: Option<Via>,
    udp_blocked: u64,
    /// Set while TLS-TCP is used: when UDP is tried again.
    udp_probe_at: Option<Instant>,
    /// Such tries in a row.
    udp_probes: u32,
}

fn doubled(first: Duration, times: u32, longest: Duration) -> Duration {
    let factor = 1u32.checked_shl(times).unwrap_or(u32::MAX);
    first.saturating_mul(factor).min(longest)
}

impl Paths {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            first: limits.quarantine,
            longest: limits.quarantine_max,
            probe: limits.udp_probe,
            probe_max: limits.udp_probe_max,
            paths: Mutex::default(),
        }
    }

    fn with<T>(&self, node: &NodeId, f: impl FnOnce(&mut Path) -> T) -> T {
        let mut paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        f(paths.entry(*node).or_default())
    }

    fn back_off(&self, strikes: u32) -> Duration {
        doubled(self.first, strikes.saturating_sub(1), self.longest)
    }

    /// Whether the peer may be asked. In quarantine the answer is the time left. When that has run
    /// out, one caller is let through as the probe and the others wait another round for it.
    pub(crate) fn admit(&self, node: &NodeId, now: Instant) -> Result<(), Duration> {
        self.with(node, |path| match path.quarantined_until {
            Some(until) if until > now => Err(until - now),
            Some(_) => {
                path.quarantined_until = Some(now + self.back_off(path.strikes));
                Ok(())
            }
            None => Ok(()),
        })
    }

    /// Failures since start.
    pub(crate) fn failures(&self, node: &NodeId) -> u64 {
        self.with(node, |path| path.failures)
    }

    /// The peer did not answer.
    pub(crate) fn failed(&self, node: &NodeId, now: Instant) {
        self.with(node, |path| {
            path.failures += 1;
            path.strikes = path.strikes.saturating_add(1);
            path.quarantined_until = Some(now + self.back_off(path.strikes));
        });
    }

    /// The peer did not answer an attempt that began when it had failed `failures` times: of many
    /// callers that waited together, one counts.
    pub(crate) fn failed_since(&self, node: &NodeId, failures: u64, now: Instant) {
        if self.failures(node) == failures {
            self.failed(node, now);
        }
    }

    /// How to reach the peer now.
    pub(crate) fn route(&self, node: &NodeId, now: Instant) -> Route {
        self.with(node, |path| match path.udp_probe_at {
            None => Route::Quic,
            Some(at) if at > now => Route::Tls,
            Some(_) => {
                path.udp_probes = path.udp_probes.saturating_add(1);
                let pause = doubled(self.probe, path.udp_probes, self.probe_max);
                path.udp_probe_at = Some(now + pause);
                Route::TlsAndProbe
            }
        })
    }

    /// Whether TLS-TCP is used for the peer.
    pub(crate) fn on_tls(&self, node: &NodeId) -> bool {
        self.with(node, |path| path.udp_probe_at.is_some())
    }

    /// The peer was reached this way.
    pub(crate) fn reached(&self, node: &NodeId, via: Via, now: Instant) {
        self.with(node, |path| {
            path.via = Some(via);
            match via {
                Via::Quic => {
                    path.udp_probe_at = None;
                    path.udp_probes = 0;
                }
                Via::TlsTcp => {
                    path.udp_blocked += 1;
                    path.udp_probe_at = Some(now + self.probe);
                }
            }
        });
    }

    /// TLS-TCP has failed too: the next attempt tries both again.
    pub(crate) fn tls_failed(&self, node: &NodeId) {
        self.with(node, |path| path.udp_probe_at = None);
    }

    /// The peer sent a wrong block.
    pub(crate) fn sent_corrupt(&self, node: &NodeId, now: Instant) {
        self.with(node, |path| path.corrupt += 1);
        self.failed(node, now);
    }

    /// The peer answered.
    pub(crate) fn answered(&self, node: &NodeId, rtt: Duration) {
        self.with(node, |path| {
            path.rtt = Some(rtt);
            path.strikes = 0;
            path.quarantined_until = None;
        });
    }

    /// `bytes` of blocks arrived in `took`, of which one `rtt` was spent on asking.
    pub(crate) fn fetched(&self, node: &NodeId, bytes: u64, took: Duration, rtt: Duration) {
        self.with(node, |path| {
            path.fetched_bytes += bytes;
            if bytes < SAMPLE_MIN_BYTES {
                return;
            }
            let seconds = took.saturating_sub(rtt).max(Duration::from_micros(1)).as_secs_f64();
            let sample = bytes as f64 / seconds;
            let before = path.bandwidth.unwrap_or(sample);
            path.bandwidth = Some(before + SMOOTHING * (sample - before));
        });
    }

    /// The peer is back: probe it at once.
    pub(crate) fn readmit(&self, node: &NodeId) {
        self.with(node, |path| {
            path.strikes = 0;
            path.quarantined_until = None;
        });
    }

    pub(crate) fn stats(&self, now: Instant) -> Vec<PathStats> {
        let paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        let stats = paths.iter().map(|(node, path)| PathStats {
            node: *node,
            via: path.via,
            udp_blocked: path.udp_blocked,
            rtt_ms: path.rtt.map(|rtt| rtt.as_secs_f64() * 1e3),
            bandwidth_bytes_s: path.bandwidth,
            fetched_bytes: path.fetched_bytes,
            failures: path.failures,
            corrupt: path.corrupt,
            quarantined_ms: path
                .quarantined_until
                .map(|until| until.saturating_duration_since(now).as_millis() as u64),
        });
        stats.collect()
    }
}

#[cfg(test)]
mod tests;
