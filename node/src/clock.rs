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

fn boot_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let secs = u64::try_from(t.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(t.tv_nsec).unwrap_or(0);
    secs.saturating_mul(1_000_000_000).saturating_add(nanos)
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
        let now = Instant::now();
        now.checked_sub(Duration::from_nanos(self.now().0)).unwrap_or(now)
    }

    /// `time` on tokio's and std's clock.
    pub(crate) fn instant(&self, time: Time) -> Instant {
        Instant::now() + self.until(time)
    }

    /// Seconds since the Unix epoch.
    pub(crate) fn unix() -> UnixTime {
        UnixTime(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()))
    }
}
