//! Lines for a person, readable on 100 columns and without a terminal.

use crate::error::LoadError;
use std::io::Write;
use std::time::Instant;

/// Where the demo writes.
pub(super) struct Screen<'a> {
    out: &'a mut (dyn Write + Send),
    started: Instant,
}

impl<'a> Screen<'a> {
    /// A screen whose clock starts now.
    pub(super) fn new(out: &'a mut (dyn Write + Send)) -> Self {
        Self { out, started: Instant::now() }
    }

    /// Begins a phase.
    pub(super) fn phase(&mut self, text: &str) -> Result<(), LoadError> {
        let seconds = self.started.elapsed().as_secs();
        self.line(&format!("[{seconds:>4}s] {text}"))
    }

    /// A line; shown at once.
    pub(super) fn line(&mut self, text: &str) -> Result<(), LoadError> {
        writeln!(self.out, "{text}")
            .and_then(|()| self.out.flush())
            .map_err(LoadError::io("write to stdout"))
    }
}
