//! The way of one stream's items out, without ever waiting for its reader.

#[cfg(test)]
mod tests;

use protocol::prompt::StreamItem;
use std::collections::VecDeque;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

/// A channel's sending end with the few items that did not fit yet.
pub(crate) struct Outlet {
    sink: Sender<StreamItem>,
    /// At most one step's items: while any are left the sequence does not run.
    pending: VecDeque<StreamItem>,
}

impl Outlet {
    pub(crate) fn new(sink: Sender<StreamItem>) -> Self {
        Self { sink, pending: VecDeque::new() }
    }

    /// Sends an item after those that are pending.
    pub(crate) fn send(&mut self, item: StreamItem) {
        self.pending.push_back(item);
        self.flush();
    }

    /// Sends what fits; `true` when nothing is left. What a reader that left did not read is
    /// dropped.
    pub(crate) fn flush(&mut self) -> bool {
        while let Some(item) = self.pending.pop_front() {
            match self.sink.try_send(item) {
                Ok(()) => {}
                Err(TrySendError::Full(item)) => {
                    self.pending.push_front(item);
                    return false;
                }
                Err(TrySendError::Closed(_)) => {
                    self.pending.clear();
                    return true;
                }
            }
        }
        true
    }

    /// Whether the reader left.
    pub(crate) fn is_closed(&self) -> bool {
        self.sink.is_closed()
    }

    /// Whether all items are out.
    pub(crate) fn is_clear(&self) -> bool {
        self.pending.is_empty()
    }
}
