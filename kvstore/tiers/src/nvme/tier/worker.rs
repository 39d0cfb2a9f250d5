//! A worker: reads first, then writes in batches. The settler makes durable what workers have
//! written, so that the disk writes one batch while it syncs another.

use super::super::bounce::AlignedBuffer;
use super::super::core::{Nvme, ReadError, Staged, WriteJob};
use super::desk::{Desk, ReadOp, StagedBatch, WriteOp};
use super::medium::Medium;
use super::{Shared, lock, unix_now};
use protocol::disk::{DiskEvent, DiskRead};
use protocol::op::OpId;
use std::sync::{Arc, PoisonError};

/// Most blocks, and most bytes, that one thread writes before they are synced.
const BATCH_BLOCKS: usize = 256;
const BATCH_BYTES: u64 = 16 << 20;

/// Most batches that wait to be synced: then no more are written.
const STAGED_MAX: usize = 8;

type NvmeOf<M> = Nvme<<M as Medium>::Disk, <M as Medium>::Index>;

enum Work {
    Read(ReadOp),
    Write(Vec<WriteOp>),
}

/// Works until the end.
pub(super) fn run<M: Medium>(shared: &Shared<M>) {
    let mut buffer = None;
    while let Some((nvme, run, work)) = next(shared) {
        match work {
            Work::Read(read) => {
                perform_read(shared, &nvme, &read, &mut buffer);
                let failing = nvme.failing().is_some();
                leave(shared, nvme, run, failing);
            }
            Work::Write(writes) => {
                let (ops, staged) = stage(shared, &nvme, &writes);
                let mut desk = lock(&shared.desk);
                desk.writers -= 1;
                desk.staged.push_back(StagedBatch { nvme, run, ops, staged });
                shared.staged.notify_one();
                shared.work.notify_one();
            }
        }
    }
    shared.staged.notify_all();
}

/// Settles what workers have staged, until all of them have gone.
pub(super) fn settle<M: Medium>(shared: &Shared<M>) {
    let mut desk = lock(&shared.desk);
    loop {
        let Some(batch) = desk.staged.pop_front() else {
            if desk.stop && desk.writers == 0 {
                return;
            }
            desk = shared.staged.wait(desk).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        drop(desk);
        let StagedBatch { nvme, run, ops, staged } = batch;
        let mut results = nvme.settle(staged).into_iter();
        let failing = nvme.failing().is_some();
        {
            let mut desk = lock(&shared.desk);
            for (op, staged) in ops {
                let durable = staged && results.next().is_some_and(|result| result.is_ok());
                if desk.end(op) {
                    (shared.events)(DiskEvent::Written { op, durable });
                }
            }
        }
        leave(shared, nvme, run, failing);
        shared.work.notify_one();
        desk = lock(&shared.desk);
    }
}

/// A thread comes out of the disk.
fn leave<M: Medium>(shared: &Shared<M>, nvme: Arc<NvmeOf<M>>, run: u64, failing: bool) {
    // Before the desk says that nobody is in the disk, nobody is.
    drop(nvme);
    let mut desk = lock(&shared.desk);
    desk.running.remove(&run);
    if failing || desk.nvme().is_none() || desk.stop {
        shared.alarm.notify_all();
    }
}

/// Waits for work; `None` at the end.
fn next<M: Medium>(shared: &Shared<M>) -> Option<(Arc<NvmeOf<M>>, u64, Work)> {
    let mut desk = lock(&shared.desk);
    loop {
        if desk.stop {
            return None;
        }
        if let Some(nvme) = desk.nvme().cloned()
            && let Some(work) = take(&mut desk, &shared.config, nvme.layout().stride)
        {
            let run = desk.enter(shared.now());
            return Some((nvme, run, work));
        }
        desk = shared.work.wait(desk).unwrap_or_else(PoisonError::into_inner);
    }
}

fn take<N>(desk: &mut Desk<N>, config: &super::NvmeConfig, stride: u64) -> Option<Work> {
    if let Some(read) = desk.reads.pop_front() {
        return Some(Work::Read(read));
    }
    let writers_max = config.threads.saturating_sub(1).max(1);
    let behind = desk.staged.len() >= STAGED_MAX;
    if desk.writes.is_empty() || desk.writers >= writers_max || behind {
        return None;
    }
    let by_bytes = usize::try_from(BATCH_BYTES.checked_div(stride).unwrap_or(1)).unwrap_or(1);
    let share = desk.writes.len().div_ceil(writers_max);
    let count = share.min(by_bytes.max(1)).min(BATCH_BLOCKS);
    desk.writers += 1;
    Some(Work::Write(desk.writes.drain(..count).collect()))
}

fn perform_read<M: Medium>(
    shared: &Shared<M>,
    nvme: &NvmeOf<M>,
    read: &ReadOp,
    buffer: &mut Option<AlignedBuffer>,
) {
    if !lock(&shared.desk).is_pending(read.op) {
        return;
    }
    // Not into DRAM: a read that is late must not write there, and no unverified byte either.
    let stride = usize::try_from(nvme.layout().stride).unwrap_or(usize::MAX);
    if buffer.is_none() {
        *buffer = AlignedBuffer::new(stride).ok();
    }
    let done = match buffer {
        Some(buffer) => nvme.read(read.from, &read.key, buffer).map(|signed| (signed, &*buffer)),
        None => return answer(shared, read, DiskRead::Failed),
    };
    let result = match done {
        Err(ReadError::Corrupt) => DiskRead::Corrupt,
        Err(ReadError::Failed(_)) => DiskRead::Failed,
        Ok((signed, bytes)) => {
            if !lock(&shared.desk).claim(read.op) {
                return;
            }
            let length = usize::try_from(nvme.layout().block_bytes).unwrap_or(usize::MAX);
            let copied =
                shared.dram.writer(read.to.slot.0, read.to.generation.0).map(|mut slot| {
                    if let (Some(target), Some(source)) =
                        (slot.get_mut(..length), bytes.get(..length))
                    {
                        target.copy_from_slice(source);
                    }
                });
            match copied {
                Ok(()) => DiskRead::Verified(Box::new(signed)),
                // The slot has another life by now.
                Err(_) => DiskRead::Failed,
            }
        }
    };
    answer(shared, read, result);
}

fn answer<M: Medium>(shared: &Shared<M>, read: &ReadOp, result: DiskRead) {
    let mut desk = lock(&shared.desk);
    if desk.end(read.op) {
        (shared.events)(DiskEvent::Read { op: read.op, result });
    }
}

/// Gives blocks to the disk; each operation with whether it was staged.
fn stage<M: Medium>(
    shared: &Shared<M>,
    nvme: &NvmeOf<M>,
    writes: &[WriteOp],
) -> (Vec<(OpId, bool)>, Staged) {
    let length = usize::try_from(nvme.layout().block_bytes).unwrap_or(usize::MAX);
    // A source in another life than promised is not written.
    let sources: Vec<_> = writes
        .iter()
        .map(|write| shared.dram.reader(write.from.slot.0, write.from.generation.0).ok())
        .collect();
    let jobs: Vec<WriteJob<'_>> = writes
        .iter()
        .zip(&sources)
        .filter_map(|(write, source)| {
            let bytes = source.as_ref()?.get(..length)?;
            Some(WriteJob { slot: write.to, block: &write.block, bytes })
        })
        .collect();
    let staged = nvme.stage(&jobs, unix_now());
    let ops = writes.iter().zip(&sources).map(|(write, source)| (write.op, source.is_some()));
    (ops.collect(), staged)
}
