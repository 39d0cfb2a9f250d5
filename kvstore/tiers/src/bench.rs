//! `bench store`: the NVMe tier beside `fio` and RocksDB's BlobDB on the same file system, in turns.

use crate::nvme::{
    AlignedBuffer, ExtentFiles, Nvme, NvmeError, OpenOptions, RocksIndex, SECTOR, WriteJob,
};
use protocol::block::{BlockKey, ContentDigest, SignedDigest, SlotId, StorageNamespace};
use protocol::disk::DiskBlock;
use protocol::hash::PrefixHash;
use protocol::id::Incarnation;
use protocol::sign::Keypair;
use protocol::trust::UnixTime;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Instant;

mod blob;
mod fio;
mod restart;

pub use restart::RestartFigures;

/// What to measure. Everything made is removed at the end.
#[derive(Clone, Debug)]
pub struct StoreBench {
    /// A folder that is made for it, on the file system to measure.
    pub dir: PathBuf,
    /// Bytes of the values, one arm each.
    pub sizes: Vec<u64>,
    /// Payload written per size and round.
    pub bytes: u64,
    /// Rounds; in each all arms take their turn. The first writes fresh files, the others write
    /// them again.
    pub rounds: u32,
    /// Threads of each arm.
    pub threads: usize,
    /// Records of the restart and look-up figures.
    pub records: u32,
}

impl StoreBench {
    /// Under a minute and 2 GiB on a usual machine.
    pub fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            sizes: vec![64 << 10, 1 << 20, 4 << 20],
            bytes: 256 << 20,
            rounds: 3,
            threads: 4,
            records: 1_000_000,
        }
    }
}

/// Rates in GB/s (10⁹ bytes), medians over the rounds.
#[derive(Clone, Copy, Default, Debug, Serialize)]
pub struct Rates {
    /// Writing, until durable.
    pub put: f64,
    /// Reading in random order; verified where the arm verifies.
    pub get: f64,
    /// CPU seconds per GB written, all threads.
    pub put_cpu_s: f64,
    /// CPU seconds per GB read.
    pub get_cpu_s: f64,
    /// Bytes that the kernel sent to the disk for this process, per byte written.
    pub disk_amplification: f64,
}

/// One size of values.
#[derive(Clone, Debug, Serialize)]
pub struct SizeFigures {
    /// Bytes of a value.
    pub value_bytes: u64,
    /// The tier: data, fdatasync, index; reads with digest and signature.
    pub tier: Rates,
    /// `fio` with O_DIRECT, as many jobs, one fsync at the end; absent when it is not installed.
    pub fio: Option<Rates>,
    /// RocksDB BlobDB with a synced batch as large as the tier's; reads with digest.
    pub blobdb: Rates,
    /// GB/s of `fio` writing with an fdatasync as often as the tier has one.
    pub fio_synced_put: Option<f64>,
    /// Tier ÷ fio with as many syncs.
    pub put_vs_fio_synced: Option<f64>,
    /// Tier ÷ fio.
    pub put_vs_fio: Option<f64>,
    /// Tier ÷ fio.
    pub get_vs_fio: Option<f64>,
    /// Bytes written to extents ÷ payload.
    pub data_amplification: f64,
}

