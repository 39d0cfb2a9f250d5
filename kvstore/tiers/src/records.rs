//! Durable records: small typed values under (kind, key), each with a version and a checksum.
//!
//! Every write is synced before it returns. A record whose checksum does not match is an error,
//! never a value.

use protocol::id::Incarnation;
use rocksdb::{DB, DBRecoveryMode, ErrorKind, IteratorMode, Options, WriteBatch, WriteOptions};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

#[cfg(test)]
mod tests;

/// Version of the envelope around each value.
const VERSION: u8 = 1;
/// Bytes of checksum in the envelope.
const CHECK: usize = 8;
/// Kind of the boot counter.
const BOOT: &str = "boot";

/// Why records cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    /// Another process has the folder.
    #[error("the data folder {} is in use by another dynamo-node", .0.display())]
    InUse(PathBuf),
    /// RocksDB cannot open the folder or work on it.
    #[error("the records in {}: {detail}", folder.display())]
    Storage {
        /// The folder.
        folder: PathBuf,
        /// RocksDB's words.
        detail: String,
    },
    /// The database itself is damaged.
    #[error("the records in {} are damaged ({detail}); move that folder away and join the cluster again (node.key is kept)", folder.display())]
    Corrupt {
        /// The folder.
        folder: PathBuf,
        /// RocksDB's words.
        detail: String,
    },
    /// A record is damaged.
    #[error("the record {kind} in {} is damaged", folder.display())]
    Damaged {
        /// The folder.
        folder: PathBuf,
        /// Kind of the record.
        kind: String,
    },
    /// A record was written by a later release.
    #[error("the record {kind} has version {version}, which this release does not know")]
    Newer {
        /// Kind of the record.
        kind: String,
        /// Its version.
        version: u8,
    },
}

/// The durable records of one node. One process at a time.
pub struct Records {
    db: DB,
    folder: PathBuf,
}

fn place(kind: &str, key: &[u8]) -> Vec<u8> {
    [kind.as_bytes(), &[0], key].concat()
}

/// What a failed open means. RocksDB reports its lock file with these words, from this process and
/// from others.
fn refused(dir: &Path, folder: PathBuf, error: &rocksdb::Error) -> RecordsError {
    let detail = error.to_string();
    if detail.contains("lock file") || detail.contains("lock hold by current process") {
        return RecordsError::InUse(dir.to_owned());
    }
    match error.kind() {
        ErrorKind::Corruption => RecordsError::Corrupt { folder, detail },
        _ => RecordsError::Storage { folder, detail },
    }
}

fn checksum(place: &[u8], value: &[u8]) -> [u8; CHECK] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(place.len() as u64).to_le_bytes()).update(place).update(value);
    let mut short = [0u8; CHECK];
    hasher.finalize_xof().fill(&mut short);
    short
}

impl Records {
    /// Opens `dir/records`, making it when absent.
    ///
    /// # Errors
    /// [`RecordsError::InUse`] when another process holds it, [`RecordsError::Storage`] otherwise.
    pub fn open(dir: &Path) -> Result<Self, RecordsError> {
        let folder = dir.join("records");
        // The folder holds secrets of the cluster.
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.map_err(|error| RecordsError::Storage {
            folder: folder.clone(),
            detail: error.to_string(),
        })?;
        let mut options = Options::default();
        options.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
        options.create_if_missing(true);
        options.set_keep_log_file_num(2);
        options.set_max_open_files(64);
        options.set_write_buffer_size(4 << 20);
        match DB::open(&options, &folder) {
            Ok(db) => Ok(Self { db, folder }),
            Err(error) => Err(refused(dir, folder, &error)),
        }
    }

    fn storage(&self, error: impl std::fmt::Display) -> RecordsError {
        RecordsError::Storage { folder: self.folder.clone(), detail: error.to_string() }
    }

