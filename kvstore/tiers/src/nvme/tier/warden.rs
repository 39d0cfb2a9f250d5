//! The warden: deadlines, idle commits, and a failing disk's way out and back.

use super::super::core::Nvme;
use super::super::open::Opened;
use super::desk::{Desk, Serving};
use super::medium::{IoMode, Medium};
use super::{Shared, found, lock};
use protocol::disk::DiskEvent;
use protocol::time::{Span, Time};
use std::collections::BTreeSet;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

/// Removals and claims wait so long for a write that takes them along.
const FLUSH_AFTER: Span = Span::millis(200);
/// Longest sleep.
const LOOK: Span = Span::secs(1);

type NvmeOf<M> = Nvme<<M as Medium>::Disk, <M as Medium>::Index>;
type DeskOf<'a, M> = MutexGuard<'a, Desk<NvmeOf<M>>>;

impl<M: Medium> Shared<M> {
    /// The disk works: what it holds is told and operations are taken.
    pub(super) fn serve(&self, opened: Opened<M::Disk, M::Index>, io: IoMode) {
        let mut desk = lock(&self.desk);
        desk.io = io;
        desk.report = opened.report;
        desk.serving = Serving::Yes(Arc::new(opened.nvme));
        (self.events)(found(opened.found));
    }

    /// The disk did not work at the start.
    pub(super) fn begin_quarantined(&self, reason: String) {
        let mut desk = lock(&self.desk);
        self.set_quarantined(&mut desk, reason);
    }

    fn set_quarantined(&self, desk: &mut DeskOf<'_, M>, reason: String) {
        let until = self.now() + self.config.backoff.0;
        desk.serving = Serving::No { reason: reason.clone(), until };
        desk.quarantines += 1;
        (self.events)(DiskEvent::Quarantined { reason });
    }

    fn sleep<'a>(&self, desk: DeskOf<'a, M>, until: Time) -> DeskOf<'a, M> {
        let span = until.since(self.now()).0.min(LOOK.0);
        let span = Duration::from_nanos(span).max(Duration::from_micros(100));
        self.alarm.wait_timeout(desk, span).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Why the disk must go out of service, if it must.
    fn trouble(&self, desk: &DeskOf<'_, M>, nvme: &NvmeOf<M>) -> Option<String> {
        let now = self.now();
        let stuck = desk.running.values().any(|since| now.since(*since) > self.config.stuck);
        nvme.failing().or_else(|| {
            let seconds = self.config.stuck.as_ms() / 1000.0;
            stuck.then(|| format!("an operation has not come back for {seconds} s"))
        })
    }
}

/// Watches until the end.
pub(super) fn run<M: Medium>(shared: &Shared<M>) {
    let mut dirty_since: Option<Time> = None;
    let mut abandoned = BTreeSet::new();
    let mut backoff = shared.config.backoff.0;
    let mut desk = lock(&shared.desk);
    while !desk.stop {
        for answer in desk.late(shared.now()) {
            (shared.events)(answer);
        }
        let Some(nvme) = desk.nvme().cloned() else {
            dirty_since = None;
            (desk, backoff) = revive(shared, desk, &mut abandoned, backoff);
            continue;
        };
        if let Some(reason) = shared.trouble(&desk, &nvme) {
            abandoned.extend(nvme.abandoned());
            drop(nvme);
            backoff = shared.config.backoff.0;
            desk = quarantine(shared, desk, reason);
            continue;
        }
        let now = shared.now();
        let flush_at = nvme.is_dirty().then(|| *dirty_since.get_or_insert(now) + FLUSH_AFTER);
        if flush_at.is_none() {
            dirty_since = None;
        }
        if flush_at.is_some_and(|at| at <= now) {
            dirty_since = None;
            let run = desk.enter(now);
            drop(desk);
            // A failure shows in `failing`.
            let _ = nvme.flush();
            drop(nvme);
            desk = lock(&shared.desk);
            desk.running.remove(&run);
            continue;
        }
        drop(nvme);
        let wake = [desk.next_deadline(), flush_at].into_iter().flatten().min();
        desk = shared.sleep(desk, wake.unwrap_or(now + LOOK));
    }
    let nvme = desk.nvme().cloned();
    drop(desk);
    if let Some(nvme) = nvme.filter(|nvme| nvme.failing().is_none()) {
        let _ = nvme.flush();
    }
    shared.alarm.notify_all();
}

/// Takes the disk out of service: everything is answered, then it is said.
fn quarantine<'a, M: Medium>(
    shared: &'a Shared<M>,
    mut desk: DeskOf<'a, M>,
    reason: String,
) -> DeskOf<'a, M> {
    let until = shared.now() + shared.config.backoff.0;
    desk.serving = Serving::No { reason: reason.clone(), until };
    for answer in desk.fail_all() {
        (shared.events)(answer);
    }
    // Copies to DRAM take microseconds and are answered by those who make them.
    while desk.is_copying() && !desk.stop {
        desk = shared.sleep(desk, shared.now() + Span::millis(1));
    }
    shared.set_quarantined(&mut desk, reason);
    desk
}

/// Tries a failing disk again, when its time has come and nobody is in it any more.
fn revive<'a, M: Medium>(
    shared: &'a Shared<M>,
    mut desk: DeskOf<'a, M>,
    abandoned: &mut BTreeSet<super::super::FileId>,
    backoff: Span,
) -> (DeskOf<'a, M>, Span) {
    let Serving::No { until, .. } = desk.serving else { return (desk, backoff) };
    let now = shared.now();
    if until > now || !desk.running.is_empty() {
        let wake = if until > now { until } else { now + LOOK };
        return (shared.sleep(desk, wake), backoff);
    }
    let run = desk.enter(now);
    drop(desk);
    let mut options = shared.config.open.clone();
    options.abandoned.clone_from(abandoned);
    let opened = shared.open(&options);
    lock(&shared.desk).running.remove(&run);
    match opened {
        Ok((opened, io)) => {
            abandoned.clear();
            shared.serve(opened, io);
            (lock(&shared.desk), shared.config.backoff.0)
        }
        Err(error) => {
            let next = Span(backoff.0.saturating_mul(2).min(shared.config.backoff.1.0));
            desk = lock(&shared.desk);
            if let Serving::No { reason, until } = &mut desk.serving {
                *reason = error.to_string();
                *until = shared.now() + next;
            }
            (desk, next)
        }
    }
}
