//! The shell of the transfer agent: starts fetches, tells the block manager of each block as it
//! arrives, stops fetches nobody waits for.

use crate::node::Node;
use crate::switchboard::FetchOrder;
use futures::future::BoxFuture;
use protocol::op::{FetchOp, Fetched, OpId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wiring::Input;

/// The node as this shell needs it.
pub(crate) trait Ground: Send + Sync + 'static {
    /// Fetches blocks until the operation's deadline. Dropping the future ends all writes.
    fn fetch(&self, op: FetchOp, progress: mpsc::Sender<(usize, Fetched)>) -> BoxFuture<'_, ()>;
    /// Tells the block manager.
    fn tell(&self, input: kvstore::In);
    /// Cancelled when the node stops.
    fn stop(&self) -> &CancellationToken;
    /// Where tasks are counted.
    fn tasks(&self) -> &TaskTracker;
}

impl Ground for Node {
    fn fetch(&self, op: FetchOp, progress: mpsc::Sender<(usize, Fetched)>) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let Some(pool) = self.dram.clone() else { return };
            let addresses = self.roster.addresses(&op.from);
            let deadline = self.clock.instant(op.deadline);
            self.transfer.fetch(op, &addresses, pool, deadline, progress).await;
        })
    }

    fn tell(&self, input: kvstore::In) {
        self.board.send(Input::Store(input));
    }

    fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }
}

/// Fetches under way.
type UnderWay = Arc<Mutex<BTreeMap<OpId, CancellationToken>>>;

/// Runs until the node stops.
pub(crate) async fn run(node: Arc<impl Ground>, mut orders: mpsc::UnboundedReceiver<FetchOrder>) {
    let under_way = UnderWay::default();
    loop {
        let order = tokio::select! {
            order = orders.recv() => order,
            () = node.stop().cancelled() => None,
        };
        match order {
            Some(FetchOrder::Start(op)) => {
                let stop = node.stop().child_token();
                under_way
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(op.op, stop.clone());
                node.tasks().spawn(fetch(node.clone(), op, stop, under_way.clone()));
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

async fn fetch(node: Arc<impl Ground>, op: FetchOp, stop: CancellationToken, under_way: UnderWay) {
    let id = op.op;
    let (progress, mut arrived) = mpsc::channel(op.blocks.len().max(1));
    {
        let work = node.fetch(op, progress);
        tokio::pin!(work);
        let mut running = true;
        while running {
            tokio::select! {
                biased;
                Some((index, result)) = arrived.recv() => tell(&*node, id, index, result),
                () = &mut work => running = false,
                () = stop.cancelled() => running = false,
            }
        }
    }
    // Dropping the work has ended all writes; what arrived before is told first.
    while let Ok((index, result)) = arrived.try_recv() {
        tell(&*node, id, index, result);
    }
    under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    node.tell(kvstore::In::FetchEnded { op: id });
}

fn tell(node: &impl Ground, op: OpId, index: usize, result: Fetched) {
    if matches!(result, Fetched::Corrupt) {
        tracing::warn!("a peer sent a block that does not match its signed digest");
    }
    node.tell(kvstore::In::Fetched { op, index, result });
}

#[cfg(test)]
mod tests;
