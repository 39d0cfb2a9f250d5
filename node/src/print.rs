//! Results on stdout.

use std::fmt::Display;
use std::io::{ErrorKind, Write};

/// Prints a line. A reader that has seen enough, as `head` does, ends the command without a word.
pub(crate) fn print(line: impl Display) {
    match writeln!(std::io::stdout(), "{line}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        _ => {}
    }
}
