//! DRAM slots: one memfd-backed region, cut into equal slots, with checked access.

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::OwnedFd;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Slots begin at multiples of this many bytes.
pub const PAGE: usize = 4096;

/// Why a slot cannot be read or written now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PoolError {
    /// The slot belongs to another generation: the caller's lease has ended.
    #[error("slot {slot} is in generation {current}, not {asked}: the lease has ended")]
    Stale {
        /// Which slot.
        slot: u32,
        /// The slot's generation.
        current: u32,
        /// The caller's generation.
        asked: u32,
    },
    /// Someone writes the slot, or reads it while the caller wants to write. Try later.
    #[error("slot {0} is in use")]
    Busy(u32),
    /// The pool has no such slot.
    #[error("slot {0} is outside the pool")]
    OutOfRange(u32),
}

/// DRAM slots of equal size in one page-aligned region of shared memory.
///
/// The address space is reserved at once and the memory taken page by page when it is first
/// touched, so a pool costs what it holds. Each slot knows the generation of the last writer it
/// admitted and who is in it: any number of readers of that generation, or one writer. A writer
/// with an older generation is refused, so a write that comes late cannot touch the slot's next
/// life.
pub struct Pool {
    /// Address of the region; mapped until drop.
    map: MmapRaw,
    /// Keeps the memory's descriptor, through which local engines will map it.
    _memory: OwnedFd,
    slot_bytes: usize,
    stride: usize,
    states: Box<[AtomicU64]>,
}

/// State word of a slot: generation in the low half, users in the high half.
#[derive(Clone, Copy)]
struct State(u64);

impl State {
    /// Number of users that means "one writer".
    const WRITER: u32 = u32::MAX;
    const ONE_USER: u64 = 1 << 32;

    fn new(users: u32, generation: u32) -> Self {
        Self((u64::from(users) << 32) | u64::from(generation))
    }

    fn users(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn generation(self) -> u32 {
        self.0 as u32
    }
}

impl Pool {
    /// Reserves `slots` slots of `slot_bytes` bytes, all zero and in generation 0.
    ///
    /// Errors: no slots or no bytes (`InvalidInput`), or what the system answers when it cannot
    /// give so much address space.
    pub fn new(slot_bytes: usize, slots: u32) -> io::Result<Arc<Self>> {
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
        if slot_bytes == 0 || slots == 0 {
            return Err(invalid("a pool needs at least one slot of at least one byte"));
        }
        let stride = Self::stride(slot_bytes);
        let total = stride
            .checked_mul(slots as usize)
            .filter(|total| *total <= isize::MAX as usize)
            .ok_or_else(|| invalid("a pool of this size has no address space"))?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = memfd_create("dynamo-node-pool", flags)?;
        ftruncate(&memory, total as u64)?;
        // Nobody can shorten the memory under the mapping (that would end us with SIGBUS).
        fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW)?;
        let map = MmapOptions::new().len(total).map_raw(&memory)?;
        let states = (0..slots).map(|_| AtomicU64::new(State::new(0, 0).0)).collect();
        Ok(Arc::new(Self { map, _memory: memory, slot_bytes, stride, states }))
    }

    /// Bytes of memory that one slot of `slot_bytes` takes: rounded up to whole pages.
    pub fn stride(slot_bytes: usize) -> usize {
        slot_bytes.checked_next_multiple_of(PAGE).unwrap_or(usize::MAX)
    }

    /// Usable bytes of each slot.
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Number of slots.
    pub fn slots(&self) -> u32 {
        self.states.len() as u32
    }

    /// Takes a slot for writing, alone, and moves it to `generation`, which must not be older than
    /// the slot's.
    pub fn writer(self: &Arc<Self>, slot: u32, generation: u32) -> Result<SlotWriter, PoolError> {
        self.enter(slot, |state| {
            if generation < state.generation() {
                return Err(state.stale(slot, generation));
            }
            match state.users() {
                0 => Ok(State::new(State::WRITER, generation)),
                _ => Err(PoolError::Busy(slot)),
            }
        })?;
        Ok(SlotWriter { pool: Arc::clone(self), slot })
    }

