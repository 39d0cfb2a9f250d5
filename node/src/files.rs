//! Small files of the data folder.

use crate::fault::Fault;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes a secret as one line into a file of mode 0600. Without `replace` the file must not exist.
pub(crate) fn write_secret(path: &Path, secret: &str, replace: bool) -> Result<(), Fault> {
    let fault = |error: std::io::Error| {
        Fault::new(
            format!("cannot write {}: {error}", path.display()),
            "choose a file that does not exist in a folder that can be written",
        )
    };
    if replace && path.exists() {
        std::fs::remove_file(path).map_err(fault)?;
    }
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(fault)?;
    file.write_all(secret.as_bytes()).and_then(|()| file.write_all(b"\n")).map_err(fault)
}
