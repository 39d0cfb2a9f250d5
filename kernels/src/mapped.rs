//! A file mapped into memory, read-only.

use memmap2::Mmap;
use std::fs::File;
use std::io;
use std::path::Path;

/// A whole file as bytes. Pages are read when they are touched and shared between processes.
///
/// The file must not change while it is mapped: a model file that is replaced is a new file
/// (written beside the old one and renamed), never an old one written over. A file that is cut
/// short under the mapping ends the process with SIGBUS.
#[derive(Debug)]
pub struct MappedFile {
    map: Mmap,
}

impl MappedFile {
    /// Maps the file at `path`. Errors name the path; a folder or a device is refused.
    pub fn open(path: &Path) -> io::Result<Self> {
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        let file = File::open(path).map_err(named)?;
        if !file.metadata().map_err(named)?.is_file() {
            let reason = format!("{}: not a regular file", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        // SAFETY: the mapping is private and read-only; that nobody writes to the file meanwhile
        // is the documented condition of this type.
        let map = unsafe { Mmap::map(&file) }.map_err(named)?;
        Ok(Self { map })
    }

    /// The file's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }
}

#[cfg(test)]
mod tests;
