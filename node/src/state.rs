//! The cluster's small replicated records, as the rest of the node uses them.

use crate::switchboard::Switchboard;
use protocol::state::{Kept, RecordId, RecordKey, RecordKind, StateError, VALUE_MAX};
use protocol::time::Span;
use serde_json::{Value, json};
use state::{Answer, Deleted, In};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Semaphore;
use wiring::Input;

/// Calls under way from this node; more wait.
const CALLS_MAX: usize = 64;

/// What this node holds, for `status`.
pub(crate) fn told(held: &state::Stats) -> Value {
    let kinds = RecordKind::ALL.iter().zip(&held.kinds).map(|(kind, held)| {
        let counts = json!({
            "records": held.records, "deletions": held.deletions, "bytes": held.bytes,
        });
        (kind.name().to_owned(), counts)
    });
    json!({
        "records": held.records,
        "deletions": held.deletions,
        "bytes": held.bytes,
        "kinds": kinds.collect::<serde_json::Map<_, _>>(),
    })
}

/// Reads and writes records of the whole cluster from this node.
#[derive(Clone)]
pub(crate) struct StateHandle {
    board: Arc<Switchboard>,
    calls: Arc<Semaphore>,
    last: Arc<AtomicU64>,
}

impl StateHandle {
    /// A handle on the machine behind the board.
    pub(crate) fn new(board: Arc<Switchboard>) -> Self {
        Self { board, calls: Arc::new(Semaphore::new(CALLS_MAX)), last: Arc::default() }
    }

    async fn call(&self, make: impl FnOnce(u64) -> In) -> Result<Answer, StateError> {
        let _permit = self.calls.acquire().await.map_err(|_| StateError::Stopped)?;
        let call = self.last.fetch_add(1, Ordering::Relaxed);
        let answer = self.board.expect_answer(call);
        self.board.send(Input::State(make(call)));
        answer.await.map_err(|_| StateError::Stopped)
    }

    /// Writes a record that lives for `ttl` (at most [`protocol::state::TTL_MAX`]); replaces an
    /// earlier one. Answers when two owners have it on disk, or after about two seconds with what
    /// was reached by then.
    ///
    /// # Errors
    /// [`StateError::TooLong`], [`StateError::Busy`], [`StateError::Stopped`], or
    /// [`StateError::NotKept`] when not one node has it. A write that failed may still come to be
    /// seen.
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
        let id = RecordId { key, kind };
        match self.call(|call| In::Put { call, id, value, ttl }).await? {
            Answer::Put(result) => result,
            Answer::Got(_) | Answer::Deleted(_) => Err(StateError::Stopped),
        }
    }

    /// The newest value of a record; `None` when it is known that there is none.
    ///
    /// # Errors
    /// [`StateError::Unavailable`] when too few of its owners answer within two seconds to know,
    /// [`StateError::Busy`], [`StateError::Stopped`].
    pub(crate) async fn get(
        &self,
        kind: RecordKind,
        key: RecordKey,
    ) -> Result<Option<Vec<u8>>, StateError> {
        let id = RecordId { key, kind };
        match self.call(|call| In::Get { call, id }).await? {
            // "Not there" is always confirmed; a value may be the only copy that could be reached.
            Answer::Got(result) => result.map(|found| found.value),
            Answer::Put(_) | Answer::Deleted(_) => Err(StateError::Stopped),
        }
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
        let id = RecordId { key, kind };
        match self.call(|call| In::Delete { call, id }).await? {
            Answer::Deleted(result) => result.map(|deleted| deleted != Deleted::Absent),
            Answer::Put(_) | Answer::Got(_) => Err(StateError::Stopped),
        }
    }
}

#[cfg(test)]
mod tests;
