//! A disk with a page cache that can lose what is not synced.

use super::super::disk::{Disk, DiskError, FileId};
use super::super::lock;
use super::random::Random;
use protocol::time::Span;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// What the disk does wrong. Chances are per operation, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskFaults {
    /// A write gives an error; any part of it may have happened.
    pub write_error: u32,
    /// A read gives an error.
    pub read_error: u32,
    /// A sync gives an error: what was not synced stays readable for a while, counts as clean, and
    /// never reaches the medium.
    pub sync_error: u32,
    /// A read ends early.
    pub short_read: u32,
    /// Broken promise: a write is acknowledged and dropped.
    pub lost_write: u32,
    /// Broken promise: a write lands elsewhere in its file.
    pub misdirected_write: u32,
    /// Broken promise: a bit of the medium changes, noticed or not.
    pub bit_flip: u32,
    /// Bytes that the disk holds.
    pub capacity: u64,
    /// The file system takes no writes.
    pub read_only: bool,
    /// Time of an operation, and per byte moved (in picoseconds).
    pub latency: Span,
    /// Picoseconds per byte.
    pub byte_ps: u64,
    /// Chance of an operation that takes `slow` more.
    pub slow_chance: u32,
    /// How much more.
    pub slow: Span,
    /// After so many more operations the machine is gone: everything fails until
    /// [`SimDisk::crash`]. The last write before is torn.
    pub crash_after: Option<u64>,
}

impl Default for DiskFaults {
    fn default() -> Self {
        Self {
            write_error: 0,
            read_error: 0,
            sync_error: 0,
            short_read: 0,
            lost_write: 0,
            misdirected_write: 0,
            bit_flip: 0,
            capacity: u64::MAX,
            read_only: false,
            latency: Span::ZERO,
            byte_ps: 0,
            slow_chance: 0,
            slow: Span::ZERO,
            crash_after: None,
        }
    }
}

#[derive(Default)]
struct File {
    length: u64,
    /// What is on the medium, by sector; absent sectors are zero.
    medium: BTreeMap<u64, Box<[u8]>>,
    /// Unsynced contents of a sector, oldest first: any of them, or none, may reach the medium.
    dirty: BTreeMap<u64, Vec<Box<[u8]>>>,
    /// Contents that a failed sync left in the cache, marked clean.
    ghosts: BTreeMap<u64, Box<[u8]>>,
}

struct Device {
    sector: usize,
    faults: DiskFaults,
    random: Random,
    files: BTreeMap<FileId, File>,
    spent: Span,
    torn: u64,
    gone: bool,
}

/// A simulated [`Disk`]; clones are the same device.
#[derive(Clone)]
pub struct SimDisk(Arc<Mutex<Device>>);

fn gone() -> DiskError {
    DiskError::Io("the machine is gone".to_owned())
}

impl SimDisk {
    /// An empty disk. Writes are torn between sectors of `sector` bytes (512 or 4096).
    pub fn new(seed: u64, sector: usize, faults: DiskFaults) -> Self {
        Self(Arc::new(Mutex::new(Device {
            sector: sector.max(1),
            faults,
            random: Random::new(seed),
            files: BTreeMap::new(),
            spent: Span::ZERO,
            torn: 0,
            gone: false,
        })))
    }

    /// Other faults from now on.
    pub fn set_faults(&self, faults: DiskFaults) {
        lock(&self.0).faults = faults;
    }

    /// Power is lost and comes back: of every unsynced sector the medium holds any of its contents
    /// since the last sync.
    pub fn crash(&self) {
        let mut device = lock(&self.0);
        let Device { files, random, torn, .. } = &mut *device;
        // Some crashes lose everything unsynced, some nothing, most some.
        let loss = random.below(10);
        for file in files.values_mut() {
            let (mut kept, mut lost) = (0u64, 0u64);
            for (number, mut versions) in std::mem::take(&mut file.dirty) {
                let choice = match loss {
                    0 => 0,
                    1 => versions.len() as u64,
                    _ => random.below(versions.len() as u64 + 1),
                };
                let index = usize::try_from(choice).unwrap_or(0).checked_sub(1);
                match index {
                    Some(index) if index < versions.len() => {
                        file.medium.insert(number, versions.swap_remove(index));
                        kept += 1;
                    }
                    _ => lost += 1,
                }
            }
            *torn += u64::from(kept > 0 && lost > 0);
            file.ghosts.clear();
        }
        device.gone = false;
        device.faults.crash_after = None;
    }

