//! A placed request on this node: admission, lease, engine.

use crate::node::Node;
use crate::queue::Ticket;
use crate::serve::{STREAM_ITEMS, TAKEN_WITHIN, Untaken, pass_on};
use crate::switchboard::Switchboard;
use engine::Job;
use kvstore::{In, Prepare};
use protocol::hash::Token;
use protocol::id::EngineId;
use protocol::op::{Grant, LeaseId};
use protocol::plan::Placed;
use protocol::prompt::{FinishReason, Prompt, PromptSources, Refusal, StreamItem};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use wiring::Input;

/// Longest wait for slots of a request that was admitted: as long as others may hold them.
const SLOTS_WITHIN: Duration = Duration::from_secs(600);
/// Longest wait for the entry node to take an item. It gives its client up before that, and this is
/// for one that does not.
const READ_WITHIN: Duration = TAKEN_WITHIN.saturating_add(Duration::from_secs(30));

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
    let target = placed.plan.prefill;
    if target.node != node.id || target.incarnation != node.incarnation || node.is_draining() {
        return Err(Refusal::Gone);
    }
    let engine = node.board.engine(target.engine).ok_or(Refusal::Gone)?;
    let context = engine.spec().context;
    let tokens = u32::try_from(prompt.tokens.len()).unwrap_or(u32::MAX);
    if tokens >= context || tokens == 0 {
        return Err(Refusal::TooLong { tokens, limit: context.saturating_sub(1) });
    }
    let arrived = Instant::now();
    let ticket = tokio::select! {
        ticket = node.queue.enter(prompt, placed) => Arc::new(ticket?),
        () = sink.closed() => return Err(Refusal::Gone),
        () = node.stop.cancelled() => return Err(Refusal::Gone),
    };
    let run = Run { node: node.clone(), placed: placed.clone(), ticket, arrived };
    let items = run.submit(prompt, 0).await?;
    node.tasks.spawn(run.follow(prompt.clone(), context, items, sink));
    Ok(())
}

/// A request that has its place in the running window.
struct Run {
    node: Arc<Node>,
    placed: Placed,
    ticket: Arc<Ticket>,
    arrived: Instant,
}

impl Run {
    /// Takes a lease and hands the prompt to the engine. The last `resumed` of its tokens were
    /// answered before.
    async fn submit(
        &self,
        prompt: &Prompt,
        resumed: u32,
    ) -> Result<mpsc::Receiver<StreamItem>, Refusal> {
        let (sink, items) = mpsc::channel(STREAM_ITEMS);
        let engine = self.placed.plan.prefill.engine;
        let ticket = self.ticket.clone();
        let (grant, guard) = lease(&self.node, prompt, &self.placed, ticket).await?;
        let lease = grant.lease;
        let engine = self.node.board.engine(engine).ok_or(Refusal::Gone)?;
        if prompt.constraint.is_some() && !engine.constrains() {
            tracing::debug!(request = %prompt.id, "the script is taken for what was demanded");
        }
        engine.submit(Job {
            request: prompt.id,
            grant,
            prompt: prompt.tokens.clone(),
            resumed,
            sampling: prompt.sampling,
            limits: prompt.limits.clone(),
            constraint: prompt.constraint.clone(),
            priority: prompt.hints.priority,
            arrived: self.arrived,
            serving_node: self.node.id,
            sink,
            guard: Box::new(guard),
        })?;
        self.node.board.send(Input::Store(In::Submitted(lease)));
        Ok(items)
    }