/// The report.
#[derive(Clone, Debug, Serialize)]
pub struct StoreReport {
    /// O_DIRECT was possible.
    pub direct: bool,
    /// Threads of each arm.
    pub threads: usize,
    /// By size.
    pub sizes: Vec<SizeFigures>,
    /// Restart and look-ups.
    pub restart: RestartFigures,
    /// What could not be measured, and why.
    pub notes: Vec<String>,
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The tier.
    #[error(transparent)]
    Tier(#[from] NvmeError),
    /// The system.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// BlobDB.
    #[error("BlobDB: {0}")]
    Blob(#[from] rocksdb::Error),
    /// A block was not stored or came back wrong.
    #[error("a block was lost: {0}")]
    Lost(String),
}

/// Blocks of one batch: what a worker writes before it syncs.
const BATCH_BYTES: u64 = 16 << 20;
const NOW: UnixTime = UnixTime(1_800_000_000);

fn namespace(block_bytes: u64) -> StorageNamespace {
    let (kv_dtype, layout) = ("bench".to_owned(), "bench".to_owned());
    let (parts, groups) = (Vec::new(), Vec::new());
    StorageNamespace { block_tokens: 16, kv_dtype, layout, block_bytes, parts, groups }
}

/// One thread's part: a batch of contents and the names under which they are written.
struct Part {
    buffer: AlignedBuffer,
    value: usize,
    batch: usize,
    blocks: Vec<(SlotId, DiskBlock)>,
}

impl Part {
    fn new(
        value: u64,
        first: u32,
        count: u32,
        storage: &StorageNamespace,
    ) -> std::io::Result<Self> {
        let batch = (BATCH_BYTES / value).clamp(1, 256).min(u64::from(count.max(1))) as usize;
        let value = value as usize;
        let mut buffer = AlignedBuffer::new(batch * value)?;
        blake3::Hasher::new().update(&first.to_le_bytes()).finalize_xof().fill(&mut buffer);
        let digests: Vec<_> = buffer.chunks(value).map(ContentDigest::of).collect();
        let keys = Keypair::from_seed(&[1; 32]);
        let life = Incarnation { counter: 1, nonce: 1 };
        let storage = storage.id();
        let blocks = (0..count).map(|n| {
            let slot = first + n;
            let prefix = PrefixHash(u128::from(slot).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060));
            let key = BlockKey { prefix, storage };
            let signed = SignedDigest::sign(&keys, life, key, digests[n as usize % batch]);
            let block = DiskBlock { key, parent: None, tokens: 16, signed, claims: Vec::new() };
            (SlotId(slot), block)
        });
        let blocks = blocks.collect();
        Ok(Self { buffer, value, batch, blocks })
    }

    fn batches(&self) -> impl Iterator<Item = Vec<WriteJob<'_>>> {
        self.blocks.chunks(self.batch).map(|blocks| {
            let values = self.buffer.chunks(self.value);
            let pairs = blocks.iter().zip(values);
            pairs.map(|((slot, block), bytes)| WriteJob { slot: *slot, block, bytes }).collect()
        })
    }

    /// The blocks in an order that the disk cannot guess.
    fn shuffled(&self) -> Vec<&(SlotId, DiskBlock)> {
        let mut blocks: Vec<_> = self.blocks.iter().collect();
        blocks.sort_by_key(|(slot, _)| blake3::hash(&slot.0.to_le_bytes()).as_bytes()[0]);
        blocks
    }
}

/// What a stretch of work took.
struct Cost {
    seconds: f64,
    cpu: f64,
    disk: u64,
}

/// CPU seconds of this process, all threads.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: f64 = fields.skip(11).take(2).filter_map(|f| f.parse::<f64>().ok()).sum();
    ticks / 100.0
}

