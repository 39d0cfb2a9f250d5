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
    let mode = std::fs::metadata(path).map(|data| data.permissions().mode());
    match mode {
        Ok(mode) if mode & 0o077 == 0 => Ok(()),
        Ok(_) => {
            Err(Fault::new(format!("others may read {what} in {at}"), format!("chmod 600 {at}")))
        }
        Err(error) => Err(Fault::new(
            format!("cannot read {what} in {at}: {error}"),
            "name a file that is there",
        )),
    }
}
