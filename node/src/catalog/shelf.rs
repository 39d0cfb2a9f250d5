//! Cards and tokenizers of other nodes' models, kept over restarts: one file each, named by its
//! content.

use bytes::Bytes;
use protocol::card::BlobDigest;
use protocol::wire::blobs::BLOB_MAX;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// A file that nobody has read for so long is removed when the node starts.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);
/// Bytes of all files together; those that nobody has read for longest go first. A tokenizer has some
/// ten MB: there is room for those of all models that a node offers at once, and the disk does not
/// fill up with those that members once had.
const ROOM: u64 = 2 << 30;

/// Numbers drafts: two writers of the same bytes must not share one.
static DRAFTS: AtomicU64 = AtomicU64::new(0);

/// A folder of blobs. It is a cache: what it cannot keep is fetched again.
pub(crate) struct Shelf {
    folder: PathBuf,
    /// [`ROOM`].
    room: u64,
}

/// Whether this name is that of a draft; none for what no shelf has written.
fn is_draft(name: &OsStr) -> Option<bool> {
    let name = name.to_str()?;
    let draft = name.strip_suffix(".part");
    let digest = match draft {
        Some(draft) => draft.split_once('.').map_or(draft, |(digest, _)| digest),
        None => name,
    };
    protocol::id::parse_hex::<32>(digest).map(|_| draft.is_some())
}

impl Shelf {
    /// Opens `folder`, and removes what is old or was left half written.
    pub(crate) fn open(folder: &Path) -> Self {
        let now = SystemTime::now();
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            // Only what this node has written.
            let Some(half) = is_draft(&entry.file_name()) else { continue };
            let read = entry.metadata().and_then(|meta| meta.modified()).ok();
            let old = read.and_then(|read| now.duration_since(read).ok());
            if half || old.is_some_and(|age| age > KEPT) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        Self { folder: folder.to_owned(), room: ROOM }
    }

    fn path(&self, digest: &BlobDigest) -> PathBuf {
        self.folder.join(digest.to_string())
    }

    /// The bytes of this name, checked; a damaged file is removed.
    pub(crate) fn get(&self, digest: &BlobDigest) -> Option<Bytes> {
        let path = self.path(digest);
        let mut bytes = Vec::new();
        let file = std::fs::File::options()
            .read(true)
            .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
            .open(&path)
            .ok()?;
        // Whatever stands under this name: a pipe would be waited for.
        let is_file = file.metadata().is_ok_and(|meta| meta.is_file());
        let read = (&file).take(BLOB_MAX + 1).read_to_end(&mut bytes);
        if !is_file || read.is_err() || BlobDigest::of(&bytes) != *digest {
            tracing::warn!(file = %path.display(), "a damaged file was removed");
            let _ = std::fs::remove_file(&path);
            return None;
        }
        // So that it is known to be used.
        let _ = file.set_modified(SystemTime::now());
        Some(bytes.into())
    }

    /// Keeps bytes, whole or not at all; what was not read for longest goes when there is no room.
    pub(crate) fn put(&self, digest: &BlobDigest, bytes: &[u8]) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.folder)?;
        let (process, draft) = (std::process::id(), DRAFTS.fetch_add(1, Ordering::Relaxed));
        let part = self.folder.join(format!("{digest}.{process}-{draft}.part"));
        let written = std::fs::File::create(&part).and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()?;
            std::fs::rename(&part, self.path(digest))
        });
        match &written {
            Ok(()) => self.make_room(),
            Err(_) => drop(std::fs::remove_file(&part)),
        }
        written
    }

    fn make_room(&self) {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut files: Vec<(SystemTime, u64, PathBuf)> = entries
            .filter(|entry| is_draft(&entry.file_name()) == Some(false))
            .filter_map(|entry| {
                let meta = entry.metadata().ok()?;
                Some((meta.modified().ok()?, meta.len(), entry.path()))
            })
            .collect();
        files.sort();
        let mut bytes: u64 = files.iter().map(|(_, length, _)| length).sum();
        for (_, length, path) in files {
            if bytes <= self.room {
                return;
            }
            if std::fs::remove_file(&path).is_ok() {
                bytes -= length;
            }
        }
    }
}

#[cfg(test)]
mod tests;
