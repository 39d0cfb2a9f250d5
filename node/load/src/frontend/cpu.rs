//! CPU time of another process, from `/proc`.

use std::collections::BTreeMap;
use std::time::Duration;

/// Clock ticks of `/proc/PID/stat` per second: fixed by Linux' ABI for user space.
const TICKS: u64 = 100;

/// What a process has used so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CpuTime {
    /// User and system time of the process, ended threads included; exact to two ticks of 10 ms.
    whole: Duration,
    /// Time on a CPU of each living thread, exact to the nanosecond.
    threads: BTreeMap<u32, Duration>,
}

impl CpuTime {
    /// Reads both; none when the process is gone.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let whole = whole(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
        let mut threads = BTreeMap::new();
        for entry in std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            // Kernels without scheduler statistics have no such file, and a thread may just end.
            let text = std::fs::read_to_string(entry.path().join("schedstat")).unwrap_or_default();
            if let Some(time) = on_cpu(&text) {
                threads.insert(id, time);
            }
        }
        Some(Self { whole, threads })
    }

    /// CPU time used since `before`: by the threads' exact clocks, unless one has ended in between.
    pub(super) fn since(&self, before: &Self) -> Duration {
        let whole = self.whole.saturating_sub(before.whole);
        let ended = before.threads.keys().any(|id| !self.threads.contains_key(id));
        if ended || self.threads.is_empty() {
            return whole;
        }
        let used = |(id, time): (&u32, &Duration)| {
            time.saturating_sub(before.threads.get(id).copied().unwrap_or_default())
        };
        self.threads.iter().map(used).sum()
    }
}

/// Fields 14 and 15 (`utime`, `stime`) of a `stat` line. The command in parentheses may hold spaces.
fn whole(stat: &str) -> Option<Duration> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Duration::from_nanos((user + system).saturating_mul(1_000_000_000 / TICKS)))
}

/// The first field of a `schedstat` file: nanoseconds on a CPU.
fn on_cpu(schedstat: &str) -> Option<Duration> {
    schedstat.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(whole_ms: u64, threads: &[(u32, u64)]) -> CpuTime {
        let threads = threads.iter().map(|(id, ns)| (*id, Duration::from_nanos(*ns))).collect();
        CpuTime { whole: Duration::from_millis(whole_ms), threads }
    }

    #[test]
    fn lines_of_proc_are_read() {
        let stat = "42 (a) b) S 1 2 3 4 5 6 7 8 9 10 150 25 0 0 20 0 9 0 1";
        assert_eq!(whole(stat), Some(Duration::from_millis(1750)));
        assert_eq!(whole("42 (x) S 1"), None);
        assert_eq!(on_cpu("123456 77 3\n"), Some(Duration::from_nanos(123_456)));
        assert_eq!(on_cpu(""), None);
    }

    #[test]
    fn threads_count_exactly_unless_one_has_ended() {
        let before = time(100, &[(1, 1_000), (2, 5_000)]);
        assert_eq!(
            time(110, &[(1, 1_500), (2, 5_000), (3, 70)]).since(&before),
            Duration::from_nanos(570)
        );
        assert_eq!(time(110, &[(1, 1_500)]).since(&before), Duration::from_millis(10));
        assert_eq!(time(120, &[]).since(&time(100, &[])), Duration::from_millis(20));
    }

    #[test]
    fn work_of_this_process_is_seen() {
        let pid = std::process::id();
        let before = CpuTime::of(pid).unwrap();
        let mut sum = 0u64;
        while CpuTime::of(pid).unwrap().since(&before) < Duration::from_millis(30) {
            sum = (0..10_000u64).fold(sum, |sum, n| std::hint::black_box(sum ^ n));
        }
        assert!(CpuTime::of(u32::MAX).is_none());
    }
}
