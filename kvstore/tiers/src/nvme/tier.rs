//! The tier on threads: [`DiskOp`]s in, [`DiskEvent`]s out.
//!
//! Workers read and write; the warden answers what is late, makes removals durable when nothing
//! else does, takes a failing disk out of service and brings it back. All they share is the
//! [`Desk`], under one lock that is held for moments only.

use super::core::{Counters, Nvme};
use super::lock;
use super::open::{NvmeError, OpenOptions, OpenReport, Opened};
use kernels::Pool;
use protocol::block::{SlotId, StorageNamespace};
use protocol::disk::{DiskBlock, DiskEvent, DiskOp, DiskRead};
use protocol::time::{Span, Time};
use protocol::trust::UnixTime;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

mod desk;
mod medium;
mod warden;
mod worker;

use desk::{Desk, Serving};
pub use medium::{Folder, IoMode, Media, Medium};

/// Receives what the tier tells. Called with a lock held: it must not block and must not call the
/// tier.
pub type Events = Arc<dyn Fn(DiskEvent) + Send + Sync>;

/// Gives the node's time, the one of the deadlines.
pub type Clock = Arc<dyn Fn() -> Time + Send + Sync>;

/// How to run the tier.
#[derive(Clone)]
pub struct NvmeConfig {
    /// The node's data folder; the tier takes `nvme` in it.
    pub dir: PathBuf,
    /// The form of the blocks, extents and limit.
    pub open: OpenOptions,
    /// Most bytes of the index, its log and garbage included.
    pub index_limit: u64,
    /// Worker threads; one of them is kept for reads when there are several.
    pub threads: usize,
    /// Most reads and most writes that wait; what comes beyond is answered as failed.
    pub queue: usize,
    /// The node's clock.
    pub clock: Clock,
    /// An operation that takes longer means a failing disk.
    pub stuck: Span,
    /// First and longest wait before a failing disk is tried again.
    pub backoff: (Span, Span),
}

impl NvmeConfig {
    /// The usual settings for `limit` bytes of blocks under `dir/nvme`.
    pub fn new(dir: PathBuf, storage: StorageNamespace, limit: u64, clock: Clock) -> Self {
        let open = OpenOptions::new(storage, limit);
        let records = limit.checked_div(open.storage.block_bytes.max(1)).unwrap_or(0);
        Self {
            dir,
            open,
            index_limit: (256 << 20) + records.saturating_mul(2 * super::record::RECORD_MAX),
            threads: 4,
            queue: 1024,
            clock,
            stuck: Span::secs(30),
            backoff: (Span::secs(1), Span::secs(60)),
        }
    }
}

impl fmt::Debug for NvmeConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NvmeConfig({}, {} bytes)", self.dir.display(), self.open.limit)
    }
}

/// Whether the tier serves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NvmeState {
    /// It does.
    Serving,
    /// The disk fails, why; it is tried again from time to time.
    Quarantined(String),
}

/// The tier for `status` and metrics.
#[derive(Clone, Debug)]
pub struct NvmeStatus {
    /// Whether it serves.
    pub state: NvmeState,
    /// How it writes.
    pub io: IoMode,
    /// Slots.
    pub slots: u32,
    /// Blocks held.
    pub blocks: u32,
    /// Bytes reserved in extents.
    pub data_bytes: u64,
    /// Most bytes of data.
    pub limit: u64,
    /// Bytes of the index.
    pub index_bytes: u64,
    /// Since the disk was last opened.
    pub counters: Counters,
    /// How often the disk was quarantined.
    pub quarantines: u64,
    /// What the last opening found.
    pub report: OpenReport,
}

/// What all threads share.
struct Shared<M: Medium> {
    config: NvmeConfig,
    medium: M,
    dram: Arc<Pool>,
    events: Events,
    desk: Mutex<Desk<Nvme<M::Disk, M::Index>>>,
    /// Work has come, or the end.
    work: Condvar,
    /// Written batches have come for the settler, or the end.
    staged: Condvar,
    /// The warden has something to look at.
    alarm: Condvar,
}

fn unix_now() -> UnixTime {
    UnixTime(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_secs()))
}

impl<M: Medium> Shared<M> {
    fn now(&self) -> Time {
        (self.config.clock)()
    }

    /// Opens disk and index; an index whose files are damaged is begun anew.
    #[allow(clippy::type_complexity)] // the opened tier and how it writes
    fn open(
        &self,
        options: &OpenOptions,
    ) -> Result<(Opened<M::Disk, M::Index>, IoMode), NvmeError> {
        let attempt = || {
            let media = self.medium.open()?;
            let opened = Nvme::open(media.disk, media.index, options, unix_now())?;
            Ok((opened, media.io))
        };
        match attempt() {
            Err(NvmeError::Disk(super::DiskError::Damaged(why))) => {
                self.medium.reset()?;
                let (mut opened, io) = attempt()?;
                opened.report.fresh = Some(format!("its index was damaged: {why}"));
                Ok((opened, io))
            }
            done => done,
        }
    }
}

/// The running tier. Dropping it ends its threads and makes removals and claims durable.
pub struct NvmeTier<M: Medium = Folder> {
    shared: Arc<Shared<M>>,
    threads: Vec<JoinHandle<()>>,
}

