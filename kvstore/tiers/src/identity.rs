//! The node's secret key in `DIR/node.key` (mode 0600), bound to the machine it was made on.
//!
//! A data folder that was copied to another machine would make two nodes with one identity; so the
//! folder remembers a digest of the machine's id and refuses another machine.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

#[cfg(test)]
mod tests;

const FILE: &str = "node.key";
/// First line of the file; the number is the version of its form.
const MAGIC: &str = "dynamo-node key 1";

/// Why there is no identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not a key.
    #[error("{} is not a node key of this release", .0.display())]
    Malformed(PathBuf),
    /// Others can read the key.
    #[error("{} can be read by others (mode {mode:o}): chmod 600 it", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The folder was made on another machine.
    #[error(
        "this data folder was made on another machine: start it with --new-identity, or move the original back"
    )]
    OtherMachine,
}

/// A node's secret key seed.
pub struct Identity {
    seed: Zeroizing<[u8; 32]>,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Identity(…)")
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The node id that belongs to the seed: a damaged seed would be another valid key.
fn check(seed: &[u8; 32]) -> String {
    protocol::sign::Keypair::from_seed(seed).node().to_string()
}

/// Digest of this machine's id; all zero where it has none.
fn machine() -> [u8; 32] {
    let id = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    match id.trim() {
        "" => [0; 32],
        id => *blake3::Hasher::new_derive_key("dynamo-node 2026-11 machine id")
            .update(id.as_bytes())
            .finalize()
            .as_bytes(),
    }
}

impl Identity {
    /// Reads `dir/node.key`, or makes it from `seed` when it is absent or `renew` is set (the old
    /// key is kept as `node.key.old`).
    ///
    /// # Errors
    /// See [`IdentityError`].
    pub fn load_or_create(
        dir: &Path,
        renew: bool,
        seed: impl FnOnce() -> [u8; 32],
    ) -> Result<Self, IdentityError> {
        Self::on_machine(dir, renew, seed, machine())
    }

    fn on_machine(
        dir: &Path,
        renew: bool,
        seed: impl FnOnce() -> [u8; 32],
        machine: [u8; 32],
    ) -> Result<Self, IdentityError> {
        let path = dir.join(FILE);
        let io = |source| IdentityError::Io { path: path.clone(), source };
        if renew && path.exists() {
            std::fs::rename(&path, dir.join(format!("{FILE}.old"))).map_err(io)?;
        }
        match std::fs::read_to_string(&path) {
            Ok(text) => Self::parse(&path, &Zeroizing::new(text), machine),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let seed = Zeroizing::new(seed());
                write(dir, &path, &seed, machine).map_err(io)?;
                Ok(Self { seed })
            }
            Err(error) => Err(io(error)),
        }
    }

    fn parse(path: &Path, text: &str, machine: [u8; 32]) -> Result<Self, IdentityError> {
        let malformed = || IdentityError::Malformed(path.to_owned());
        let metadata = std::fs::metadata(path)
            .map_err(|source| IdentityError::Io { path: path.to_owned(), source })?;
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(IdentityError::Exposed { path: path.to_owned(), mode });
        }
        let mut lines = text.lines();
        if lines.next() != Some(MAGIC) {
            return Err(malformed());
        }
        let mut bytes = || protocol::id::parse_hex::<32>(lines.next()?);
        let (Some(seed), Some(made_on)) = (bytes(), bytes()) else { return Err(malformed()) };
        if lines.next() != Some(&check(&seed)) {
            return Err(malformed());
        }
        if made_on != machine && made_on != [0; 32] {
            return Err(IdentityError::OtherMachine);
        }
        Ok(Self { seed: Zeroizing::new(seed) })
    }

    /// The secret seed. Never log it.
    pub fn seed(&self) -> &[u8; 32] {
        &self.seed
    }
}

/// Writes the file whole or not at all: under another name, synced, then linked.
fn write(dir: &Path, path: &Path, seed: &[u8; 32], machine: [u8; 32]) -> std::io::Result<()> {
    let draft = dir.join(format!("{FILE}.new"));
    let _ = std::fs::remove_file(&draft);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    let text = Zeroizing::new(format!(
        "{MAGIC}\n{}\n{}\n{}\n",
        to_hex(seed),
        to_hex(&machine),
        check(seed)
    ));
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    // A link fails where another process has made a key meanwhile; a rename would replace it.
    std::fs::hard_link(&draft, path)?;
    std::fs::remove_file(&draft)?;
    File::open(dir)?.sync_all()
}
