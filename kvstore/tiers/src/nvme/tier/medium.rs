//! What the tier runs on: a folder, or something simulated.

use super::super::disk::{Disk, DiskError};
use super::super::files::ExtentFiles;
use super::super::index::Index;
use super::super::open::NvmeError;
use super::super::record::VERSION;
use super::super::rocks::RocksIndex;
use super::lock;
use std::fs::{self, DirBuilder, File};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// How blocks are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoMode {
    /// Past the page cache.
    Direct,
    /// Through the page cache: the file system does not take O_DIRECT.
    Buffered,
}

/// A disk and an index, opened.
#[derive(Debug)]
pub struct Media<D, I> {
    /// The disk.
    pub disk: D,
    /// The index.
    pub index: I,
    /// How it writes.
    pub io: IoMode,
}

/// Something that holds a tier and can be opened again after it failed.
pub trait Medium: Send + Sync + 'static {
    /// Its disk.
    type Disk: Disk + 'static;
    /// Its index.
    type Index: Index + 'static;

    /// Opens it; all that was opened before is dropped by then.
    ///
    /// # Errors
    /// See [`NvmeError`].
    fn open(&self) -> Result<Media<Self::Disk, Self::Index>, NvmeError>;

    /// Throws the index away, which is damaged.
    ///
    /// # Errors
    /// A failing disk.
    fn reset(&self) -> Result<(), NvmeError>;
}

/// `DIR/nvme`: `lock`, `version`, `extents/` and `index/`.
#[derive(Debug)]
pub struct Folder {
    dir: PathBuf,
    index_limit: u64,
    /// Held as long as this lives.
    lock: Mutex<Option<File>>,
}

impl Folder {
    /// The folder `nvme` in `dir`; nothing is touched yet.
    pub fn new(dir: &Path, index_limit: u64) -> Self {
        Self { dir: dir.join("nvme"), index_limit, lock: Mutex::new(None) }
    }

    fn take(&self) -> Result<(), NvmeError> {
        let mut held = lock(&self.lock);
        if held.is_some() {
            return Ok(());
        }
        let io = |error: std::io::Error| NvmeError::Disk(error.into());
        // Claims name sessions and tenants.
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir).map_err(io)?;
        let file = File::create(self.dir.join("lock")).map_err(io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(NvmeError::InUse(self.dir.clone())),
            Err(fs::TryLockError::Error(error)) => return Err(io(error)),
        }
        *held = Some(file);
        Ok(())
    }

    /// The folder's version, looked at before RocksDB touches anything.
    fn check_version(&self) -> Result<(), NvmeError> {
        let path = self.dir.join("version");
        let io = |error: std::io::Error| NvmeError::Disk(error.into());
        match fs::read_to_string(&path) {
            // Whatever is not a number of ours or an earlier one is taken for a later release's.
            Ok(text) if !text.trim().is_empty() => match text.trim().parse::<u8>() {
                Ok(found) if found <= VERSION => Ok(()),
                _ => {
                    let found = text.trim().chars().take(20).collect();
                    Err(NvmeError::Newer { found, known: VERSION })
                }
            },
            // Not there, or a crash left it empty.
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io(error)),
            _ => {
                let mut file = File::create(&path).map_err(io)?;
                writeln!(file, "{VERSION}").map_err(io)?;
                file.sync_all().map_err(io)
            }
        }
    }
}

impl Medium for Folder {
    type Disk = ExtentFiles;
    type Index = RocksIndex;

    fn open(&self) -> Result<Media<ExtentFiles, RocksIndex>, NvmeError> {
        self.take()?;
        self.check_version()?;
        let disk = ExtentFiles::open(&self.dir.join("extents"))?;
        let index = match RocksIndex::open(&self.dir.join("index"), self.index_limit) {
            Err(DiskError::InUse) => return Err(NvmeError::InUse(self.dir.clone())),
            index => index?,
        };
        let io = if disk.is_direct() { IoMode::Direct } else { IoMode::Buffered };
        Ok(Media { disk, index, io })
    }

    fn reset(&self) -> Result<(), NvmeError> {
        Ok(RocksIndex::destroy(&self.dir.join("index"))?)
    }
}
