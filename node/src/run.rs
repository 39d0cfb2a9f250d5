//! A placed request on this node: admission, lease, engine.

use crate::node::Node;
use crate::queue::Ticket;
use crate::switchboard::Switchboard;
use engine::Job;
use kvstore::{In, Prepare};
use protocol::id::EngineId;
use protocol::op::{Grant, LeaseId};
use protocol::plan::Placed;
use protocol::prompt::{Prompt, Refusal, StreamItem};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use wiring::Input;

/// Longest wait for slots of a request that was admitted.
const SLOTS_WITHIN: Duration = Duration::from_secs(60);

/// Numbers leases; never reused in one life.
#[derive(Default)]
pub(crate) struct LeaseCounter(AtomicU64);

impl LeaseCounter {
    /// A fresh id.
    pub(crate) fn next(&self) -> LeaseId {
        LeaseId(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// A request's hold on slots and on its place in the running window. The engine drops it when no
/// more write can land; the release then follows the engine's events to the block manager, through a
/// lock-free queue that holds at most one message per lease.
struct LeaseGuard {
    board: Arc<Switchboard>,
    engine: EngineId,
    lease: LeaseId,
    _ticket: Arc<Ticket>,
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        self.board.release(self.engine, self.lease);
    }
}

/// Starts a placed prompt on this node; its items go to `sink`. Dropping the sink's receiver
/// aborts it.
pub(crate) async fn start(
    node: &Arc<Node>,
    prompt: &Prompt,
    placed: &Placed,
    sink: mpsc::Sender<StreamItem>,
) -> Result<(), Refusal> {
    let arrived = Instant::now();
    let target = placed.plan.prefill;
    if target.node != node.id || target.incarnation != node.incarnation || node.is_draining() {
        return Err(Refusal::Gone);
    }
    let engine = node.board.engine(target.engine).ok_or(Refusal::Gone)?;
    let spec = engine.spec();
    let tokens = u32::try_from(prompt.tokens.len()).unwrap_or(u32::MAX);
    if tokens >= spec.context || tokens == 0 {
        let limit = spec.context.saturating_sub(1);
        return Err(Refusal::TooLong { tokens, limit });
    }
    let ticket = tokio::select! {
        ticket = node.queue.enter(prompt, placed) => Arc::new(ticket?),
        () = sink.closed() => return Err(Refusal::Gone),
    };
    let (grant, guard) = lease(node, prompt, placed, ticket, arrived).await?;
    let lease = grant.lease;
    engine.submit(Job {
        request: prompt.id,
        grant,
        prompt: prompt.tokens.clone(),
        sampling: prompt.sampling,
        limits: prompt.limits.clone(),
        priority: prompt.hints.priority,
        arrived,
        serving_node: node.id,
        sink,
        guard: Box::new(guard),
    })?;
    node.board.send(Input::Store(In::Submitted(lease)));
    Ok(())
}

/// Asks the block manager for slots until it has some; a busy pool frees some as others finish.
async fn lease(
    node: &Arc<Node>,
    prompt: &Prompt,
    placed: &Placed,
    ticket: Arc<Ticket>,
    arrived: Instant,
) -> Result<(Grant, LeaseGuard), Refusal> {
    let key = node.routing_key(&prompt.tenant, prompt.salt.as_ref()).ok_or(Refusal::Gone)?;
    loop {
        let lease = node.leases.next();
        let answer = node.board.expect_lease(lease);
        let engine = placed.plan.prefill.engine;
        let guard =
            LeaseGuard { board: node.board.clone(), engine, lease, _ticket: ticket.clone() };
        node.board.send(Input::Store(In::Prepare(Box::new(Prepare {
            lease,
            engine,
            tenant: prompt.tenant.clone(),
            session: prompt.session.clone(),
            key: key.clone(),
            prefix: prompt.prefix.clone(),
            prompt_tokens: u32::try_from(prompt.tokens.len()).unwrap_or(u32::MAX),
            max_tokens: prompt.limits.max_tokens,
            sources: placed.plan.sources.clone(),
            claims: prompt.hints.claims.clone(),
            priority: prompt.hints.priority,
        }))));
        match answer.await.map_err(|_| Refusal::Gone)? {
            Ok(grant) => return Ok((grant, guard)),
            Err(Refusal::Busy { retry_after }) if arrived.elapsed() < SLOTS_WITHIN => {
                drop(guard);
                tokio::time::sleep(Duration::from_nanos(retry_after.0)).await;
            }
            Err(refusal) => return Err(refusal),
        }
    }
}
