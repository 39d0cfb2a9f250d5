//! Memory that O_DIRECT accepts, from the pool of `kernels` (its slots are page-aligned).

use super::lock;
use kernels::{Pool, SlotWriter};
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Mutex;

/// Bytes that begin at a page.
#[derive(Debug)]
pub struct AlignedBuffer {
    slot: SlotWriter,
    length: usize,
}

impl AlignedBuffer {
    /// `length` bytes, rounded up to whole pages, all zero.
    ///
    /// # Errors
    /// The system gives no memory.
    pub fn new(length: usize) -> io::Result<Self> {
        let length = Pool::stride(length.max(1));
        let pool = Pool::new(length, 1)?;
        let slot = pool.writer(0, 0).map_err(io::Error::other)?;
        Ok(Self { slot, length })
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.slot
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.slot
    }
}

/// Buffers that are used again; as many as threads copy at once.
#[derive(Debug, Default)]
pub(super) struct Bounce(Mutex<Vec<AlignedBuffer>>);

impl Bounce {
    /// Runs `work` on a buffer of at least `length` bytes.
    pub(super) fn with<T>(
        &self,
        length: usize,
        work: impl FnOnce(&mut [u8]) -> io::Result<T>,
    ) -> io::Result<T> {
        let kept = lock(&self.0).pop().filter(|buffer| buffer.length >= length);
        let mut buffer = kept.map_or_else(|| AlignedBuffer::new(length), Ok)?;
        let result = work(&mut buffer);
        lock(&self.0).push(buffer);
        result
    }
}
