//! A place in foreign bytes; nothing is read beyond their end.

use super::GgufError;

pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(super) fn position(&self) -> u64 {
        self.at as u64
    }

    pub(super) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn left(&self) -> u64 {
        self.len() - self.position()
    }

    /// Fails when `count` things of at least `size` bytes do not fit in what is left.
    pub(super) fn expect(&self, count: u64, size: u64, what: &str) -> Result<(), GgufError> {
        if count.saturating_mul(size) <= self.left() {
            return Ok(());
        }
        Err(GgufError::Truncated(format!(
            "{what}: {count} entries cannot fit in the {} bytes left",
            self.left()
        )))
    }

    /// The next `len` bytes; `what` they are is for the message.
    pub(super) fn take(&mut self, len: u64, what: &str) -> Result<&'a [u8], GgufError> {
        let end = usize::try_from(len).ok().and_then(|len| self.at.checked_add(len));
        let bytes = end.and_then(|end| self.bytes.get(self.at..end));
        let bytes = bytes.ok_or_else(|| GgufError::Truncated(what.to_owned()))?;
        self.at += bytes.len();
        Ok(bytes)
    }

    pub(super) fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], GgufError> {
        let bytes = self.take(N as u64, what)?;
        bytes.try_into().map_err(|_| GgufError::Truncated(what.to_owned()))
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32, GgufError> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64, GgufError> {
        self.array(what).map(u64::from_le_bytes)
    }
}
