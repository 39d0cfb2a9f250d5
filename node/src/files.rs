//! Small files: those that the user names, and secrets of the data folder.

use crate::fault::Fault;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Longest text that is read whole: configurations, keys, tokens.
const TEXT_MAX: u64 = 4 << 20;

/// The bytes of a file, at most `most` of them.
///
/// # Errors
/// What the system says; or there are more bytes, as in a device that has no end.
pub(crate) fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    // Secrets are not left behind in buffers that grew.
    let length = file.metadata().map_or(0, |meta| meta.len()).min(most) + 1;
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let why = format!("it is longer than {} MiB", most >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// The text of a small file.
///
/// # Errors
/// As [`read`]; or it is not UTF-8.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    let not_text = |_| io::Error::new(io::ErrorKind::InvalidData, "it is not a text in UTF-8");
    String::from_utf8(read(path, TEXT_MAX)?).map_err(not_text)
}

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
