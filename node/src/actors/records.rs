//! Writes replicated records to the node's durable records, in order, many with one sync; and reads
//! them at the start.

use crate::clock::Clock;
use crate::fault::Fault;
use crate::switchboard::Switchboard;
use protocol::state::{Record, RecordId};
use protocol::time::Span;
use protocol::trust::UnixTime;
use serde::{Deserialize, Serialize};
use state::DiskOp;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use tiers::{Records, RecordsError};
use tokio::sync::mpsc;
use wiring::Input;

/// Kind of the durable records.
const KIND: &str = "state";
/// Operations with one sync, and bytes of their values.
const BATCH_OPS: usize = 256;
const BATCH_BYTES: usize = 4 << 20;

/// A record as it lies on disk: its time to live counts from then.
#[derive(Serialize, Deserialize)]
struct Stored {
    at: UnixTime,
    record: Record,
}

fn key(id: &RecordId) -> Vec<u8> {
    [&[id.kind.number()][..], &id.key.place, &id.key.name].concat()
}

/// The replicated records of this node whose time is not over. What is damaged is left out: other
/// owners have it.
///
/// # Errors
/// A failing disk.
pub(crate) fn load(records: &Records, now: UnixTime) -> Result<Vec<Record>, RecordsError> {
    let mut found = Vec::new();
    for name in records.keys(KIND)? {
        let stored = match records.get(KIND, &name) {
            Ok(Some(bytes)) => protocol::wire::decode::<Stored>(&bytes).ok(),
            Ok(None) => continue,
            Err(RecordsError::Damaged { .. }) => None,
            Err(error) => return Err(error),
        };
        let Some(Stored { at, mut record }) =
            stored.filter(|stored| key(&stored.record.id) == name)
        else {
            tracing::warn!("a replicated record is damaged on disk; other owners have it");
            continue;
        };
        // A clock that was set back makes nothing live longer than it was to from `at`.
        let passed = Span::secs(now.0.saturating_sub(at.0));
        record.ttl = Span(record.ttl.0.saturating_sub(passed.0));
        if record.ttl > Span::ZERO {
            found.push(record);
        }
    }
    Ok(found)
}

/// Starts the thread that performs operations until `orders` is closed. It is to be joined: a
/// process that ends while a thread lets go of the database is aborted.
pub(crate) fn start(
    records: Arc<Records>,
    board: &Arc<Switchboard>,
    orders: mpsc::UnboundedReceiver<DiskOp>,
) -> Result<JoinHandle<()>, Fault> {
    let board = Arc::downgrade(board);
    let work = move || run(&records, &board, orders);
    let thread = std::thread::Builder::new().name("records".into()).spawn(work);
    thread.map_err(|error| Fault::new(error, "the system refuses threads to this process"))
}

fn run(records: &Records, board: &Weak<Switchboard>, mut orders: mpsc::UnboundedReceiver<DiskOp>) {
    while let Some(first) = orders.blocking_recv() {
        let (mut changes, mut writes, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut next = Some(first);
        while let Some(op) = next {
            match op {
                DiskOp::Write { write, record } => {
                    let name = key(&record.id);
                    let stored = Stored { at: Clock::unix(), record };
                    let value = protocol::wire::encode(&stored).unwrap_or_default();
                    bytes += value.len();
                    changes.push((name, Some(value)));
                    writes.push(write);
                }
                DiskOp::Erase(id) => changes.push((key(&id), None)),
            }
            let full = changes.len() >= BATCH_OPS || bytes >= BATCH_BYTES;
            next = if full { None } else { orders.try_recv().ok() };
        }
        let result = records.apply(KIND, changes);
        if let Err(error) = &result {
            tracing::error!(%error, "replicated records could not be written; they are tried again");
        }
        let Some(board) = board.upgrade() else { return };
        for write in writes {
            let durable = result.is_ok();
            board.send(Input::State(state::In::Written { write, durable }));
        }
    }
}

#[cfg(test)]
mod tests;
