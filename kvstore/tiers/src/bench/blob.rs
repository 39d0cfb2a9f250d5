//! The comparison arm: values inside RocksDB, in blob files.

use super::{BenchError, Part};
use protocol::block::ContentDigest;
use rocksdb::{DB, DBCompressionType, Options, WriteBatch, WriteOptions};
use std::path::Path;

pub(super) struct Blob(DB);

impl Blob {
    pub(super) fn open(dir: &Path) -> Result<Self, BenchError> {
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_enable_blob_files(true);
        options.set_min_blob_size(4096);
        options.set_blob_compression_type(DBCompressionType::None);
        options.set_enable_blob_gc(true);
        options.set_use_direct_reads(true);
        options.set_use_direct_io_for_flush_and_compaction(true);
        options.set_max_background_jobs(4);
        Ok(Self(DB::open(&options, dir)?))
    }

    pub(super) fn put(&self, part: &Part) -> Result<(), BenchError> {
        let mut options = WriteOptions::default();
        options.set_sync(true);
        for jobs in part.batches() {
            let mut batch = WriteBatch::default();
            for job in &jobs {
                batch.put(job.block.key.prefix.0.to_be_bytes(), job.bytes);
            }
            self.0.write_opt(batch, &options)?;
        }
        Ok(())
    }

    pub(super) fn get(&self, part: &Part) -> Result<(), BenchError> {
        for (_, block) in part.shuffled() {
            let value = self.0.get_pinned(block.key.prefix.0.to_be_bytes())?;
            if value.is_none_or(|value| ContentDigest::of(&value) != block.signed.digest) {
                return Err(BenchError::Lost("BlobDB gave other bytes".to_owned()));
            }
        }
        Ok(())
    }
}
