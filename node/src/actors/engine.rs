//! The shell of an engine: passes its events on to the block manager, its load to the node.

use crate::node::Node;
use protocol::id::EngineId;
use protocol::op::{EngineEvent, LeaseId};
use std::sync::Arc;
use tokio::sync::mpsc;
use wiring::Input;

/// Events that an engine may be ahead of the block manager; then it waits.
pub(crate) const EVENTS_MAX: usize = 1024;

/// Runs until the engine is gone. `releases` are leases that the engine has given up.
pub(crate) async fn run(
    node: Arc<Node>,
    engine: EngineId,
    mut events: mpsc::Receiver<EngineEvent>,
    mut releases: mpsc::UnboundedReceiver<LeaseId>,
) {
    loop {
        tokio::select! {
            event = events.recv() => {
                let Some(event) = event else { break };
                pass_on(&node, engine, event).await;
            }
            Some(lease) = releases.recv() => {
                // What the engine told before it gave the lease up is in the channel already.
                while let Ok(event) = events.try_recv() {
                    pass_on(&node, engine, event).await;
                }
                node.board.send(Input::Store(kvstore::In::Released(lease)));
            }
        }
    }
    releases.close();
    while let Some(lease) = releases.recv().await {
        node.board.send(Input::Store(kvstore::In::Released(lease)));
    }
    tracing::debug!(engine = engine.0, "engine events ended");
}

/// Tells the block manager, and the node what concerns it.
async fn pass_on(node: &Node, engine: EngineId, event: EngineEvent) {
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
    // A block manager that is gone means that the node stops.
    let _ = machines.store.cast(mail);
}
