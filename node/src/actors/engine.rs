//! The shell of an engine: passes its events on to the block manager, its load to the node.

use crate::node::Node;
use protocol::id::EngineId;
use protocol::op::EngineEvent;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Events that an engine may be ahead of the block manager; then it waits.
pub(crate) const EVENTS_MAX: usize = 1024;

/// Runs until the engine is gone.
pub(crate) async fn run(
    node: Arc<Node>,
    engine: EngineId,
    mut events: mpsc::Receiver<EngineEvent>,
) {
    while let Some(event) = events.recv().await {
        match &event {
            EngineEvent::Load(load) => node.note_load(engine, *load),
            EngineEvent::Died(reason) => {
                tracing::error!(engine = engine.0, reason, "the engine died");
                node.engine_died(engine);
            }
            _ => {}
        }
        let Some(machines) = node.board.machines() else { return };
        // Each event holds a place until it is handled, so that the mailbox stays bounded.
        let Ok(permit) = node.engine_mail.clone().acquire_owned().await else { return };
        let mail = super::shell::Mail::Input(kvstore::In::Engine(engine, event), Some(permit));
        if machines.store.cast(mail).is_err() {
            return;
        }
    }
    tracing::debug!(engine = engine.0, "engine events ended");
}