/// Bytes that this process caused to be sent to a disk.
fn disk_bytes() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// Runs `work` on every part, one thread each.
fn together<T: Sync, E: Send>(
    parts: &[T],
    work: impl Fn(&T) -> Result<(), E> + Sync,
) -> Result<Cost, E> {
    let (cpu, disk, start) = (cpu_seconds(), disk_bytes(), Instant::now());
    std::thread::scope(|scope| {
        let threads: Vec<_> = parts.iter().map(|part| scope.spawn(|| work(part))).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    let seconds = start.elapsed().as_secs_f64().max(1e-9);
    Ok(Cost { seconds, cpu: cpu_seconds() - cpu, disk: disk_bytes().saturating_sub(disk) })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Medians of several rounds.
fn rates(puts: &[Cost], gets: &[Cost], bytes: f64) -> Rates {
    let over = |costs: &[Cost], f: &dyn Fn(&Cost) -> f64| median(costs.iter().map(f).collect());
    Rates {
        put: over(puts, &|cost| bytes / 1e9 / cost.seconds),
        get: over(gets, &|cost| bytes / 1e9 / cost.seconds),
        put_cpu_s: over(puts, &|cost| cost.cpu / (bytes / 1e9)),
        get_cpu_s: over(gets, &|cost| cost.cpu / (bytes / 1e9)),
        disk_amplification: over(puts, &|cost| cost.disk as f64 / bytes),
    }
}

type Tier = Nvme<ExtentFiles, RocksIndex>;

fn open_tier(dir: &Path, storage: &StorageNamespace, limit: u64) -> Result<Tier, BenchError> {
    let disk = ExtentFiles::open(&dir.join("extents")).map_err(NvmeError::from)?;
    let index = RocksIndex::open(&dir.join("index"), u64::MAX).map_err(NvmeError::from)?;
    Ok(Nvme::open(disk, index, &OpenOptions::new(storage.clone(), limit), NOW)?.nvme)
}

fn put(tier: &Tier, part: &Part) -> Result<(), BenchError> {
    // As the tier does it: another thread settles, so that the disk is never idle.
    std::thread::scope(|scope| {
        let (sender, staged) = std::sync::mpsc::sync_channel(2);
        let settler = scope.spawn(move || {
            for batch in staged {
                for result in tier.settle(batch) {
                    result.map_err(|error| BenchError::Lost(error.to_string()))?;
                }
            }
            Ok(())
        });
        for jobs in part.batches() {
            if sender.send(tier.stage(&jobs, NOW)).is_err() {
                break;
            }
        }
        drop(sender);
        settler.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn get(tier: &Tier, part: &Part) -> Result<(), BenchError> {
    let mut buffer = AlignedBuffer::new(part.value)?;
    for (slot, block) in part.shuffled() {
        let read = tier.read(*slot, &block.key, &mut buffer);
        read.map_err(|error| BenchError::Lost(error.to_string()))?;
    }
    Ok(())
}

fn one_size(
    bench: &StoreBench,
    value: u64,
    dir: &Path,
    notes: &mut Vec<String>,
) -> Result<SizeFigures, BenchError> {
    let storage = namespace(value);
    let threads = bench.threads.max(1) as u64;
    let per_thread = u32::try_from((bench.bytes / value / threads).max(1)).unwrap_or(u32::MAX);
    let parts = (0..threads as u32)
        .map(|thread| Part::new(value, thread * per_thread, per_thread, &storage))
        .collect::<Result<Vec<_>, _>>()?;
    let bytes = u64::from(per_thread) * threads * value;
    let stride = value.next_multiple_of(SECTOR);
    let limit = u64::from(per_thread) * threads * stride + SECTOR;
    let tier = open_tier(&dir.join("tier"), &storage, limit)?;
    let blob = blob::Blob::open(&dir.join("blob"))?;
    let fio = fio::Fio::find(dir, value, bytes / threads, bench.threads, notes);
    let (mut puts, mut gets) = (Vec::new(), Vec::new());
    let (mut blob_puts, mut blob_gets) = (Vec::new(), Vec::new());
    let (mut fio_puts, mut fio_synced, mut fio_gets) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..bench.rounds.max(1) {
        if round > 0 {
            for (slot, block) in parts.iter().flat_map(|part| &part.blocks) {
                tier.forget(*slot, &block.key);
            }
        }
        puts.push(together(&parts, |part| put(&tier, part))?);
        gets.push(together(&parts, |part| get(&tier, part))?);
        if let Some(fio) = &fio {
            let batch = parts.first().map_or(0, |part| part.batch);
            fio_puts.extend(fio.run("write", 0, notes));
            fio_synced.extend(fio.run("write", batch, notes));
            fio_gets.extend(fio.run("randread", 0, notes));
        }
        blob_puts.push(together(&parts, |part| blob.put(part))?);
        blob_gets.push(together(&parts, |part| blob.get(part))?);
    }
    let counters = tier.counters();
    let tier = rates(&puts, &gets, bytes as f64);
    let fio = (!fio_puts.is_empty() && !fio_gets.is_empty()).then(|| Rates {
        put: median(fio_puts),
        get: median(fio_gets),
        ..Rates::default()
    });
    let fio_synced_put = (!fio_synced.is_empty()).then(|| median(fio_synced));
    Ok(SizeFigures {
        value_bytes: value,
        fio_synced_put,
        put_vs_fio_synced: fio_synced_put.map(|fio| tier.put / fio),
        tier,
        fio,
        blobdb: rates(&blob_puts, &blob_gets, bytes as f64),
        put_vs_fio: fio.map(|fio| tier.put / fio.put),
        get_vs_fio: fio.map(|fio| tier.get / fio.get),
        data_amplification: counters.data_bytes as f64 / counters.written_bytes.max(1) as f64,
    })
}

/// Runs the benchmark; `say` is told what is being done.
///
/// # Errors
/// See [`BenchError`].
pub fn bench_store(bench: &StoreBench, say: impl Fn(&str)) -> Result<StoreReport, BenchError> {
    std::fs::create_dir(&bench.dir)?;
    let result = run(bench, &bench.dir, &say);
    std::fs::remove_dir_all(&bench.dir)?;
    result
}

fn run(bench: &StoreBench, dir: &Path, say: &impl Fn(&str)) -> Result<StoreReport, BenchError> {
    let mut notes = Vec::new();
    let direct = ExtentFiles::open(&dir.join("probe")).map_err(NvmeError::from)?.is_direct();
    let mut sizes = Vec::new();
    for value in &bench.sizes {
        say(&format!("values of {} KiB", value >> 10));
        let folder = dir.join(format!("size-{value}"));
        std::fs::create_dir_all(&folder)?;
        sizes.push(one_size(bench, (*value).max(1), &folder, &mut notes)?);
        std::fs::remove_dir_all(&folder)?;
    }
    say(&format!("restart with {} records", bench.records));
    let restart = restart::measure(&dir.join("restart"), bench.records)?;
    notes.push("io_uring: not built, not measured".to_owned());
    notes.sort();
    notes.dedup();
    Ok(StoreReport { direct, threads: bench.threads, sizes, restart, notes })
}

impl StoreReport {
    /// The report for people.
    pub fn table(&self) -> String {
        use std::fmt::Write;
        let mut text = String::new();
        let mode = if self.direct { "O_DIRECT" } else { "buffered + fdatasync" };
        let _ = writeln!(text, "{mode}, {} threads; GB/s (CPU s per GB)", self.threads);
        let _ = writeln!(
            text,
            "{:>9} {:>14} {:>14} {:>9} {:>9} {:>9} {:>14} {:>14} {:>8}",
            "value",
            "put",
            "get",
            "fio put",
            "+ syncs",
            "fio get",
            "blob put",
            "blob get",
            "w. amp."
        );
        let pair = |rate: f64, cpu: f64| format!("{rate:.2} ({cpu:.2})");
        for size in &self.sizes {
            let fio = |pick: fn(&Rates) -> f64| {
                size.fio.as_ref().map_or("-".to_owned(), |fio| format!("{:.2}", pick(fio)))
            };
            let _ = writeln!(
                text,
                "{:>5} KiB {:>14} {:>14} {:>9} {:>9} {:>9} {:>14} {:>14} {:>8.3}",
                size.value_bytes >> 10,
                pair(size.tier.put, size.tier.put_cpu_s),
                pair(size.tier.get, size.tier.get_cpu_s),
                fio(|fio| fio.put),
                size.fio_synced_put.map_or("-".to_owned(), |rate| format!("{rate:.2}")),
                fio(|fio| fio.get),
                pair(size.blobdb.put, size.blobdb.put_cpu_s),
                pair(size.blobdb.get, size.blobdb.get_cpu_s),
                size.data_amplification,
            );
        }
        let r = &self.restart;
        let _ = writeln!(
            text,
            "restart: {:.2} s for {} blocks ({:.2} s per million), index {:.0} B per block, {:.0} look-ups/s on one thread",
            r.seconds,
            r.records,
            r.seconds_per_million,
            r.index_bytes_per_record,
            r.lookups_per_second
        );
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        text
    }
}

#[cfg(test)]
mod tests;