    /// Virtual time that operations have taken since the last call.
    pub fn take_spent(&self) -> Span {
        std::mem::take(&mut lock(&self.0).spent)
    }

    /// How often a crash kept a part of a file's unsynced sectors and lost a part.
    pub fn torn(&self) -> u64 {
        lock(&self.0).torn
    }

    /// Bytes of all files.
    pub fn used(&self) -> u64 {
        lock(&self.0).files.values().map(|file| file.length).sum()
    }

    /// Flips a bit of what is on the medium; false when nothing is there.
    pub fn flip_bit(&self) -> bool {
        lock(&self.0).flip_bit()
    }
}

impl Device {
    /// Begins an operation over `bytes`.
    fn operate(&mut self, bytes: u64) -> Result<(), DiskError> {
        if self.gone {
            return Err(gone());
        }
        if let Some(left) = &mut self.faults.crash_after {
            match left.checked_sub(1) {
                Some(rest) => *left = rest,
                None => {
                    self.gone = true;
                    return Err(gone());
                }
            }
        }
        let moved = Span(self.faults.byte_ps.saturating_mul(bytes) / 1000);
        self.spent = self.spent + self.faults.latency + moved;
        if self.random.chance(self.faults.slow_chance) {
            self.spent = self.spent + self.faults.slow;
        }
        if self.random.chance(self.faults.bit_flip) {
            self.flip_bit();
        }
        Ok(())
    }

    fn flip_bit(&mut self) -> bool {
        let sectors: u64 = self.files.values().map(|file| file.medium.len() as u64).sum();
        let chosen = usize::try_from(self.random.below(sectors)).unwrap_or(0);
        let bit = self.random.bits();
        let all = self.files.values_mut().flat_map(|file| file.medium.values_mut());
        let Some(sector) = all.into_iter().nth(chosen) else { return false };
        let at = usize::try_from(bit >> 3).unwrap_or(0).checked_rem(sector.len()).unwrap_or(0);
        if let Some(byte) = sector.get_mut(at) {
            *byte ^= 1 << (bit & 7);
        }
        true
    }

    fn put(&mut self, file: FileId, offset: u64, bytes: &[u8], keep: impl Fn(u64) -> bool) {
        let size = self.sector;
        let Some(file) = self.files.get_mut(&file) else { return };
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let number = at / size as u64;
            let within = usize::try_from(at % size as u64).unwrap_or(0);
            let count = (size - within).min(bytes.len() - done);
            if keep(number) {
                let mut sector = file.sector(number, size);
                let target = sector.get_mut(within..within + count);
                let source = bytes.get(done..done + count);
                if let (Some(target), Some(source)) = (target, source) {
                    target.copy_from_slice(source);
                }
                file.dirty.entry(number).or_default().push(sector);
            }
            done += count;
        }
    }
}

impl File {
    /// A sector as the cache shows it.
    fn sector(&self, number: u64, size: usize) -> Box<[u8]> {
        let dirty = self.dirty.get(&number).and_then(|versions| versions.last());
        let seen = dirty.or_else(|| self.ghosts.get(&number)).or_else(|| self.medium.get(&number));
        seen.cloned().unwrap_or_else(|| vec![0; size].into_boxed_slice())
    }
}

impl Disk for SimDisk {
    fn reserve(&self, file: FileId, bytes: u64) -> Result<(), DiskError> {
        let mut device = lock(&self.0);
        device.operate(0)?;
        if device.faults.read_only {
            return Err(DiskError::ReadOnly);
        }
        let before = device.files.get(&file).map_or(0, |file| file.length);
        let used: u64 = device.files.values().map(|file| file.length).sum();
        let more = bytes.saturating_sub(before);
        if used.saturating_add(more) > device.faults.capacity {
            return Err(DiskError::Full);
        }
        let file = device.files.entry(file).or_default();
        file.length = file.length.max(bytes);
        Ok(())
    }

