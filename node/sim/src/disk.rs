//! The shell of the NVMe tier: the real tier's core over a simulated disk and index, one operation
//! after the other, in virtual time.

use crate::dice::Dice;
use crate::mail::{Mail, Timer};
use crate::scenario::{Faults, Scenario, ScenarioError};
use crate::world::World;
use kvstore::In;
use protocol::block::{BlockKey, SlotId, SlotRef};
use protocol::disk::{DiskBlock, DiskEvent, DiskOp, DiskRead};
use protocol::op::OpId;
use protocol::time::{Span, Time};
use protocol::trust::UnixTime;
use std::collections::BTreeSet;
use tiers::nvme::sim::{DiskFaults, IndexFaults, SimDisk, SimIndex};
use tiers::nvme::{FileId, Nvme, OpenOptions, ReadError, WriteJob};

/// A disk that was given up is tried again after so long.
const REVIVE_AFTER: Span = Span::secs(1);
/// Blocks told at once after a start.
const FOUND_AT_ONCE: usize = 256;
/// Sectors in which writes are torn.
const SECTOR: usize = 512;

/// A host's disk, and the tier that is open on it.
pub(crate) struct Medium {
    disk: SimDisk,
    index: SimIndex,
    nvme: Option<Nvme<SimDisk, SimIndex>>,
    abandoned: BTreeSet<FileId>,
    options: Option<OpenOptions>,
    /// No operation begins before this.
    free_at: Time,
    /// The next write is cut short by the loss of power.
    pub(crate) is_doomed: bool,
}

impl Medium {
    /// An empty disk.
    pub(crate) fn new(scenario: &Scenario, seed: u64) -> Result<Self, ScenarioError> {
        let storage = crate::host::spec(scenario, protocol::id::EngineId(0)).storage;
        let slots = scenario.cluster.nvme_slots;
        let options = match slots {
            0 => None,
            slots => Some(OpenOptions::new(storage.clone(), limit(slots, &storage)?)),
        };
        let mut dice = Dice::new(seed, "disk");
        Ok(Self {
            disk: SimDisk::new(dice.any(), SECTOR, DiskFaults::default()),
            index: SimIndex::new(dice.any(), IndexFaults::default()),
            nvme: None,
            abandoned: BTreeSet::new(),
            options,
            free_at: Time::ZERO,
            is_doomed: false,
        })
    }

    fn set_faults(&self, faults: &Faults, crash_after: Option<u64>, stormy: bool) {
        let parts = |share: f64| if stormy { (share * 1e6) as u32 } else { 0 };
        let full = u64::from(faults.disk_full_blocks) * 4096;
        let index = IndexFaults { sync: Span(50_000), ..IndexFaults::default() };
        self.index.set_faults(IndexFaults { crash_after: crash_after.map(|n| n / 3), ..index });
        self.disk.set_faults(DiskFaults {
            write_error: parts(faults.disk_errors),
            read_error: parts(faults.disk_errors),
            sync_error: parts(faults.disk_sync_errors),
            lost_write: parts(faults.disk_lost_writes),
            misdirected_write: parts(faults.disk_misdirected),
            capacity: if stormy && full > 0 { full } else { u64::MAX },
            latency: Span(40_000),
            byte_ps: 500,
            slow_chance: parts(faults.disk_slow),
            slow: Span::secs(1),
            crash_after,
            ..DiskFaults::default()
        });
    }

    /// Power is lost and comes back: what was not synced is gone, or not.
    pub(crate) fn lose_power(&mut self) {
        self.nvme = None;
        self.disk.crash();
        self.index.crash();
        self.is_doomed = false;
        self.free_at = Time::ZERO;
    }

    /// The process that had it open is gone; the disk did not lose power.
    pub(crate) fn close(&mut self) {
        self.nvme = None;
        self.is_doomed = false;
        self.free_at = Time::ZERO;
    }

    /// Flips a bit of what is on the disk.
    pub(crate) fn flip_bit(&self) -> bool {
        self.disk.flip_bit()
    }

    /// Bytes of its files and their limit.
    fn room(&self) -> (u64, u64) {
        (self.disk.used(), self.options.as_ref().map_or(0, |options| options.limit))
    }