    /// Passes the items on. A sequence that the engine gave up for want of room goes on from its
    /// tokens so far as soon as there is room again: sampling depends on the position only, so the
    /// answer is the same, and most of its blocks are still cached.
    async fn follow(
        self,
        prompt: Prompt,
        context: u32,
        mut items: mpsc::Receiver<StreamItem>,
        sink: mpsc::Sender<StreamItem>,
    ) {
        let mut answered = Vec::new();
        let mut first: Option<PromptSources> = None;
        let mut before = 0;
        loop {
            let item = tokio::select! {
                item = items.recv() => item,
                () = sink.closed() => break,
                () = self.node.stop.cancelled() => Some(StreamItem::Failed(Refusal::Gone)),
            };
            let pass = match item {
                None => StreamItem::Failed(Refusal::Failed("the engine stopped".into())),
                Some(StreamItem::Started(_)) if first.is_some() => continue,
                Some(StreamItem::Started(started)) => {
                    first = Some(started.prompt);
                    StreamItem::Started(started)
                }
                Some(StreamItem::Tokens(tokens)) => {
                    answered.extend(&tokens);
                    StreamItem::Tokens(tokens)
                }
                Some(StreamItem::Finished(finish))
                    if finish.reason == FinishReason::ContextFull
                        && prompt.tokens.len() + answered.len() + 1 < context as usize =>
                {
                    before = u32::try_from(answered.len()).unwrap_or(u32::MAX);
                    let again = tokio::select! {
                        again = self.again(&prompt, &answered) => again,
                        () = sink.closed() => break,
                        () = self.node.stop.cancelled() => Err(Refusal::Gone),
                    };
                    match again {
                        Ok(more) => {
                            items = more;
                            continue;
                        }
                        Err(refusal) => StreamItem::Failed(refusal),
                    }
                }
                Some(StreamItem::Finished(mut finish)) => {
                    finish.output_tokens = finish.output_tokens.saturating_add(before);
                    finish.prompt = first.unwrap_or(finish.prompt);
                    StreamItem::Finished(finish)
                }
                Some(StreamItem::Failed(refusal)) => StreamItem::Failed(refusal),
            };
            let last = matches!(pass, StreamItem::Finished(_) | StreamItem::Failed(_));
            match pass_on(&sink, pass, READ_WITHIN).await {
                Ok(()) if !last => {}
                // Dropping `items` aborts what still runs.
                Ok(()) | Err(Untaken::Gone) => break,
                Err(Untaken::Stuck) => {
                    // Its entry node counts it.
                    let request = prompt.id;
                    tracing::info!(%request, "nobody takes this answer; the request is ended");
                    break;
                }
            }
        }
        self.end_session(&prompt);
    }

    /// Ends the claims of a session that sends no more.
    fn end_session(&self, prompt: &Prompt) {
        if let (true, Some(session)) = (prompt.hints.session_final, prompt.session.clone()) {
            let tenant = prompt.tenant.clone();
            self.node.board.send(Input::Store(In::SessionFinal { tenant, session }));
        }
    }

    /// Submits the prompt with what has been answered so far.
    async fn again(
        &self,
        prompt: &Prompt,
        answered: &[Token],
    ) -> Result<mpsc::Receiver<StreamItem>, Refusal> {
        let resumed = u32::try_from(answered.len()).unwrap_or(u32::MAX);
        let engine = self.placed.plan.prefill.engine;
        let key = self.node.engine_key(engine, prompt).ok_or(Refusal::Gone)?;
        let tokens = [prompt.tokens.as_slice(), answered].concat();
        let mut prompt = prompt.clone();
        prompt.limits.max_tokens = prompt.limits.max_tokens.saturating_sub(resumed).max(1);
        prompt.prefix = Arc::new(key.chain(&prompt.prefix, &tokens));
        prompt.tokens = Arc::new(tokens);
        tracing::debug!(request = ?prompt.id, tokens = prompt.tokens.len(), "waits for room again");
        self.submit(&prompt, resumed).await
    }
}

/// Asks the block manager for slots until it has some; a busy pool frees some as others finish.
async fn lease(
    node: &Arc<Node>,
    prompt: &Prompt,
    placed: &Placed,
    ticket: Arc<Ticket>,
) -> Result<(Grant, LeaseGuard), Refusal> {
    let since = Instant::now();
    let engine = placed.plan.prefill.engine;
    let key = node.engine_key(engine, prompt).ok_or(Refusal::Gone)?;
    loop {
        let lease = node.leases.next();
        let answer = node.board.expect_lease(lease);
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
        let answer = node.stop.run_until_cancelled(answer).await.ok_or(Refusal::Gone)?;
        match answer.map_err(|_| Refusal::Gone)? {
            Ok(grant) => return Ok((grant, guard)),
            Err(Refusal::Busy { retry_after }) if since.elapsed() < SLOTS_WITHIN => {
                drop(guard);
                let pause = tokio::time::sleep(Duration::from_nanos(retry_after.0));
                node.stop.run_until_cancelled(pause).await.ok_or(Refusal::Gone)?;
            }
            Err(refusal) => return Err(refusal),
        }
    }
}
