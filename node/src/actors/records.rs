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

/// A record as it is written, under its name. None when it cannot be: nothing may then be written
/// and called durable.
fn stored(at: UnixTime, record: Record) -> Option<(Vec<u8>, Vec<u8>)> {
    let name = key(&record.id);
    let encoded = protocol::wire::encode(&Stored { at, record });
    encoded
        .inspect_err(|error| tracing::error!(%error, "a record cannot be stored"))
        .ok()
        .map(|value| (name, value))
}

/// The replicated records of this node, without time left where it is over: what then stays of one,
/// the machine knows. What is damaged leaves the disk: other owners have it.
///
/// # Errors
/// A failing disk.
pub(crate) fn load(records: &Records, now: UnixTime) -> Result<Vec<Record>, RecordsError> {
    let (mut found, mut useless) = (Vec::new(), Vec::new());
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
            useless.push((name, None));
            continue;
        };
        // A clock that was set back makes nothing live longer than it was to from `at`.
        let passed = Span::secs(now.0.saturating_sub(at.0));
        record.ttl = Span(record.ttl.0.saturating_sub(passed.0));
        found.push(record);
    }
    if !useless.is_empty() {
        records.apply(KIND, useless)?;
    }
    Ok(found)
}

/// Starts the thread that performs operations until `orders` is closed. It is to be joined: a
/// process that ends while a thread lets go of the database is aborted.
pub(crate) fn start(
    records: Arc<Records>,
    board: &Arc<Switchboard>,
    orders: mpsc::Receiver<DiskOp>,
) -> Result<JoinHandle<()>, Fault> {
    let board = Arc::downgrade(board);
    let work = move || run(&records, &board, orders);
    let thread = std::thread::Builder::new().name("records".into()).spawn(work);
    thread.map_err(|error| Fault::new(error, "the system refuses threads to this process"))
}

fn run(records: &Records, board: &Weak<Switchboard>, mut orders: mpsc::Receiver<DiskOp>) {
    while let Some(first) = orders.blocking_recv() {
        let (mut changes, mut done, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut refused = Vec::new();
        let mut next = Some(first);
        while let Some(op) = next {
            match op {
                DiskOp::Write { write, record } => match stored(Clock::unix(), record) {
                    Some((name, value)) => {
                        bytes += value.len();
                        changes.push((name, Some(value)));
                        done.push(write);
                    }
                    None => refused.push(write),
                },
                DiskOp::Erase { write, id } => {
                    changes.push((key(&id), None));
                    done.push(write);
                }
            }
            let full = changes.len() >= BATCH_OPS || bytes >= BATCH_BYTES;
            next = if full { None } else { orders.try_recv().ok() };
        }
        let result = records.apply(KIND, changes);
        if let Err(error) = &result {
            tracing::error!(%error, "replicated records could not be written; they are tried again");
        }
        let Some(board) = board.upgrade() else { return };
        let done = done.into_iter().map(|write| (write, result.is_ok()));
        for (write, durable) in done.chain(refused.into_iter().map(|write| (write, false))) {
            board.send(Input::State(state::In::Written { write, durable }));
        }
    }
}

#[cfg(test)]
mod tests;
