//! The clock of the endpoint: tokio's, so that tests can pause it.

use std::time::Instant;

/// Now, as an instant of std's.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
