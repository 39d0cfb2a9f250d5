//! The shell of the NVMe tier: passes what it tells on to the block manager, and the operator what
//! concerns them.

use crate::node::Node;
use protocol::disk::{DiskEvent, DiskRead};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use wiring::Input;

/// Between two looks whether all is written, when the node stops.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Longest wait for that.
const FLUSH_WITHIN: Duration = Duration::from_secs(5);

/// The node as this shell needs it.
pub(crate) trait Ear: Send + Sync {
    /// Tells the block manager.
    fn tell(&self, input: kvstore::In);
}

impl Ear for Node {
    fn tell(&self, input: kvstore::In) {
        self.board.send(Input::Store(input));
    }
}

/// Runs until the tier is gone.
pub(crate) async fn run(node: Arc<impl Ear>, mut events: mpsc::UnboundedReceiver<DiskEvent>) {
    while let Some(event) = events.recv().await {
        pass_on(&*node, event);
    }
}

/// Tells the block manager what the tier has told by now: what it holds, before the first request.
pub(crate) fn pass_on_all(node: &impl Ear, events: &mut mpsc::UnboundedReceiver<DiskEvent>) {
    while let Ok(event) = events.try_recv() {
        pass_on(node, event);
    }
}

fn pass_on(node: &impl Ear, event: DiskEvent) {
    match &event {
        DiskEvent::Found(blocks) => tracing::info!(blocks = blocks.len(), "NVMe tier in use"),
        DiskEvent::Quarantined { reason } => {
            tracing::error!(
                reason,
                "the NVMe tier cannot be used; the node goes on without it and tries again: \
                 mend or empty the disk of nvme.dir, or move the folder `nvme` away"
            );
        }
        DiskEvent::Read { result: DiskRead::Corrupt, .. } => {
            tracing::warn!("a block on NVMe does not match its signed digest; it was dropped");
        }
        DiskEvent::Read { .. } | DiskEvent::Written { .. } => {}
    }
    node.tell(kvstore::In::Disk(event));
}

/// Waits, within bounds, until what was to be written is.
pub(crate) async fn flush(node: &Node) {
    let written = async {
        while let Some(stats) = crate::status::store_stats(node).await {
            let counted = &stats.counters;
            let answered = counted.nvme_written + counted.nvme_write_failed;
            if stats.nvme_waiting == 0 && counted.nvme_writes == answered {
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    if tokio::time::timeout(FLUSH_WITHIN, written).await.is_err() {
        tracing::warn!("some blocks were not written to NVMe in time");
    }
}

#[cfg(test)]
mod tests;
