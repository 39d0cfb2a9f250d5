//! Bounds of one request beside the size of its body: far above what agents send, and low enough
//! that no body costs much more than its bytes. `/openapi.json` tells them.

use crate::error::ApiError;
use serde_json::Value;
use std::collections::BTreeSet;

/// Most messages, or input items, of one request; as Messages documents it.
pub(crate) const MESSAGES_MAX: usize = 100_000;
/// Most content blocks of one message.
pub(crate) const BLOCKS_MAX: usize = 10_000;
/// Most tools of one request, those in namespaces counted.
pub(crate) const TOOLS_MAX: usize = 2_048;
/// Largest JSON schema of one tool in bytes, white space left out.
pub(crate) const SCHEMA_BYTES_MAX: usize = 256 << 10;

/// Refuses more than `most`; `at` is the path of the list, `what` names its parts.
pub(crate) fn at_most(at: &str, what: &str, found: usize, most: usize) -> Result<(), ApiError> {
    if found <= most {
        return Ok(());
    }
    Err(ApiError::field(at, format_args!("at most {most} {what} are allowed, got {found}")))
}

/// Refuses a schema that is too large; `at` is its path.
pub(crate) fn schema(at: &str, schema: Option<&Value>) -> Result<(), ApiError> {
    let mut room = Room(SCHEMA_BYTES_MAX);
    match schema.map(|schema| serde_json::to_writer(&mut room, schema)) {
        None | Some(Ok(())) => Ok(()),
        Some(Err(_)) => Err(ApiError::field(
            at,
            format_args!("a schema may have at most {SCHEMA_BYTES_MAX} bytes"),
        )),
    }
}

/// Longest name of a tool in the dialects of OpenAI, and in Messages.
pub(crate) const TOOL_NAME_MAX: usize = 64;
pub(crate) const TOOL_NAME_MAX_MESSAGES: usize = 128;

/// The names of a request's tools: of the form that the vendors demand, and each there once.
pub(crate) struct ToolNames {
    most: usize,
    seen: BTreeSet<String>,
}

impl ToolNames {
    /// Names of at most `most` bytes.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, seen: BTreeSet::new() }
    }

    /// Takes a name; `at` is its path.
    ///
    /// # Errors
    /// It has another form, or is there twice.
    pub(crate) fn take(&mut self, name: &str, at: &str) -> Result<(), ApiError> {
        self.form(name, at)?;
        self.once(name, name, at)
    }

    /// Checks the form of a name.
    pub(crate) fn form(&self, name: &str, at: &str) -> Result<(), ApiError> {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if (1..=self.most).contains(&name.len()) && name.bytes().all(good) {
            return Ok(());
        }
        let why = format_args!("must match ^[a-zA-Z0-9_-]{{1,{}}}$", self.most).to_string();
        Err(ApiError::field(at, why))
    }

    /// Takes a name that is told apart by `key`.
    pub(crate) fn once(&mut self, name: &str, key: &str, at: &str) -> Result<(), ApiError> {
        match self.seen.insert(key.to_owned()) {
            true => Ok(()),
            false => Err(ApiError::field(at, format_args!("another tool is named `{name}` too"))),
        }
    }
}

/// Takes so many bytes and keeps none.
struct Room(usize);

impl std::io::Write for Room {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::FileTooLarge)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