    fn spent(&self) -> Span {
        self.disk.take_spent() + self.index.take_spent()
    }

    fn open(&mut self, now: UnixTime) -> Result<Vec<(SlotId, DiskBlock)>, String> {
        let Some(mut options) = self.options.clone() else { return Ok(Vec::new()) };
        options.abandoned.clone_from(&self.abandoned);
        let opened = Nvme::open(self.disk.clone(), self.index.clone(), &options, now);
        let opened = opened.map_err(|error| error.to_string())?;
        self.abandoned.clear();
        self.nvme = Some(opened.nvme);
        Ok(opened.found)
    }
}

/// The least limit in bytes under which a tier has so many slots.
fn limit(slots: u32, storage: &protocol::block::StorageNamespace) -> Result<u64, ScenarioError> {
    let stride = storage.block_bytes.next_multiple_of(4096);
    let limit = (0..64).map(|more| stride * u64::from(slots) + more * 4096);
    let fits = |limit: &u64| tiers::nvme::nvme_slots(*limit, storage).is_ok_and(|n| n >= slots);
    let wrong = || ScenarioError::Machines("the disk's limit cannot be found".into());
    limit.into_iter().find(fits).ok_or_else(wrong)
}

impl World {
    /// Opens the disk of a process that starts, or one that had been given up.
    pub(crate) fn open_disk(&mut self, h: usize) {
        if self.scenario.cluster.nvme_slots == 0 || !self.is_up(h) {
            return;
        }
        let (now, stormy) = (UnixTime(self.wall(h)), self.stormy);
        let Some(host) = self.hosts.get_mut(h) else { return };
        let medium = &mut host.medium;
        if medium.nvme.is_some() {
            return;
        }
        let trusted = medium.abandoned.is_empty();
        medium.set_faults(&self.scenario.faults, None, stormy);
        match medium.open(now) {
            Ok(found) => {
                medium.free_at = self.now + medium.spent();
                self.watch_found(h, &found, trusted);
                self.tell_found(h, found);
            }
            Err(_) => self.timer(h, REVIVE_AFTER, Timer::Revive),
        }
        self.watch_disk_room(h);
    }

    fn tell_found(&mut self, h: usize, mut found: Vec<(SlotId, DiskBlock)>) {
        loop {
            let rest = found.split_off(found.len().min(FOUND_AT_ONCE));
            let event = DiskEvent::Found(found);
            self.mail_after(h, Span(100_000), Mail::DiskAnswer(Box::new(event), None));
            if rest.is_empty() {
                return;
            }
            found = rest;
        }
    }

    /// An operation for the disk.
    pub(crate) fn disk_op(&mut self, h: usize, op: DiskOp) {
        let (now, stormy) = (UnixTime(self.wall(h)), self.stormy);
        self.watch_disk_op(h, &op);
        let skips = matches!(&op, DiskOp::Write { block, .. } if self.plant_skips_write(block));
        let Some(host) = self.hosts.get_mut(h) else { return };
        let medium = &mut host.medium;
        let crash_after = match (&op, medium.is_doomed) {
            (DiskOp::Write { .. }, true) => Some(self.fates.of("torn").below(6)),
            _ => None,
        };
        medium.set_faults(&self.scenario.faults, crash_after, stormy);
        match op {
            DiskOp::Write { op, from, to, block } => {
                let bytes = host.live.as_ref().and_then(|live| live.dram.reader(from).ok());
                let durable = match (&medium.nvme, bytes) {
                    (Some(_), _) if skips => true,
                    (Some(nvme), Some(bytes)) => {
                        let job = WriteJob { slot: to, block: &block, bytes };
                        nvme.write(&[job], now).into_iter().all(|written| written.is_ok())
                    }
                    _ => false,
                };
                if crash_after.is_some() {
                    return self.crash(h, true);
                }
                self.disk_answer(h, DiskEvent::Written { op, durable }, None);
            }
            DiskOp::Read { op, key, from, to, deadline } => {
                self.disk_read(h, (op, key), (from, to), deadline);
            }
            DiskOp::Forget { slot, key } => {
                if let Some(nvme) = &medium.nvme {
                    nvme.forget(slot, &key);
                }
            }
            DiskOp::Keep { slot, key, claims } => {
                if let Some(nvme) = &medium.nvme {
                    nvme.keep(slot, &key, claims, now);
                }
            }
        }
        self.watch_disk_room(h);
        self.mind_the_disk(h);
    }

