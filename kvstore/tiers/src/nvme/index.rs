//! What the tier needs of an index.

use super::disk::DiskError;

/// Changes that happen together or not at all.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Batch {
    changes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Batch {
    /// Sets a record.
    pub fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.changes.push((key, Some(value)));
    }

    /// Removes a record; nothing when there is none.
    pub fn delete(&mut self, key: Vec<u8>) {
        self.changes.push((key, None));
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Number of changes.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// The changes in order: key, and its value or `None` for a removal.
    pub fn changes(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.changes.iter().map(|(key, value)| (key.as_slice(), value.as_deref()))
    }
}

/// An ordered map on disk. May be used from several threads.
///
/// After a crash it holds a prefix of the committed batches, at least up to the last one that was
/// committed with `sync` and returned success.
pub trait Index: Send + Sync {
    /// Applies a batch; with `sync` it and all earlier ones are durable when this returns. After an
    /// error it may or may not be applied, and the index must be opened again before it is used.
    fn commit(&self, batch: &Batch, sync: bool) -> Result<(), DiskError>;

    /// A record's value.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, DiskError>;

    /// Shows all records in order of their keys.
    fn scan(&self, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), DiskError>;

    /// Bytes that it takes on disk, as far as it knows.
    fn bytes(&self) -> u64;
}