    fn write_at(&self, file: FileId, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let mut device = lock(&self.0);
        if let Err(error) = device.operate(bytes.len() as u64) {
            // The operation during which power went: a part of it may have begun.
            if device.faults.crash_after == Some(0) {
                device.faults.crash_after = None;
                let mask = device.random.bits();
                device.put(file, offset, bytes, |number| mask >> (number & 63) & 1 == 1);
            }
            return Err(error);
        }
        if device.faults.read_only {
            return Err(DiskError::ReadOnly);
        }
        let length = device.files.get(&file).map_or(0, |file| file.length);
        if offset + bytes.len() as u64 > length {
            return Err(DiskError::Io(format!("write beyond the reserved length of {file}")));
        }
        let faults = device.faults;
        if device.random.chance(faults.write_error) {
            let mask = device.random.bits();
            device.put(file, offset, bytes, |number| mask >> (number & 63) & 1 == 1);
            return Err(DiskError::Io("write error".to_owned()));
        }
        if device.random.chance(faults.lost_write) {
            return Ok(());
        }
        let mut offset = offset;
        if device.random.chance(faults.misdirected_write) {
            let sector = device.sector as u64;
            let places = length.saturating_sub(bytes.len() as u64) / sector;
            offset = device.random.below(places + 1) * sector;
        }
        device.put(file, offset, bytes, |_| true);
        Ok(())
    }

    fn read_at(&self, file: FileId, offset: u64, bytes: &mut [u8]) -> Result<(), DiskError> {
        let mut device = lock(&self.0);
        device.operate(bytes.len() as u64)?;
        let faults = device.faults;
        if device.random.chance(faults.read_error) {
            return Err(DiskError::Io("read error".to_owned()));
        }
        if device.random.chance(faults.short_read) {
            return Err(DiskError::Io("the read ended early".to_owned()));
        }
        let size = device.sector;
        // Memory pressure drops pages that count as clean.
        let evict = device.random.chance(250_000);
        let Some(content) = device.files.get_mut(&file) else {
            return Err(DiskError::Short(file));
        };
        if offset + bytes.len() as u64 > content.length {
            return Err(DiskError::Short(file));
        }
        if evict {
            content.ghosts.clear();
        }
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let within = usize::try_from(at % size as u64).unwrap_or(0);
            let count = (size - within).min(bytes.len() - done);
            let sector = content.sector(at / size as u64, size);
            let source = sector.get(within..within + count);
            if let (Some(target), Some(source)) = (bytes.get_mut(done..done + count), source) {
                target.copy_from_slice(source);
            }
            done += count;
        }
        Ok(())
    }

    fn sync(&self, file: FileId) -> Result<(), DiskError> {
        let mut device = lock(&self.0);
        device.operate(0)?;
        let faults = device.faults;
        let failed = device.random.chance(faults.sync_error);
        let Some(content) = device.files.get_mut(&file) else { return Ok(()) };
        for (number, versions) in std::mem::take(&mut content.dirty) {
            let Some(last) = versions.into_iter().next_back() else { continue };
            if failed {
                content.ghosts.insert(number, last);
            } else {
                content.ghosts.remove(&number);
                content.medium.insert(number, last);
            }
        }
        if failed { Err(DiskError::Io("sync failed".to_owned())) } else { Ok(()) }
    }

    fn files(&self) -> Result<Vec<(FileId, u64)>, DiskError> {
        let mut device = lock(&self.0);
        device.operate(0)?;
        Ok(device.files.iter().map(|(id, file)| (*id, file.length)).collect())
    }

    fn shrink(&self, file: FileId, bytes: u64) -> Result<(), DiskError> {
        let mut device = lock(&self.0);
        device.operate(0)?;
        let sectors = bytes.div_ceil(device.sector as u64);
        if let Some(file) = device.files.get_mut(&file) {
            file.length = file.length.min(bytes);
            file.medium.split_off(&sectors);
            file.dirty.split_off(&sectors);
            file.ghosts.split_off(&sectors);
        }
        Ok(())
    }

    fn remove(&self, file: FileId) -> Result<(), DiskError> {
        let mut device = lock(&self.0);
        device.operate(0)?;
        device.files.remove(&file);
        Ok(())
    }
}

impl std::fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimDisk({} bytes)", self.used())
    }
}
