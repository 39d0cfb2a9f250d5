//! Bounds of one request beside the size of its body: far above what agents send, and low enough
//! that no body costs much more than its bytes. `/openapi.json` tells them.

use crate::error::ApiError;
use serde_json::Value;

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