    /// The value of a record, if there is one.
    ///
    /// # Errors
    /// A damaged or newer record, or a failing disk.
    pub fn get(&self, kind: &str, key: &[u8]) -> Result<Option<Vec<u8>>, RecordsError> {
        let place = place(kind, key);
        let Some(bytes) = self.db.get(&place).map_err(|e| self.storage(e))? else {
            return Ok(None);
        };
        let damaged =
            || RecordsError::Damaged { folder: self.folder.clone(), kind: kind.to_owned() };
        let (version, rest) = bytes.split_first().ok_or_else(damaged)?;
        if *version != VERSION {
            return Err(RecordsError::Newer { kind: kind.to_owned(), version: *version });
        }
        let (check, value) = rest.split_at_checked(CHECK).ok_or_else(damaged)?;
        if check != checksum(&place, value) {
            return Err(damaged());
        }
        Ok(Some(value.to_vec()))
    }

    /// Writes a record; durable when it returns.
    ///
    /// # Errors
    /// A full, read-only or failing disk; the record then has its old value or none.
    pub fn put(&self, kind: &str, key: &[u8], value: &[u8]) -> Result<(), RecordsError> {
        self.apply(kind, [(key.to_vec(), Some(value.to_vec()))])
    }

    /// Writes records, and removes those without a value, in this order and with one sync: all or
    /// none of it is durable when it returns.
    ///
    /// # Errors
    /// A full, read-only or failing disk; the records then have their old values or none.
    pub fn apply(
        &self,
        kind: &str,
        changes: impl IntoIterator<Item = (Vec<u8>, Option<Vec<u8>>)>,
    ) -> Result<(), RecordsError> {
        let mut batch = WriteBatch::default();
        for (key, value) in changes {
            let place = place(kind, &key);
            match value {
                Some(value) => {
                    let mut bytes = vec![VERSION];
                    bytes.extend(checksum(&place, &value));
                    bytes.extend(value);
                    batch.put(place, bytes);
                }
                None => batch.delete(place),
            }
        }
        self.db.write_opt(batch, &synced()).map_err(|e| self.storage(e))
    }

    /// Removes a record; durable when it returns.
    ///
    /// # Errors
    /// A full, read-only or failing disk.
    pub fn delete(&self, kind: &str, key: &[u8]) -> Result<(), RecordsError> {
        self.db.delete_opt(place(kind, key), &synced()).map_err(|e| self.storage(e))
    }

    /// Keys of all records of a kind, in order.
    ///
    /// # Errors
    /// A failing disk.
    pub fn keys(&self, kind: &str) -> Result<Vec<Vec<u8>>, RecordsError> {
        let first = place(kind, &[]);
        let mut keys = Vec::new();
        let mode = IteratorMode::From(&first, rocksdb::Direction::Forward);
        for entry in self.db.iterator(mode) {
            let (place, _) = entry.map_err(|e| self.storage(e))?;
            let Some(key) = place.strip_prefix(first.as_slice()) else { break };
            keys.push(key.to_vec());
        }
        Ok(keys)
    }

    fn boots(&self) -> Result<u64, RecordsError> {
        let bytes = self.get(BOOT, b"counter")?;
        let Some(bytes) = bytes else { return Ok(0) };
        let damaged =
            |_| RecordsError::Damaged { folder: self.folder.clone(), kind: BOOT.to_owned() };
        bytes.try_into().map(u64::from_le_bytes).map_err(damaged)
    }

    /// Begins a new life: the boot counter grows by one and is durable before this returns.
    ///
    /// # Errors
    /// A damaged counter, or a failing disk.
    pub fn next_incarnation(&self, nonce: u64) -> Result<Incarnation, RecordsError> {
        let counter = self.boots()?.saturating_add(1);
        self.put(BOOT, b"counter", &counter.to_le_bytes())?;
        Ok(Incarnation { counter, nonce })
    }

    /// Makes the next life come after `counter`, which others remember of this node.
    ///
    /// # Errors
    /// A damaged counter, or a failing disk.
    pub fn raise_incarnation(&self, counter: u64) -> Result<(), RecordsError> {
        let counter = self.boots()?.max(counter);
        self.put(BOOT, b"counter", &counter.to_le_bytes())
    }
}

fn synced() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.set_sync(true);
    options
}

impl std::fmt::Debug for Records {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Records({})", self.folder.display())
    }
}
