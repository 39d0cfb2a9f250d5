//! What waits, what runs, who has been answered.

use super::super::core::Staged;
use super::super::open::OpenReport;
use super::medium::IoMode;
use protocol::block::{BlockKey, SlotId, SlotRef};
use protocol::disk::{DiskBlock, DiskEvent, DiskRead};
use protocol::op::OpId;
use protocol::time::Time;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// A write that waits.
pub(super) struct WriteOp {
    pub(super) op: OpId,
    pub(super) from: SlotRef,
    pub(super) to: SlotId,
    pub(super) block: Box<DiskBlock>,
}

/// A read that waits.
#[derive(Clone, Copy)]
pub(super) struct ReadOp {
    pub(super) op: OpId,
    pub(super) key: BlockKey,
    pub(super) from: SlotId,
    pub(super) to: SlotRef,
    pub(super) deadline: Time,
}

/// Writes whose bytes the disk has.
pub(super) struct StagedBatch<N> {
    pub(super) nvme: Arc<N>,
    /// Its place in [`Desk::running`], which it keeps until it is durable.
    pub(super) run: u64,
    /// Each operation, and whether the stage's next answer is its own (else it has failed).
    pub(super) ops: Vec<(OpId, bool)>,
    pub(super) staged: Staged,
}

/// An operation without an answer.
enum Pending {
    Write,
    Read {
        deadline: Time,
        /// Its bytes are being copied to DRAM: nobody else answers it.
        claimed: bool,
    },
}

pub(super) enum Serving<N> {
    Yes(Arc<N>),
    No {
        reason: String,
        /// Not tried again before.
        until: Time,
    },
}

pub(super) struct Desk<N> {
    pub(super) serving: Serving<N>,
    pub(super) io: IoMode,
    pub(super) slots: u32,
    pub(super) report: OpenReport,
    pub(super) quarantines: u64,
    pub(super) reads: VecDeque<ReadOp>,
    pub(super) writes: VecDeque<WriteOp>,
    pending: BTreeMap<OpId, Pending>,
    deadlines: BTreeSet<(Time, OpId)>,
    /// Threads inside the disk, by number, since when.
    pub(super) running: BTreeMap<u64, Time>,
    /// Batches that wait to be made durable.
    pub(super) staged: VecDeque<StagedBatch<N>>,
    /// Threads that write.
    pub(super) writers: usize,
    next_run: u64,
    pub(super) stop: bool,
}

impl<N> Desk<N> {
    pub(super) fn new(slots: u32) -> Self {
        Self {
            serving: Serving::No { reason: "not opened yet".to_owned(), until: Time::ZERO },
            io: IoMode::Buffered,
            slots,
            report: OpenReport::default(),
            quarantines: 0,
            reads: VecDeque::new(),
            writes: VecDeque::new(),
            pending: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            running: BTreeMap::new(),
            staged: VecDeque::new(),
            writers: 0,
            next_run: 0,
            stop: false,
        }
    }

    pub(super) fn nvme(&self) -> Option<&Arc<N>> {
        match &self.serving {
            Serving::Yes(nvme) => Some(nvme),
            Serving::No { .. } => None,
        }
    }

    /// False when it cannot be taken.
    pub(super) fn add_write(&mut self, op: OpId, write: WriteOp, limit: usize) -> bool {
        let taken = self.nvme().is_some() && self.writes.len() < limit && !self.stop;
        if taken && self.pending.insert(op, Pending::Write).is_none() {
            self.writes.push_back(write);
        }
        taken
    }

    /// False when it cannot be taken.
    pub(super) fn add_read(&mut self, read: ReadOp, limit: usize) -> bool {
        let taken = self.nvme().is_some() && self.reads.len() < limit && !self.stop;
        let pending = Pending::Read { deadline: read.deadline, claimed: false };
        if taken && self.pending.insert(read.op, pending).is_none() {
            self.deadlines.insert((read.deadline, read.op));
            self.reads.push_back(read);
        }
        taken
    }

    /// A thread goes into the disk.
    pub(super) fn enter(&mut self, now: Time) -> u64 {
        self.next_run += 1;
        self.running.insert(self.next_run, now);
        self.next_run
    }

    /// Whether a read still waits for an answer; then nobody but the caller gives it.
    pub(super) fn claim(&mut self, op: OpId) -> bool {
        match self.pending.get_mut(&op) {
            Some(Pending::Read { claimed, .. }) if !*claimed => {
                *claimed = true;
                true
            }
            _ => false,
        }
    }

    /// Ends an operation; false when it has been answered.
    pub(super) fn end(&mut self, op: OpId) -> bool {
        let ended = self.pending.remove(&op);
        if let Some(Pending::Read { deadline, .. }) = &ended {
            self.deadlines.remove(&(*deadline, op));
        }
        ended.is_some()
    }

    /// Whether a read is still of use.
    pub(super) fn is_pending(&self, op: OpId) -> bool {
        self.pending.contains_key(&op)
    }

    /// Whether bytes are being copied to DRAM.
    pub(super) fn is_copying(&self) -> bool {
        let claimed = |pending: &Pending| matches!(pending, Pending::Read { claimed: true, .. });
        self.pending.values().any(claimed)
    }

    /// Answers of the reads whose time is over.
    pub(super) fn late(&mut self, now: Time) -> Vec<DiskEvent> {
        let mut answers = Vec::new();
        while let Some((deadline, op)) = self.deadlines.first().copied() {
            if deadline > now {
                break;
            }
            self.deadlines.remove(&(deadline, op));
            if let Some(Pending::Read { claimed: false, .. }) = self.pending.get(&op) {
                self.pending.remove(&op);
                answers.push(DiskEvent::Read { op, result: DiskRead::Late });
            }
        }
        if !answers.is_empty() {
            let pending = &self.pending;
            self.reads.retain(|read| pending.contains_key(&read.op));
        }
        answers
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Answers everything that waits or runs as failed, but what is being copied.
    pub(super) fn fail_all(&mut self) -> Vec<DiskEvent> {
        self.reads.clear();
        self.writes.clear();
        let mut answers = Vec::new();
        self.pending.retain(|op, pending| {
            let op = *op;
            match pending {
                Pending::Read { claimed: true, .. } => return true,
                Pending::Read { deadline, .. } => {
                    self.deadlines.remove(&(*deadline, op));
                    answers.push(DiskEvent::Read { op, result: DiskRead::Failed });
                }
                Pending::Write => answers.push(DiskEvent::Written { op, durable: false }),
            }
            false
        });
        answers
    }
}
