//! Cards and tokenizers of other nodes' models, kept over restarts: one file each, named by its
//! content.

use bytes::Bytes;
use protocol::card::BlobDigest;
use protocol::wire::blobs::BLOB_MAX;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A file that nobody has read for so long is removed when the node starts.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

/// A folder of blobs. It is a cache: what it cannot keep is fetched again.
pub(crate) struct Shelf {
    folder: PathBuf,
}

impl Shelf {
    /// Opens `folder`, and removes what is old or was left half written.
    pub(crate) fn open(folder: &Path) -> Self {
        let now = SystemTime::now();
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let read = entry.metadata().and_then(|meta| meta.modified()).ok();
            let old = read.and_then(|read| now.duration_since(read).ok());
            // Only what this node has written.
            let name = entry.file_name().to_string_lossy().into_owned();
            let half = name.ends_with(".part");
            let digest = name.strip_suffix(".part").unwrap_or(&name);
            if protocol::id::parse_hex::<32>(digest).is_none() {
                continue;
            }
            if half || old.is_some_and(|age| age > KEPT) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        Self { folder: folder.to_owned() }
    }

    fn path(&self, digest: &BlobDigest) -> PathBuf {
        self.folder.join(digest.to_string())
    }

    /// The bytes of this name, checked; a damaged file is removed.
    pub(crate) fn get(&self, digest: &BlobDigest) -> Option<Bytes> {
        let path = self.path(digest);
        let mut bytes = Vec::new();
        let file = std::fs::File::open(&path).ok()?;
        let read = (&file).take(BLOB_MAX + 1).read_to_end(&mut bytes);
        if read.is_err() || BlobDigest::of(&bytes) != *digest {
            tracing::warn!(file = %path.display(), "a damaged file was removed");
            let _ = std::fs::remove_file(&path);
            return None;
        }
        // So that it is known to be used.
        let _ = file.set_modified(SystemTime::now());
        Some(bytes.into())
    }

    /// Keeps bytes, whole or not at all.
    pub(crate) fn put(&self, digest: &BlobDigest, bytes: &[u8]) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.folder)?;
        let part = self.folder.join(format!("{digest}.part"));
        let written = std::fs::File::create(&part).and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()?;
            std::fs::rename(&part, self.path(digest))
        });
        if written.is_err() {
            let _ = std::fs::remove_file(&part);
        }
        written
    }
}

#[cfg(test)]
mod tests;
