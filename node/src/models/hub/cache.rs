//! The cache of the hub's own tools: blobs by their digest, a folder of links per commit.

use super::fetch::{Hub, Remote, Trouble};
use super::plain;
use crate::fault::Fault;
use crate::models::cache_home;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Files beyond these many of one snapshot are not looked at.
const FILES_MAX: usize = 4096;

/// Where one repository is kept.
pub(super) struct Cache {
    /// Folder of all repositories.
    root: PathBuf,
    /// Name of this one's folder.
    folder: String,
}

impl fmt::Display for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.root.display().fmt(f)
    }
}

/// `HF_HOME`, or where it is by default.
pub(super) fn home() -> PathBuf {
    let cache = || cache_home().join("huggingface");
    std::env::var_os("HF_HOME").filter(|p| !p.is_empty()).map_or_else(cache, PathBuf::from)
}

impl Cache {
    pub(super) fn of_environment(repo: &str) -> Self {
        let named = ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"].into_iter();
        let named = named.filter_map(std::env::var_os).find(|path| !path.is_empty());
        let root = named.map_or_else(|| home().join("hub"), PathBuf::from);
        Self { root, folder: format!("models--{}", repo.replace('/', "--")) }
    }

    fn repo(&self) -> PathBuf {
        self.root.join(&self.folder)
    }

    /// The folder of a commit's files.
    pub(super) fn snapshot(&self, commit: &str) -> PathBuf {
        self.repo().join("snapshots").join(commit)
    }

    /// The commit that a revision was when it was last asked for.
    pub(super) fn commit(&self, revision: &str) -> Option<String> {
        if is_commit(revision) {
            return Some(revision.to_owned());
        }
        let commit = fs::read_to_string(self.repo().join("refs").join(revision)).ok()?;
        Some(commit.trim().to_owned()).filter(|commit| is_commit(commit))
    }

    /// Remembers what a revision is.
    pub(super) fn refer(&self, revision: &str, commit: &str) -> Result<(), Fault> {
        if is_commit(revision) || self.commit(revision).as_deref() == Some(commit) {
            return Ok(());
        }
        let path = self.repo().join("refs").join(revision);
        let folder = path.parent().unwrap_or(&self.root);
        // Whole or not at all: others read it meanwhile.
        let draft = path.with_added_extension(format!("{}.draft", std::process::id()));
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&draft, commit))
            .and_then(|()| fs::rename(&draft, &path))
            .map_err(|error| disk_fault(&path, &error))
    }

    /// Paths of the files that a commit's folder holds.
    pub(super) fn files(&self, commit: &str) -> Vec<String> {
        let root = self.snapshot(commit);
        let (mut folders, mut files) = (vec![root.clone()], Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    folders.push(path);
                } else if let Ok(name) = path.strip_prefix(&root) {
                    files.push(name.to_string_lossy().into_owned());
                }
                if files.len() + folders.len() > FILES_MAX {
                    return files;
                }
            }
        }
        files.sort();
        files
    }

    /// Refuses what the disk cannot hold, before anything is fetched.
    pub(super) fn has_room(&self, files: &[Remote]) -> Result<(), Fault> {
        let missing = files.iter().map(|file| {
            let blob = self.blob(file);
            let have = fs::metadata(&blob).or_else(|_| fs::metadata(partial(&blob)));
            file.size.unwrap_or(0).saturating_sub(have.map_or(0, |have| have.len()))
        });
        let missing = missing.fold(0, u64::saturating_add);
        let folder = self.repo().join("blobs");
        fs::create_dir_all(&folder).map_err(|error| disk_fault(&folder, &error))?;
        let Ok(disk) = rustix::fs::statvfs(&folder) else { return Ok(()) };
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        if missing <= free {
            return Ok(());
        }
        Err(Fault::new(
            format!(
                "the model needs {} MB more in {}, and {} MB are free",
                missing.div_ceil(1_000_000),
                folder.display(),
                free / 1_000_000
            ),
            "free some space, or name another folder in HF_HOME",
        ))
    }

    fn blob(&self, file: &Remote) -> PathBuf {
        self.repo().join("blobs").join(&file.etag)
    }

    /// Fetches a file, unless some commit has it already, and puts it into a commit's folder.
    pub(super) async fn keep(&self, hub: &Hub, commit: &str, file: &Remote) -> Result<(), Trouble> {
        let blob = self.blob(file);
        if !blob.is_file() {
            let _lock = self.lock(file).map_err(Trouble::Final)?;
            if !blob.is_file() {
                hub.download(file, &partial(&blob)).await?;
                fs::rename(partial(&blob), &blob)
                    .map_err(|error| Trouble::Final(disk_fault(&blob, &error)))?;
            }
        }
        self.link(commit, file).map_err(Trouble::Final)
    }

    fn link(&self, commit: &str, file: &Remote) -> Result<(), Fault> {
        debug_assert!(plain(&file.path), "checked when it was listed");
        let path = self.snapshot(commit).join(&file.path);
        let folder = path.parent().unwrap_or(&self.root);
        fs::create_dir_all(folder).map_err(|error| disk_fault(folder, &error))?;
        let up = "../".repeat(2 + file.path.matches('/').count());
        let _ = fs::remove_file(&path);
        match std::os::unix::fs::symlink(format!("{up}blobs/{}", file.etag), &path) {
            // Another process was quicker.
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(disk_fault(&path, &error))
            }
            _ => Ok(()),
        }
    }

    /// One process at a time fetches a file; the hub's own tools heed this lock too. It ends with
    /// the process.
    fn lock(&self, file: &Remote) -> Result<File, Fault> {
        let folder = self.root.join(".locks").join(&self.folder);
        let path = folder.join(format!("{}.lock", file.etag));
        let fault = |error: &io::Error| disk_fault(&path, error);
        fs::create_dir_all(&folder).map_err(|error| fault(&error))?;
        let lock = File::options().create(true).truncate(false).write(true).open(&path);
        let lock = lock.map_err(|error| fault(&error))?;
        if lock.try_lock().is_err() {
            tracing::info!(file = file.path, "another process fetches it; waiting");
            lock.lock().map_err(|error| fault(&error))?;
        }
        Ok(lock)
    }
}

/// Where a file grows until it is whole.
fn partial(blob: &Path) -> PathBuf {
    blob.with_added_extension("incomplete")
}

/// True for the name of a commit.
pub(super) fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && revision.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// What a disk refused.
pub(super) fn disk_fault(path: &Path, error: &io::Error) -> Fault {
    let help = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "the disk is full: free some space and start again, it goes on where it was; or name \
             another folder in HF_HOME"
        }
        _ => "check the folder, or name another one in HF_HOME",
    };
    Fault::new(format!("{}: {error}", path.display()), help)
}