    fn disk_read(
        &mut self,
        h: usize,
        (op, key): (OpId, BlockKey),
        (from, to): (SlotId, SlotRef),
        deadline: Time,
    ) {
        let mut bytes = vec![0; self.scenario.cluster.block_bytes as usize];
        let Some(host) = self.hosts.get_mut(h) else { return };
        let medium = &mut host.medium;
        let result = medium.nvme.as_ref().map(|nvme| nvme.read(from, &key, &mut bytes));
        let result = match result {
            Some(Ok(signed)) => DiskRead::Verified(Box::new(signed)),
            Some(Err(ReadError::Corrupt)) => DiskRead::Corrupt,
            Some(Err(ReadError::Failed(_))) | None => DiskRead::Failed,
        };
        let ready = self.now.max(medium.free_at) + medium.spent();
        medium.free_at = ready;
        if ready > deadline {
            let late = DiskEvent::Read { op, result: DiskRead::Late };
            let answer = Mail::DiskAnswer(Box::new(late), None);
            return self.mail_after(h, deadline.since(self.now), answer);
        }
        self.disk_answer(h, DiskEvent::Read { op, result }, Some((to, bytes)));
    }

    /// Answers when the disk has had its time.
    fn disk_answer(&mut self, h: usize, event: DiskEvent, bytes: Option<(SlotRef, Vec<u8>)>) {
        let now = self.now;
        let Some(host) = self.hosts.get_mut(h) else { return };
        let spent = host.medium.spent();
        let ready = now.max(host.medium.free_at) + spent;
        host.medium.free_at = ready;
        self.mail_after(h, ready.since(now), Mail::DiskAnswer(Box::new(event), bytes));
    }

    pub(crate) fn disk_answers(
        &mut self,
        h: usize,
        event: DiskEvent,
        bytes: Option<(SlotRef, Vec<u8>)>,
    ) {
        let mut event = event;
        if let (DiskEvent::Read { result, .. }, Some((to, bytes))) = (&mut event, bytes)
            && matches!(result, DiskRead::Verified(_))
        {
            let Some(live) = self.live(h) else { return };
            match live.dram.writer(to) {
                Ok(place) => {
                    place.copy_from_slice(&bytes);
                    self.watch_write(h, to);
                }
                Err(_) => *result = DiskRead::Failed,
            }
        }
        self.watch_disk_event(h, &event);
        self.mail(h, Mail::Store(Box::new(In::Disk(event))));
    }

    /// Gives up a failing disk, as the tier's warden does, and tries it again later.
    fn mind_the_disk(&mut self, h: usize) {
        let Some(host) = self.hosts.get_mut(h) else { return };
        let Some(nvme) = &host.medium.nvme else { return };
        let Some(reason) = nvme.failing() else { return };
        host.medium.abandoned = nvme.abandoned();
        host.medium.nvme = None;
        self.mail(h, Mail::DiskAnswer(Box::new(DiskEvent::Quarantined { reason }), None));
        self.timer(h, REVIVE_AFTER, Timer::Revive);
    }

    /// Makes removals and claims durable, now and then.
    pub(crate) fn flush_disk(&mut self, h: usize) {
        let Some(host) = self.hosts.get_mut(h) else { return };
        if let Some(nvme) = host.medium.nvme.as_ref().filter(|nvme| nvme.is_dirty()) {
            let _failed = nvme.flush();
            self.mind_the_disk(h);
        }
    }

    fn watch_disk_room(&mut self, h: usize) {
        let Some((used, limit)) = self.hosts.get(h).map(|host| host.medium.room()) else { return };
        self.watch.disk_room(h, used + self.planted.hidden_bytes(), limit);
    }
}
