//! How long a restart takes, and how many look-ups the index answers.

use super::{BenchError, NOW, namespace};
use crate::nvme::sim::{DiskFaults, SimDisk};
use crate::nvme::{Nvme, NvmeError, OpenOptions, RocksIndex, SECTOR, bench_records};
use serde::Serialize;
use std::path::Path;
use std::time::Instant;

/// Restart and look-ups with many small blocks.
#[derive(Clone, Copy, Default, Debug, Serialize)]
pub struct RestartFigures {
    /// Blocks in the index.
    pub records: u32,
    /// Seconds from a closed folder to all blocks found.
    pub seconds: f64,
    /// The same per million blocks.
    pub seconds_per_million: f64,
    /// Bytes of the index per block.
    pub index_bytes_per_record: f64,
    /// Random look-ups with their check, one thread.
    pub lookups_per_second: f64,
}

/// The index is a real one; the extents are simulated, for they would take 4 KiB a block.
pub(super) fn measure(dir: &Path, records: u32) -> Result<RestartFigures, BenchError> {
    let storage = namespace(SECTOR);
    let records = records.max(1);
    let limit = u64::from(records) * SECTOR + SECTOR;
    let options = OpenOptions::new(storage, limit);
    let disk = SimDisk::new(1, 4096, DiskFaults::default());
    let open = || -> Result<_, BenchError> {
        let index = RocksIndex::open(&dir.join("index"), u64::MAX).map_err(NvmeError::from)?;
        Ok(Nvme::open(disk.clone(), index, &options, NOW)?)
    };
    let nvme = open()?.nvme;
    let keys = bench_records::fill(&nvme, &options.storage, NOW).map_err(NvmeError::from)?;
    drop(nvme);
    let start = Instant::now();
    let opened = open()?;
    let seconds = start.elapsed().as_secs_f64();
    if opened.found.len() != records as usize {
        return Err(BenchError::Lost(format!("{} of {records} found", opened.found.len())));
    }
    let index_bytes = {
        use crate::nvme::Index;
        opened.nvme.index().bytes()
    };
    let start = Instant::now();
    let mut looked = 0u64;
    // A fixed stride that shares no factor with most counts visits records in a scattered order.
    for n in 0..keys.len().min(200_000) {
        let at = n.wrapping_mul(7_368_787) % keys.len();
        let Some(slot) = keys.get(at) else { break };
        if !bench_records::look_up(&opened.nvme, *slot).map_err(NvmeError::from)? {
            return Err(BenchError::Lost("a record is not in the index".to_owned()));
        }
        looked += 1;
    }
    Ok(RestartFigures {
        records,
        seconds,
        seconds_per_million: seconds * 1e6 / f64::from(records),
        index_bytes_per_record: index_bytes as f64 / f64::from(records),
        lookups_per_second: looked as f64 / start.elapsed().as_secs_f64().max(1e-9),
    })
}
