//! The shell of an engine: passes its events on to the block manager, its load to the node.

use crate::node::Node;
use protocol::event::EngineLoad;
use protocol::id::EngineId;
use protocol::op::{EngineEvent, LeaseId};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Events that an engine may be ahead of the block manager; then it waits.
pub(crate) const EVENTS_MAX: usize = 1024;

/// The node as this shell needs it.
pub(crate) trait Ear: Send + Sync {
    /// Notes an engine's load.
    fn note_load(&self, engine: EngineId, load: EngineLoad);
    /// Notes that an engine stopped.
    fn engine_died(&self, engine: EngineId);
    /// Places in the block manager's mailbox.
    fn mail(&self) -> &Arc<Semaphore>;
    /// Tells the block manager. One that is gone means that the node stops.
    fn tell(&self, input: kvstore::In, permit: Option<OwnedSemaphorePermit>);
}

impl Ear for Node {
    fn note_load(&self, engine: EngineId, load: EngineLoad) {
        Self::note_load(self, engine, load);
    }

    fn engine_died(&self, engine: EngineId) {
        Self::engine_died(self, engine);
    }

    fn mail(&self) -> &Arc<Semaphore> {
        &self.engine_mail
    }

    fn tell(&self, input: kvstore::In, permit: Option<OwnedSemaphorePermit>) {
        if let Some(machines) = self.board.machines() {
            let _ = machines.store.cast(super::shell::Mail::Input(input, permit));
        }
    }
}

/// Runs until the engine is gone. `releases` are leases that the engine has given up.
pub(crate) async fn run(
    node: Arc<impl Ear>,
    engine: EngineId,
    mut events: mpsc::Receiver<EngineEvent>,
    mut releases: mpsc::UnboundedReceiver<LeaseId>,
) {
    loop {
        tokio::select! {
            event = events.recv() => {
                let Some(event) = event else { break };
                pass_on(&*node, engine, event).await;
            }
            Some(lease) = releases.recv() => {
                // What the engine told before it gave the lease up is in the channel already.
                while let Ok(event) = events.try_recv() {
                    pass_on(&*node, engine, event).await;
                }
                node.tell(kvstore::In::Released(lease), None);
            }
        }
    }
    releases.close();
    while let Some(lease) = releases.recv().await {
        node.tell(kvstore::In::Released(lease), None);
    }
    tracing::debug!(engine = engine.0, "engine events ended");
}

/// Tells the block manager, and the node what concerns it.
async fn pass_on(node: &impl Ear, engine: EngineId, event: EngineEvent) {
    match &event {
        EngineEvent::Load(load) => node.note_load(engine, *load),
        EngineEvent::Died(reason) => {
            tracing::error!(engine = engine.0, reason, "the engine died");
            node.engine_died(engine);
        }
        _ => {}
    }
    // Each event holds a place until it is handled, so that the mailbox stays bounded.
    let Ok(permit) = node.mail().clone().acquire_owned().await else { return };
    node.tell(kvstore::In::Engine(engine, event), Some(permit));
}

#[cfg(test)]
mod tests;