    /// Takes a slot for reading, together with other readers; `generation` must be the slot's.
    pub fn reader(self: &Arc<Self>, slot: u32, generation: u32) -> Result<SlotReader, PoolError> {
        self.enter(slot, |state| {
            if generation != state.generation() {
                return Err(state.stale(slot, generation));
            }
            match state.users() {
                users if users >= State::WRITER - 1 => Err(PoolError::Busy(slot)),
                users => Ok(State::new(users + 1, generation)),
            }
        })?;
        Ok(SlotReader { pool: Arc::clone(self), slot })
    }

    fn state(&self, slot: u32) -> Option<&AtomicU64> {
        self.states.get(slot as usize)
    }

    fn enter(
        &self,
        slot: u32,
        next: impl Fn(State) -> Result<State, PoolError>,
    ) -> Result<(), PoolError> {
        let word = self.state(slot).ok_or(PoolError::OutOfRange(slot))?;
        let mut seen = State(word.load(Ordering::Relaxed));
        loop {
            let wanted = next(seen)?.0;
            // Acquire: what the last user of the slot did is visible to the next.
            let swap =
                word.compare_exchange_weak(seen.0, wanted, Ordering::Acquire, Ordering::Relaxed);
            match swap {
                Ok(_) => return Ok(()),
                Err(now) => seen = State(now),
            }
        }
    }

    /// Address of a slot that the caller has entered, which proves it to be inside the pool.
    fn address(&self, slot: u32) -> *mut u8 {
        // SAFETY: slot < slots, and slots × stride is the length of the mapping.
        unsafe { self.map.as_mut_ptr().add(slot as usize * self.stride) }
    }
}

impl State {
    fn stale(self, slot: u32, asked: u32) -> PoolError {
        PoolError::Stale { slot, current: self.generation(), asked }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} × {} bytes)", self.states.len(), self.slot_bytes)
    }
}

/// One slot, taken for writing; given back when dropped. Its bytes are what was there before.
pub struct SlotWriter {
    pool: Arc<Pool>,
    slot: u32,
}

/// One slot, taken for reading; given back when dropped. Its bytes do not change meanwhile.
pub struct SlotReader {
    pool: Arc<Pool>,
    slot: u32,
}

impl Deref for SlotWriter {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the slot lies inside the mapping, which `pool` keeps; all bytes are initialised
        // (zero pages); the state word lets nobody else in while this writer lives.
        unsafe { slice::from_raw_parts(self.pool.address(self.slot), self.pool.slot_bytes) }
    }
}

impl DerefMut for SlotWriter {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` makes the borrow exclusive.
        unsafe { slice::from_raw_parts_mut(self.pool.address(self.slot), self.pool.slot_bytes) }
    }
}

impl Deref for SlotReader {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the slot lies inside the mapping, which `pool` keeps; all bytes are initialised;
        // the state word lets only readers in while this one lives.
        unsafe { slice::from_raw_parts(self.pool.address(self.slot), self.pool.slot_bytes) }
    }
}

impl AsRef<[u8]> for SlotReader {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for SlotWriter {
    fn drop(&mut self) {
        if let Some(word) = self.pool.state(self.slot) {
            let generation = State(word.load(Ordering::Relaxed)).generation();
            word.store(State::new(0, generation).0, Ordering::Release);
        }
    }
}

impl Drop for SlotReader {
    fn drop(&mut self) {
        if let Some(word) = self.pool.state(self.slot) {
            word.fetch_sub(State::ONE_USER, Ordering::Release);
        }
    }
}

impl fmt::Debug for SlotWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlotWriter({})", self.slot)
    }
}

impl fmt::Debug for SlotReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlotReader({})", self.slot)
    }
}

#[cfg(test)]
mod tests;
