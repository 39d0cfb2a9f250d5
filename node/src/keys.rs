//! The file of tenants and their API keys.

use crate::fault::Fault;
use crate::files::read_text;
use crate::reread::{self, check_owner_only};
use frontend::{KeyError, Keys, TenantSpec};
use serde::Deserialize;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

const HELP: &str = "each [[tenant]] has name, keys (a list of texts of 16 or more characters), and if \
                    you like priority and prompt_tokens_per_minute (whole numbers)";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    tenant: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    keys: Vec<String>,
    #[serde(default)]
    priority: i32,
    #[serde(default)]
    prompt_tokens_per_minute: u32,
}

/// Reads the file.
///
/// # Errors
/// It cannot be read, others may read it, or it says what cannot be.
fn read(path: &Path) -> Result<(blake3::Hash, Vec<TenantSpec>), Fault> {
    let at = path.display();
    let unreadable = |error: std::io::Error| {
        Fault::new(
            format!("cannot read the API keys in {at}: {error}"),
            "name a file with http.keys",
        )
    };
    check_owner_only(path, "the API keys")?;
    let text = Zeroizing::new(read_text(path).map_err(unreadable)?);
    let file: File = toml::from_str(&text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        // Other messages of the parser repeat values, and these are secrets.
        let named = ["unknown field", "missing field"];
        let why = match error.message() {
            text if named.iter().any(|named| text.starts_with(named)) => text,
            _ => "this is not of the form that is expected",
        };
        Fault::new(format!("{at}, line {line}: {why}"), HELP)
    })?;
    let tenants = file.tenant.into_iter().map(|entry| TenantSpec {
        name: entry.name,
        keys: entry.keys,
        priority: entry.priority,
        prompt_tokens_per_minute: NonZeroU32::new(entry.prompt_tokens_per_minute),
    });
    Ok((blake3::hash(text.as_bytes()), tenants.collect()))
}

/// A file of keys that is in use.
pub(crate) struct KeyFile {
    path: PathBuf,
    seen: blake3::Hash,
    keys: Arc<Keys>,
}

impl KeyFile {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// It cannot be read, others may read it, or it says what cannot be.
    pub(crate) fn open(path: &Path) -> Result<Self, Fault> {
        let (seen, tenants) = read(path)?;
        let keys = Arc::new(Keys::open());
        keys.replace(&tenants).map_err(|error| wrong(path, &error))?;
        Ok(Self { path: path.to_owned(), seen, keys })
    }

    /// The keys that are good now.
    pub(crate) fn keys(&self) -> Arc<Keys> {
        self.keys.clone()
    }

    /// Keeps the keys up to date. When the file has become wrong this is told, and the keys that
    /// were good stay so.
    pub(crate) async fn watch(mut self, stop: CancellationToken) {
        let meaning = "the API keys were not read again; the former stay good";
        reread::watch(stop, meaning, || self.look()).await;
    }

    fn look(&mut self) -> Result<(), Fault> {
        let (hash, tenants) = read(&self.path)?;
        if hash != self.seen {
            self.keys.replace(&tenants).map_err(|error| wrong(&self.path, &error))?;
            self.seen = hash;
            tracing::info!(tenants = tenants.len(), "API keys read again");
        }
        Ok(())
    }
}

fn wrong(path: &Path, error: &KeyError) -> Fault {
    Fault::new(format!("{}: {error}", path.display()), HELP)
}