impl NvmeTier<Folder> {
    /// Opens or makes `config.dir/nvme` and starts the threads. Blocks while it reads the index
    /// (seconds per million blocks). Before it returns, `events` has been called once: with
    /// [`DiskEvent::Found`] (all blocks in one event, none in an empty one), or with
    /// [`DiskEvent::Quarantined`] when the disk does not work now.
    ///
    /// # Errors
    /// What a person must mend: a limit that is too small, a folder in use or of a later release.
    pub fn start(config: NvmeConfig, dram: Arc<Pool>, events: Events) -> Result<Self, NvmeError> {
        let folder = Folder::new(&config.dir, config.index_limit);
        Self::start_on(folder, config, dram, events)
    }
}

impl<M: Medium> NvmeTier<M> {
    /// [`NvmeTier::start`] on any medium.
    ///
    /// # Errors
    /// As there.
    pub fn start_on(
        medium: M,
        config: NvmeConfig,
        dram: Arc<Pool>,
        events: Events,
    ) -> Result<Self, NvmeError> {
        let layout =
            super::Layout::new(&config.open.storage, config.open.limit, config.open.extent_bytes)?;
        if (dram.slot_bytes() as u64) < layout.block_bytes {
            let slot = dram.slot_bytes() as u64;
            return Err(NvmeError::Pool { slot, block: layout.block_bytes });
        }
        let desk = Mutex::new(Desk::new(layout.slots));
        let (work, staged, alarm) = (Condvar::new(), Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { config, medium, dram, events, desk, work, staged, alarm });
        match shared.open(&shared.config.open) {
            Ok((opened, io)) => shared.serve(opened, io),
            Err(NvmeError::Disk(error)) => shared.begin_quarantined(error.to_string()),
            Err(error) => return Err(error),
        }
        let mut tier = Self { shared, threads: Vec::new() };
        tier.spawn("nvme-warden", warden::run)?;
        tier.spawn("nvme-settler", worker::settle)?;
        for _ in 0..tier.shared.config.threads.max(1) {
            tier.spawn("nvme", worker::run)?;
        }
        Ok(tier)
    }

    fn spawn(&mut self, name: &str, body: fn(&Shared<M>)) -> Result<(), NvmeError> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name(name.to_owned());
        let handle = thread.spawn(move || body(&shared));
        self.threads.push(handle.map_err(|error| NvmeError::System(error.to_string()))?);
        Ok(())
    }

    /// Takes an operation. Never blocks.
    pub fn submit(&self, op: DiskOp) {
        let shared = &*self.shared;
        let now = shared.now();
        let mut desk = lock(&shared.desk);
        match op {
            DiskOp::Write { op, from, to, block } => {
                if desk.add_write(op, desk::WriteOp { op, from, to, block }, shared.config.queue) {
                    shared.work.notify_one();
                } else {
                    (shared.events)(DiskEvent::Written { op, durable: false });
                }
            }
            DiskOp::Read { op, key, from, to, deadline } => {
                let read = desk::ReadOp { op, key, from, to, deadline };
                let result = match deadline <= now {
                    true => DiskRead::Late,
                    false if desk.add_read(read, shared.config.queue) => {
                        shared.work.notify_one();
                        shared.alarm.notify_one();
                        return;
                    }
                    false => DiskRead::Failed,
                };
                (shared.events)(DiskEvent::Read { op, result });
            }
            DiskOp::Forget { slot, key } => {
                if let Some(nvme) = desk.nvme() {
                    nvme.forget(slot, &key);
                    shared.alarm.notify_one();
                }
            }
            DiskOp::Keep { slot, key, claims } => {
                if let Some(nvme) = desk.nvme() {
                    nvme.keep(slot, &key, claims, unix_now());
                    shared.alarm.notify_one();
                }
            }
        }
    }

    /// Number of slots, fixed for the tier's life.
    pub fn slots(&self) -> u32 {
        lock(&self.shared.desk).slots
    }

    /// How it is.
    pub fn status(&self) -> NvmeStatus {
        use super::Index;
        let (nvme, mut status) = {
            let desk = lock(&self.shared.desk);
            let state = match &desk.serving {
                Serving::Yes(_) => NvmeState::Serving,
                Serving::No { reason, .. } => NvmeState::Quarantined(reason.clone()),
            };
            let status = NvmeStatus {
                state,
                io: desk.io,
                slots: desk.slots,
                blocks: 0,
                data_bytes: 0,
                limit: self.shared.config.open.limit,
                index_bytes: 0,
                counters: Counters::default(),
                quarantines: desk.quarantines,
                report: desk.report.clone(),
            };
            (desk.nvme().cloned(), status)
        };
        if let Some(nvme) = nvme {
            status.blocks = nvme.blocks();
            status.data_bytes = nvme.data_bytes();
            status.index_bytes = nvme.index().bytes();
            status.counters = nvme.counters();
        }
        status
    }
}

/// Longest wait at the end for a thread that a disk does not give back.
const END_WAIT: Duration = Duration::from_secs(5);

impl<M: Medium> Drop for NvmeTier<M> {
    fn drop(&mut self) {
        let mut desk = lock(&self.shared.desk);
        desk.stop = true;
        self.shared.work.notify_all();
        self.shared.staged.notify_all();
        self.shared.alarm.notify_all();
        let waited =
            self.shared.alarm.wait_timeout_while(desk, END_WAIT, |desk| !desk.running.is_empty());
        let (desk, waited) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
        drop(desk);
        // A thread that hangs in the disk is left to it.
        if !waited.timed_out() {
            for thread in self.threads.drain(..) {
                let _ = thread.join();
            }
        }
    }
}

impl<M: Medium> fmt::Debug for NvmeTier<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NvmeTier")
    }
}

/// What was found, as the event tells it.
fn found(blocks: Vec<(SlotId, DiskBlock)>) -> DiskEvent {
    DiskEvent::Found(blocks)
}

#[cfg(test)]
mod tests;
