//! How a command fails: one readable line, one line of help, an exit code.

use std::fmt;

/// A failure that a person reads.
#[derive(Debug)]
pub(crate) struct Fault {
    message: String,
    help: String,
    code: u8,
    again: bool,
}

impl Fault {
    /// A wrong use of the command: exit code 2.
    pub(crate) fn usage(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { message: message.into(), help: help.into(), code: 2, again: false }
    }

    /// Anything else: exit code 1.
    pub(crate) fn new(message: impl fmt::Display, help: impl Into<String>) -> Self {
        Self { message: message.to_string(), help: help.into(), code: 1, again: false }
    }

    /// The node can only go on by beginning anew, from what is on its disk.
    pub(crate) fn begin_again(message: impl fmt::Display) -> Self {
        Self { again: true, ..Self::new(message, "start it again") }
    }

    /// Whether the process should begin anew.
    pub(crate) fn begins_again(&self) -> bool {
        self.again
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message: Vec<&str> = self.message.lines().map(str::trim).collect();
        write!(f, "error: {}\nhelp: {}", message.join(" "), self.help)
    }
}

impl std::error::Error for Fault {}
