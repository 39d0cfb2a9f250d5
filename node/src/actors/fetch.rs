//! The shell of the transfer agent: starts fetches, tells the block manager of each block as it
//! arrives, stops fetches nobody waits for.

use crate::node::Node;
use crate::switchboard::FetchOrder;
use protocol::op::{FetchOp, OpId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use wiring::Input;

/// Fetches under way.
type UnderWay = Arc<Mutex<BTreeMap<OpId, CancellationToken>>>;

/// Runs until the node stops.
pub(crate) async fn run(node: Arc<Node>, mut orders: mpsc::UnboundedReceiver<FetchOrder>) {
    let under_way = UnderWay::default();
    loop {
        let order = tokio::select! {
            order = orders.recv() => order,
            () = node.stop.cancelled() => None,
        };
        match order {
            Some(FetchOrder::Start(op)) => {
                let stop = node.stop.child_token();
                under_way
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(op.op, stop.clone());
                node.tasks.spawn(fetch(node.clone(), op, stop, under_way.clone()));
            }
            Some(FetchOrder::Cancel(op)) => {
                let running = under_way.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(stop) = running.get(&op) {
                    stop.cancel();
                }
            }
            None => return,
        }
    }
}

async fn fetch(node: Arc<Node>, op: FetchOp, stop: CancellationToken, under_way: UnderWay) {
    let id = op.op;
    let (progress, mut arrived) = mpsc::channel(op.blocks.len().max(1));
    let addresses = node.roster.addresses(&op.from);
    let deadline = node.clock.instant(op.deadline);
    if let Some(pool) = node.dram.clone() {
        let transfer = &node.transfer;
        let work = transfer.fetch(op, &addresses, pool, deadline, progress);
        tokio::pin!(work);
        let mut running = true;
        while running {
            tokio::select! {
                biased;
                Some((index, result)) = arrived.recv() => tell(&node, id, index, result),
                _ = &mut work => running = false,
                () = stop.cancelled() => running = false,
            }
        }
    }
    // Dropping the work has ended all writes; what arrived before is told first.
    while let Ok((index, result)) = arrived.try_recv() {
        tell(&node, id, index, result);
    }
    under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    node.board.send(Input::Store(kvstore::In::FetchEnded { op: id }));
}

fn tell(node: &Arc<Node>, op: OpId, index: usize, result: protocol::op::Fetched) {
    if matches!(result, protocol::op::Fetched::Corrupt) {
        tracing::warn!("a peer sent a block that does not match its signed digest");
    }
    node.board.send(Input::Store(kvstore::In::Fetched { op, index, result }));
}
