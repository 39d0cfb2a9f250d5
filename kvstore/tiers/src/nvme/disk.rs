//! What the tier needs of a disk.

use std::fmt;

/// A file of the tier: an extent by number, or the probe area.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId(pub u32);

impl FileId {
    /// A few sectors that are written and read to learn whether the disk works.
    pub const PROBE: Self = Self(u32::MAX);
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::PROBE => f.write_str("probe"),
            Self(number) => write!(f, "{number:06}.extent"),
        }
    }
}

/// Why a disk did not do what it was asked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DiskError {
    /// No room: the write did not happen. Make room, or lower the limit.
    #[error("the disk is full")]
    Full,
    /// The index is as large as it may become: nothing was changed.
    #[error("the index has reached its limit")]
    IndexFull,
    /// The file system takes no writes.
    #[error("the file system is read-only")]
    ReadOnly,
    /// The file ends before the bytes asked for.
    #[error("{0} is shorter than its records say")]
    Short(FileId),
    /// Another process has it.
    #[error("in use by another process")]
    InUse,
    /// The index' own files are damaged.
    #[error("damaged: {0}")]
    Damaged(String),
    /// Anything else, in the system's words. What was written may or may not be there.
    #[error("{0}")]
    Io(String),
}

impl From<std::io::Error> for DiskError {
    fn from(error: std::io::Error) -> Self {
        use std::io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        match error.kind() {
            StorageFull | QuotaExceeded => Self::Full,
            ReadOnlyFilesystem => Self::ReadOnly,
            _ => Self::Io(error.to_string()),
        }
    }
}

/// Files of fixed places. All calls block until done and may be made from several threads.
///
/// After a crash, of the bytes written since the last [`Disk::sync`] of their file that returned
/// success, any sectors may be there and any not.
pub trait Disk: Send + Sync {
    /// Makes `file` at least `bytes` long with room for every byte; durable when it returns. On an
    /// error the file is as long as before.
    fn reserve(&self, file: FileId, bytes: u64) -> Result<(), DiskError>;

    /// Writes all of `bytes` at `offset`, inside the reserved length.
    fn write_at(&self, file: FileId, offset: u64, bytes: &[u8]) -> Result<(), DiskError>;

    /// Fills all of `bytes` from `offset`.
    fn read_at(&self, file: FileId, offset: u64, bytes: &mut [u8]) -> Result<(), DiskError>;

    /// Makes all earlier writes to `file` durable. After an error nobody knows which of them are;
    /// asking again proves nothing (Linux marks pages clean that it could not write).
    fn sync(&self, file: FileId) -> Result<(), DiskError>;

    /// Length of every file there is.
    fn files(&self) -> Result<Vec<(FileId, u64)>, DiskError>;

    /// Cuts `file` to `bytes`; nothing when it is no longer than that.
    fn shrink(&self, file: FileId, bytes: u64) -> Result<(), DiskError>;

    /// Removes `file`; nothing when there is none.
    fn remove(&self, file: FileId) -> Result<(), DiskError>;
}
