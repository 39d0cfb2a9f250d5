//! Extent files of a real disk: preallocated, O_DIRECT where the file system takes it.

use super::bounce::Bounce;
use super::disk::{Disk, DiskError, FileId};
use super::layout::SECTOR;
use super::lock;
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const ALIGN: usize = SECTOR as usize;

/// Extent files in one folder.
#[derive(Debug)]
pub struct ExtentFiles {
    folder: PathBuf,
    direct: bool,
    open: Mutex<BTreeMap<FileId, Arc<File>>>,
    bounce: Bounce,
    written: AtomicU64,
}

fn open(path: &Path, direct: bool) -> io::Result<File> {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    if direct {
        options.custom_flags(i32::try_from(OFlags::DIRECT.bits()).unwrap_or(0));
    }
    options.open(path)
}

impl ExtentFiles {
    /// Opens a folder, making it when absent. Whether O_DIRECT works is learnt by an aligned write:
    /// some file systems take the flag and refuse the write.
    ///
    /// # Errors
    /// The folder cannot be made or written.
    pub fn open(folder: &Path) -> Result<Self, DiskError> {
        fs::create_dir_all(folder)?;
        let direct = Self::probe_direct(folder)?;
        Ok(Self {
            folder: folder.to_owned(),
            direct,
            open: Mutex::default(),
            bounce: Bounce::default(),
            written: AtomicU64::new(0),
        })
    }

    fn probe_direct(folder: &Path) -> Result<bool, DiskError> {
        let path = folder.join("direct");
        let bounce = Bounce::default();
        let tried = open(&path, true)
            .and_then(|file| bounce.with(ALIGN, |page| file.write_all_at(page, 0)));
        let removed = fs::remove_file(&path);
        match tried {
            Ok(()) => Ok(removed.map(|()| true)?),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether writes go past the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Bytes given to the system since it was opened.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    fn path(&self, file: FileId) -> PathBuf {
        self.folder.join(file.to_string())
    }

    fn file(&self, file: FileId) -> Result<Arc<File>, DiskError> {
        if let Some(file) = lock(&self.open).get(&file) {
            return Ok(Arc::clone(file));
        }
        let opened = Arc::new(open(&self.path(file), self.direct)?);
        lock(&self.open).insert(file, Arc::clone(&opened));
        Ok(opened)
    }

    fn sync_folder(&self) -> Result<(), DiskError> {
        Ok(File::open(&self.folder)?.sync_all()?)
    }
}

fn aligned(address: *const u8, length: usize) -> bool {
    address.addr().is_multiple_of(ALIGN) && length.is_multiple_of(ALIGN)
}

impl Disk for ExtentFiles {
    fn reserve(&self, file: FileId, bytes: u64) -> Result<(), DiskError> {
        let handle = self.file(file)?;
        let before = handle.metadata()?.len();
        if before >= bytes {
            return Ok(());
        }
        if let Err(error) = fallocate(&*handle, FallocateFlags::empty(), 0, bytes) {
            // A partial reservation is given back.
            handle.set_len(before)?;
            if before == 0 {
                self.remove(file)?;
            }
            return Err(io::Error::from(error).into());
        }
        handle.sync_all()?;
        self.sync_folder()
    }

    fn write_at(&self, file: FileId, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let handle = self.file(file)?;
        let padded = bytes.len().next_multiple_of(ALIGN);
        if !self.direct || aligned(bytes.as_ptr(), bytes.len()) {
            handle.write_all_at(bytes, offset)?;
        } else {
            self.bounce.with(padded, |buffer| {
                let (body, rest) = buffer.split_at_mut(bytes.len());
                body.copy_from_slice(bytes);
                rest.fill(0);
                handle.write_all_at(buffer.get(..padded).unwrap_or_default(), offset)
            })?;
        }
        self.written.fetch_add(padded as u64, Ordering::Relaxed);
        Ok(())
    }

    fn read_at(&self, file: FileId, offset: u64, bytes: &mut [u8]) -> Result<(), DiskError> {
        let handle = self.file(file)?;
        let short = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => DiskError::Short(file),
            _ => error.into(),
        };
        if !self.direct || aligned(bytes.as_ptr(), bytes.len()) {
            return handle.read_exact_at(bytes, offset).map_err(short);
        }
        let padded = bytes.len().next_multiple_of(ALIGN);
        self.bounce
            .with(padded, |buffer| {
                handle.read_exact_at(buffer.get_mut(..padded).unwrap_or_default(), offset)?;
                bytes.copy_from_slice(buffer.get(..bytes.len()).unwrap_or_default());
                Ok(())
            })
            .map_err(short)
    }

    fn sync(&self, file: FileId) -> Result<(), DiskError> {
        Ok(self.file(file)?.sync_data()?)
    }

    fn files(&self) -> Result<Vec<(FileId, u64)>, DiskError> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let number = name.strip_suffix(".extent").and_then(|number| number.parse().ok());
            let id = match (name, number) {
                ("probe", _) => FileId::PROBE,
                (_, Some(number)) => FileId(number),
                _ => continue,
            };
            files.push((id, entry.metadata()?.len()));
        }
        files.sort();
        Ok(files)
    }

    fn shrink(&self, file: FileId, bytes: u64) -> Result<(), DiskError> {
        let handle = self.file(file)?;
        if handle.metadata()?.len() > bytes {
            handle.set_len(bytes)?;
            handle.sync_all()?;
        }
        Ok(())
    }

    fn remove(&self, file: FileId) -> Result<(), DiskError> {
        lock(&self.open).remove(&file);
        match fs::remove_file(self.path(file)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            _ => self.sync_folder(),
        }
    }
}

#[cfg(test)]
mod tests;
