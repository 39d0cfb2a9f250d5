//! Starts the NVMe tier that the configuration asks for.

use crate::clock::Clock;
use crate::config::{Config, NvmeSize};
use crate::fault::Fault;
use kernels::Pool;
use protocol::block::StorageNamespace;
use protocol::disk::DiskEvent;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use tiers::nvme::{NvmeConfig, NvmeError, NvmeTier};
use tokio::sync::mpsc;

/// A running tier and what it tells. The channel needs no limit: each event answers an operation, of
/// which the block manager has a bounded number under way.
pub(super) type Started = (Arc<NvmeTier>, mpsc::UnboundedReceiver<DiskEvent>);

/// Opens the tier and reads its index; `None` when there is to be none. Slow, and blocking.
pub(super) fn start(
    config: &Config,
    storage: &StorageNamespace,
    dram: &Arc<Pool>,
    clock: Clock,
) -> Result<Option<Started>, Fault> {
    let settings = &config.nvme;
    let own = !settings.dir.as_os_str().is_empty();
    let dir = if own { &settings.dir } else { &config.node.data_dir };
    if settings.mib == NvmeSize::Mib(0) || dram.slots() == 0 {
        return Ok(None);
    }
    let unusable = |error: std::io::Error| {
        Fault::new(
            format!("cannot use {} for the NVMe tier: {error}", dir.display()),
            "check nvme.dir, or set nvme.mib to 0 to go without",
        )
    };
    std::fs::create_dir_all(dir).map_err(unusable)?;
    let limit = settings.mib.bytes(room(dir).map_err(unusable)?);
    let whole = rustix::fs::statvfs(dir).map_err(|error| unusable(error.into()))?;
    let whole = whole.f_blocks.saturating_mul(whole.f_frsize);
    if limit > whole {
        return Err(Fault::new(
            format!(
                "nvme.mib is {}, the disk of {} has {}",
                limit >> 20,
                dir.display(),
                whole >> 20
            ),
            "make nvme.mib smaller, or name a folder on another disk with nvme.dir",
        ));
    }
    if limit == 0 {
        tracing::info!(dir = %dir.display(), "no NVMe tier: too little of the disk is free");
        return Ok(None);
    }
    let now = Arc::new(move || clock.now());
    let tier = NvmeConfig::new(dir.clone(), storage.clone(), limit, now);
    let tier = NvmeConfig { threads: settings.threads, ..tier };
    let (told, events) = mpsc::unbounded_channel();
    let tell = Arc::new(move |event| drop(told.send(event)));
    match NvmeTier::start(tier, dram.clone(), tell) {
        Ok(tier) => Ok(Some((Arc::new(tier), events))),
        Err(error @ NvmeError::TooSmall { .. }) if settings.mib == NvmeSize::Auto => {
            tracing::info!(%error, "no NVMe tier");
            Ok(None)
        }
        Err(error) => {
            Err(Fault::new(error, "see above, or set nvme.mib to 0 to go without the NVMe tier"))
        }
    }
}

/// Bytes that are free on the disk of `dir`, or the tier's already.
fn room(dir: &Path) -> std::io::Result<u64> {
    let disk = rustix::fs::statvfs(dir)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize).saturating_add(used(&dir.join("nvme"))))
}

/// Bytes that a folder takes.
fn used(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| {
        let about = entry.metadata().ok()?;
        let own = about.blocks().saturating_mul(512);
        Some(if about.is_dir() { own.saturating_add(used(&entry.path())) } else { own })
    });
    sizes.fold(0, u64::saturating_add)
}
