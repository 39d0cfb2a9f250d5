//! The index in RocksDB, with bounded memory, log and size.

use super::disk::DiskError;
use super::index::{Batch, Index};
use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, DB, DBCompressionType, ErrorKind, IteratorMode,
    Options, ReadOptions, WriteBatch, WriteOptions,
};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const WRITE_BUFFER: usize = 16 << 20;
const WAL_MAX: u64 = 64 << 20;
const CACHE: usize = 32 << 20;
/// Commits between two looks at the size.
const LOOK_EVERY: u64 = 256;

/// An [`Index`] in a RocksDB of its own.
pub struct RocksIndex {
    db: DB,
    limit: u64,
    commits: AtomicU64,
    over: AtomicBool,
}

fn translate(error: &rocksdb::Error) -> DiskError {
    let text = error.to_string();
    if text.contains("lock file") || text.contains("lock hold by current process") {
        return DiskError::InUse;
    }
    if text.contains("No space left") {
        return DiskError::Full;
    }
    if text.contains("Read-only file system") {
        return DiskError::ReadOnly;
    }
    match error.kind() {
        ErrorKind::Corruption => DiskError::Damaged(text),
        // A file that its own manifest names is gone.
        _ if text.contains("No such file or directory") => DiskError::Damaged(text),
        _ => DiskError::Io(text),
    }
}

fn options() -> Options {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&Cache::new_lru_cache(CACHE));
    // The table's own index counts as cache, in small parts. No filter: absent keys are not asked
    // for.
    table.set_cache_index_and_filter_blocks(true);
    table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    table.set_pin_top_level_index_and_filter(true);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_write_buffer_size(WRITE_BUFFER);
    options.set_max_total_wal_size(WAL_MAX);
    options.set_max_background_jobs(2);
    options.set_max_open_files(64);
    options.set_keep_log_file_num(2);
    options.set_max_log_file_size(1 << 20);
    options.set_max_manifest_file_size(4 << 20);
    options
}

impl RocksIndex {
    /// Opens the index in `folder`, making it when absent. Beyond `limit` bytes (log and garbage
    /// included) it compacts, and refuses new records when that does not help.
    ///
    /// # Errors
    /// [`DiskError::Damaged`] when its files are damaged, [`DiskError::InUse`], or a failing disk.
    pub fn open(folder: &Path, limit: u64) -> Result<Self, DiskError> {
        std::fs::create_dir_all(folder)?;
        let db = DB::open(&options(), folder).map_err(|error| translate(&error))?;
        Ok(Self { db, limit, commits: AtomicU64::new(0), over: AtomicBool::new(false) })
    }

    /// Removes an index and all it holds.
    ///
    /// # Errors
    /// The folder cannot be removed.
    pub fn destroy(folder: &Path) -> Result<(), DiskError> {
        match std::fs::remove_dir_all(folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn bound(&self) {
        if self.commits.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOK_EVERY) {
            let mut over = self.bytes() > self.limit;
            if over {
                self.db.compact_range(None::<&[u8]>, None::<&[u8]>);
                over = self.bytes() > self.limit;
            }
            self.over.store(over, Ordering::Relaxed);
        }
    }
}

impl Index for RocksIndex {
    fn commit(&self, batch: &Batch, sync: bool) -> Result<(), DiskError> {
        let mut changes = WriteBatch::default();
        let mut puts = false;
        for (key, value) in batch.changes() {
            match value {
                Some(value) => changes.put(key, value),
                None => changes.delete(key),
            }
            puts |= value.is_some();
        }
        if puts && self.over.load(Ordering::Relaxed) {
            self.bound();
            return Err(DiskError::IndexFull);
        }
        let mut options = WriteOptions::default();
        options.set_sync(sync);
        self.db.write_opt(changes, &options).map_err(|error| translate(&error))?;
        self.bound();
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, DiskError> {
        self.db.get(key).map_err(|error| translate(&error))
    }

    fn scan(&self, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), DiskError> {
        let mut options = ReadOptions::default();
        options.fill_cache(false);
        options.set_readahead_size(4 << 20);
        for entry in self.db.iterator_opt(IteratorMode::Start, options) {
            let (key, value) = entry.map_err(|error| translate(&error))?;
            each(&key, &value);
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        let property = |name| self.db.property_int_value(name).ok().flatten().unwrap_or(0);
        property("rocksdb.total-sst-files-size") + property("rocksdb.cur-size-all-mem-tables")
    }
}

impl std::fmt::Debug for RocksIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RocksIndex({})", self.db.path().display())
    }
}
