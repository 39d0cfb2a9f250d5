//! Why a load run could not be carried out. A failed *call* is not such an error: it is counted.

use std::io;
use std::path::PathBuf;

/// What stops a fleet, a benchmark or the demo.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The node binary could not be started at all: check the path and its permissions.
    #[error("cannot run {}: {source}", binary.display())]
    Spawn {
        /// The binary.
        binary: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file, folder or port of the run: check the disk and the temporary folder.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A node ended or stayed silent where it should have become ready: its log says why.
    #[error("node n{node} {what}; the end of its log:\n{log}")]
    Node {
        /// Position in the fleet.
        node: usize,
        /// What it did or did not do.
        what: String,
        /// Last lines of its log.
        log: String,
    },
    /// The nodes run, but the cluster did not reach the state waited for.
    #[error("after {seconds} s the cluster was not as expected ({expected}): {seen}")]
    Cluster {
        /// How long was waited.
        seconds: u64,
        /// What was waited for.
        expected: String,
        /// What the nodes said instead.
        seen: String,
    },
    /// A question to a node failed (status, models, token count).
    #[error("{url} does not answer as documented: {reason}")]
    Answer {
        /// Whom and what was asked.
        url: String,
        /// What came back.
        reason: String,
    },
    /// The run did not come to its end in the time allowed.
    #[error("not done after {0} s")]
    TooLong(u64),
    /// The run was asked to stop by a signal.
    #[error("stopped by a signal")]
    Interrupted,
}

impl LoadError {
    /// Wraps an I/O error with what was tried.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
