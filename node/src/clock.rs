//! The node's clock: boot time as pure code takes it, and wall time for validity.

use protocol::time::Time;
use protocol::trust::UnixTime;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Counts from the process's start on the boot clock, which goes on while the machine sleeps, so
/// that a lease cannot outlive a suspension unseen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start_ns: u64,
}

#[cfg(not(test))]
fn boot_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let secs = u64::try_from(t.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(t.tv_nsec).unwrap_or(0);
    secs.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// Tests pause tokio's clock; the node's then stands still with it.
#[cfg(test)]
fn boot_ns() -> u64 {
    static BEGUN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let now = tokio_now();
    let since = now.saturating_duration_since(*BEGUN.get_or_init(|| now));
    // Runtimes of other tests may have begun earlier or later.
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Now on tokio's clock, which is std's unless a test has paused it.
fn tokio_now() -> Instant {
    tokio::time::Instant::now().into_std()
}

impl Clock {
    /// Starts at zero now.
    pub(crate) fn start() -> Self {
        Self { start_ns: boot_ns() }
    }

    /// Now.
    pub(crate) fn now(&self) -> Time {
        Time(boot_ns().saturating_sub(self.start_ns))
    }

    /// How long until `time`; zero when it has passed.
    pub(crate) fn until(&self, time: Time) -> Duration {
        Duration::from_nanos(time.since(self.now()).0)
    }

    /// The start on std's clock.
    pub(crate) fn epoch(&self) -> Instant {
        let now = tokio_now();
        now.checked_sub(Duration::from_nanos(self.now().0)).unwrap_or(now)
    }

    /// `time` on tokio's and std's clock.
    pub(crate) fn instant(&self, time: Time) -> Instant {
        tokio_now() + self.until(time)
    }

    /// Seconds since the Unix epoch.
    pub(crate) fn unix() -> UnixTime {
        UnixTime(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()))
    }
}
