//! Whether the client still waits for the prompt that is being prepared.

use crate::error::{ApiError, Kind};
use std::sync::{Arc, Weak};

/// Held by the request's future, which is dropped when the client goes away.
pub(crate) struct Waits(#[allow(dead_code)] Arc<()>); // only its end means something

/// The client, seen from the thread that prepares its prompt.
#[derive(Clone)]
pub(crate) struct Client(Option<Weak<()>>);

impl Client {
    /// A client that stays while the second value lives.
    pub(crate) fn new() -> (Self, Waits) {
        let alive = Arc::new(());
        (Self(Some(Arc::downgrade(&alive))), Waits(alive))
    }

    /// A caller that waits in any case.
    pub(crate) fn stays() -> Self {
        Self(None)
    }

    /// An error, which nobody will read, when the client has gone: to be asked between the steps
    /// of long work.
    pub(crate) fn check(&self) -> Result<(), ApiError> {
        match &self.0 {
            Some(alive) if alive.strong_count() == 0 => {
                Err(ApiError::new(Kind::Failed, "the client went away"))
            }
            _ => Ok(()),
        }
    }
}
