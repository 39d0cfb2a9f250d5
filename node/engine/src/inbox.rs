//! The way into the engine's thread: jobs and operations, taken in order.

#[cfg(test)]
mod tests;

use crate::api::Job;
use crate::outlet::Outlet;
use crate::worker::Pulse;
use protocol::op::EngineOp;
use protocol::prompt::{Refusal, StreamItem};
use protocol::time::Span;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Jobs that may wait to be taken or run; beyond it submitters are told to come again.
pub(crate) const JOBS_MAX: usize = 1024;

/// What a submitter is told when too many jobs wait.
const RETRY_AFTER: Span = Span::secs(1);

/// What the thread is asked to do.
pub(crate) enum Command {
    Job(Box<Job>),
    Op(EngineOp),
}

impl Command {
    /// Answers every job among `commands` with `refusal`; the streams come back to be flushed.
    pub(crate) fn refuse_all(
        commands: VecDeque<Self>,
        refusal: &Refusal,
    ) -> impl Iterator<Item = Outlet> {
        commands.into_iter().filter_map(move |command| {
            let Self::Job(job) = command else { return None };
            let mut outlet = Outlet::new(job.sink);
            outlet.send(StreamItem::Failed(refusal.clone()));
            Some(outlet)
        })
    }
}

/// A queue that never makes its writers wait. Jobs are bounded by [`JOBS_MAX`]; operations by the
/// block manager, which has at most a few under way for each slot and lease.
#[derive(Default)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    filled: Condvar,
}

#[derive(Default)]
struct State {
    commands: VecDeque<Command>,
    /// Jobs here or waiting in the engine.
    jobs: usize,
    /// Something happened beside the engine's thread.
    roused: bool,
    /// Set when the engine's owner left, or the engine died.
    closed: bool,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing here panics while it holds the lock; a poisoned state would still be whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a job; `Err` gives it back when too many wait (`true`) or nobody listens (`false`).
    pub(crate) fn submit(&self, job: Box<Job>) -> Result<(), (Box<Job>, bool)> {
        let mut state = self.lock();
        if state.closed {
            return Err((job, false));
        }
        if state.jobs >= JOBS_MAX {
            return Err((job, true));
        }
        state.jobs += 1;
        state.commands.push_back(Command::Job(job));
        drop(state);
        self.filled.notify_one();
        Ok(())
    }

    /// Adds a job, or says why not: too many wait, or the engine whose `pulse` it is has gone.
    pub(crate) fn offer(&self, job: Box<Job>, pulse: &Pulse) -> Result<(), Refusal> {
        self.submit(job).map_err(|(_job, full)| match full {
            true => Refusal::Busy { retry_after: RETRY_AFTER },
            false => pulse.died().map_or(Refusal::Gone, Refusal::Failed),
        })
    }

    /// Adds an operation; dropped when nobody listens.
    pub(crate) fn perform(&self, op: EngineOp) {
        let mut state = self.lock();
        if !state.closed {
            state.commands.push_back(Command::Op(op));
            drop(state);
            self.filled.notify_one();
        }
    }

    /// Ends a wait: something happened beside the engine's thread.
    pub(crate) fn rouse(&self) {
        self.lock().roused = true;
        self.filled.notify_one();
    }

    /// Tells that a job left the engine's waiting room.
    pub(crate) fn job_left(&self) {
        let mut state = self.lock();
        state.jobs = state.jobs.saturating_sub(1);
    }

    /// No more is taken; what lies here stays for [`Self::take`].
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_one();
    }

    /// Moves all commands to `into`; `false` when closed.
    pub(crate) fn take(&self, into: &mut VecDeque<Command>) -> bool {
        let mut state = self.lock();
        into.append(&mut state.commands);
        state.roused = false;
        !state.closed
    }

    /// Waits until something is here or happened, or `until`.
    pub(crate) fn wait(&self, until: Option<Instant>) {
        let mut state = self.lock();
        while state.commands.is_empty() && !state.closed && !state.roused {
            let Some(until) = until else {
                state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.filled.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
