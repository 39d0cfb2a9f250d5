//! Files that are read again when they change.

use crate::fault::Fault;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// Calls `look` now and again until `stop`. A problem is told once, with what it means.
pub(crate) async fn watch(
    stop: CancellationToken,
    meaning: &'static str,
    mut look: impl FnMut() -> Result<(), Fault>,
) {
    let mut told = String::new();
    while stop.run_until_cancelled(tokio::time::sleep(LOOK)).await.is_some() {
        let problem = look().err().map(|fault| fault.to_string()).unwrap_or_default();
        if problem != told && !problem.is_empty() {
            tracing::error!(problem, "{meaning}");
        }
        told = problem;
    }
}

/// Refuses a file of secrets that others than its owner may read; `what` says what it holds.
pub(crate) fn check_owner_only(path: &Path, what: &str) -> Result<(), Fault> {
    let at = path.display();
    let found = std::fs::metadata(path).map(|data| (data.is_file(), data.permissions().mode()));
    match found {
        // A pipe would be waited for.
        Ok((false, _)) => {
            Err(Fault::new(format!("{at} is no regular file"), format!("keep {what} in a file")))
        }
        Ok((true, mode)) if mode & 0o077 == 0 => Ok(()),
        Ok(_) => {
            Err(Fault::new(format!("others may read {what} in {at}"), format!("chmod 600 {at}")))
        }
        Err(error) => Err(Fault::new(
            format!("cannot read {what} in {at}: {error}"),
            "name a file that is there",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::check_owner_only;
    use rustix::fs::{CWD, FileType, mknodat};

    #[test]
    fn secrets_are_read_from_files_of_their_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let [file, pipe] = ["file", "pipe"].map(|name| folder.path().join(name));
        std::fs::write(&file, "x").unwrap();
        let mode = |mode| std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&file, mode(0o600)).unwrap();
        check_owner_only(&file, "keys").unwrap();
        std::fs::set_permissions(&file, mode(0o640)).unwrap();
        let told = |path| check_owner_only(path, "keys").unwrap_err().to_string();
        assert!(told(&file).contains("others may read keys"));
        mknodat(CWD, &pipe, FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(told(&pipe).contains("no regular file"));
    }
}
