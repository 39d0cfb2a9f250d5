//! The path of a request: place, run here or there, relay; place again elsewhere when the place
//! failed before the first token.

use crate::metrics::Tally;
use crate::node::Node;
use crate::run;
use frontend::{Served, Want};
use protocol::id::{NodeId, RequestId};
use protocol::plan::Placed;
use protocol::prompt::{Prompt, Refusal, StreamItem};
use protocol::wire::serve::{ServeAnswer, ServeRequest};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

/// Items between engine and SSE writer; a slower reader pauses its sequence.
pub(crate) const STREAM_ITEMS: usize = 64;
/// Longest wait for a client to take an item. All room between it and the engine is full by then,
/// its socket's too, and its request holds a seat and slots that others wait for. A socket tells of
/// room only when a good part of the send buffer has gone, so a client of a few kB/s looks like one
/// that takes nothing.
pub(crate) const TAKEN_WITHIN: Duration = Duration::from_secs(60);
/// The same while others wait for the seat.
const TAKEN_WITHIN_WHILE_WANTED: Duration = Duration::from_secs(10);
/// Between two looks at whether others wait.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Places tried for one request.
const TRIES: usize = 3;

/// How one try ended before its stream began.
enum Setback {
    /// Placed by a stale view: the target is busier than the chooser believed.
    Bounced,
    /// The target could not be reached, or died.
    Lost,
    /// It refused.
    Refused(Refusal),
}

/// Serves a prompt somewhere in the cluster. Dropping the returned receiver cancels.
pub(crate) async fn serve(node: Arc<Node>, prompt: Prompt, want: Want) -> Result<Served, Refusal> {
    let served = find_place(&node, prompt, want).await;
    let tally = &node.tally;
    Tally::count(if served.is_ok() { &tally.served } else { &tally.refused });
    served
}

async fn find_place(node: &Arc<Node>, mut prompt: Prompt, want: Want) -> Result<Served, Refusal> {
    // `nvext.target`, a debugging aid, leaves one node.
    let mut avoid = want.target.map_or_else(Vec::new, |target| node.all_but(&target));
    let mut bounced = None;
    let mut last = None;
    for _ in 0..TRIES {
        let placed = match choose(node, &prompt, &avoid, bounced) {
            Ok(placed) => placed,
            // What an earlier place said is more telling than that no other is left.
            Err(refusal) => return Err(last.unwrap_or(refusal)),
        };
        let flight = node.placement.loads.placed(&placed, &prompt.prefix, node.clock.now());
        let target = placed.plan.prefill.node;
        // The prompt of a long session is large: it is lent, not copied.
        let request = ServeRequest { prompt, placed, bounced: bounced.is_some() };
        let started = if target == node.id {
            run_here(node, &request.prompt, &request.placed).await
        } else {
            run_there(node, target, &request).await
        };
        let setback = match started {
            Ok(items) => {
                flight.started(node.clock.now());
                let placed = request.placed;
                return Ok(Served {
                    items: relay(node.clone(), target, request.prompt.id, items),
                    serving_node: target.to_string(),
                    outcome: placed.outcome.clone(),
                    placed,
                });
            }
            Err(setback) => setback,
        };
        prompt = request.prompt;
        match setback {
            Setback::Bounced => bounced = Some(target),
            Setback::Lost => {
                let (request, peer) = (prompt.id, target.short());
                tracing::info!(%request, %peer, "a node went away before its first token");
                node.lost(target);
                avoid.push(target);
                last = Some(Refusal::Gone);
            }
            Setback::Refused(refusal @ (Refusal::Gone | Refusal::Failed(_))) => {
                avoid.push(target);
                last = Some(refusal);
            }
            Setback::Refused(refusal) => return Err(refusal),
        }
        Tally::count(&node.tally.replaced);
    }
    Err(last.unwrap_or(Refusal::NoTarget { model: prompt.model }))
}

/// Places the prompt; the node that bounced it is the last resort.
fn choose(
    node: &Node,
    prompt: &Prompt,
    avoid: &[NodeId],
    bounced: Option<NodeId>,
) -> Result<Placed, Refusal> {
    let Some(busy) = bounced else { return node.place(prompt, avoid) };
    let wider: Vec<NodeId> = avoid.iter().copied().chain([busy]).collect();
    node.place(prompt, &wider).or_else(|_| node.place(prompt, avoid))
}

/// The first item decides: until it has come, the request can go elsewhere.
struct Items {
    first: StreamItem,
    rest: Rest,
}

enum Rest {
    Here(mpsc::Receiver<StreamItem>),
    There(mpsc::Receiver<ServeAnswer>),
}

async fn run_here(node: &Arc<Node>, prompt: &Prompt, placed: &Placed) -> Result<Items, Setback> {
    let (sink, mut items) = mpsc::channel(STREAM_ITEMS);
    run::start(node, prompt, placed, sink).await.map_err(Setback::Refused)?;
    match items.recv().await {
        Some(StreamItem::Failed(refusal)) => Err(Setback::Refused(refusal)),
        Some(first) => Ok(Items { first, rest: Rest::Here(items) }),
        None => Err(Setback::Refused(Refusal::Failed("the engine stopped".into()))),
    }
}

async fn run_there(
    node: &Arc<Node>,
    target: NodeId,
    request: &ServeRequest,
) -> Result<Items, Setback> {
    let addresses = node.roster.addresses(&target);
    let mut answers = node.transfer.serve(target, &addresses, request).await.map_err(|error| {
        tracing::info!(peer = %target.short(), %error, "could not hand a request over");
        Setback::Lost
    })?;
    match answers.recv().await {
        Some(ServeAnswer::Item(StreamItem::Failed(refusal)) | ServeAnswer::Refused(refusal)) => {
            Err(Setback::Refused(refusal))
        }
        Some(ServeAnswer::Item(first)) => Ok(Items { first, rest: Rest::There(answers) }),
        Some(ServeAnswer::Bounced(load)) => {
            tracing::debug!(peer = %target.short(), ?load, "bounced");
            Err(Setback::Bounced)
        }
        // The transport answers that by itself.
        Some(ServeAnswer::Unknown) | None => Err(Setback::Lost),
    }
}

/// Why an item was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Untaken {
    /// The reader went away.
    Gone,
    /// It is there, and took nothing for too long.
    Stuck,
}

/// Gives an item to the reader, who has `within` to make room for it.
pub(crate) async fn pass_on(
    sink: &mpsc::Sender<StreamItem>,
    item: StreamItem,
    within: Duration,
) -> Result<(), Untaken> {
    give(sink, item, sleep(within)).await
}

/// Gives an item to the reader, who has until the end of `patience` to make room for it.
async fn give(
    sink: &mpsc::Sender<StreamItem>,
    item: StreamItem,
    patience: impl Future<Output = ()>,
) -> Result<(), Untaken> {
    tokio::select! {
        biased;
        room = sink.reserve() => {
            room.map_err(|_| Untaken::Gone)?.send(item);
            Ok(())
        }
        () = patience => Err(Untaken::Stuck),
    }
}

/// Ends when a reader that has taken nothing since now is given up.
async fn patience(others_wait: impl Fn() -> bool) {
    let began = Instant::now();
    sleep(TAKEN_WITHIN_WHILE_WANTED).await;
    while began.elapsed() < TAKEN_WITHIN && !others_wait() {
        sleep(LOOK_EVERY).await;
    }
}

/// Whether requests wait for a seat at a node; of another one its last heartbeat says so.
fn is_wanted(node: &Node, target: &NodeId) -> bool {
    if *target == node.id {
        return node.queue.waiting().requests > 0;
    }
    let known = node.placement.loads.node(target);
    known.is_some_and(|known| known.view.engines.iter().any(|engine| engine.load.waiting > 0))
}

/// Passes the items on, and makes sure that the stream ends with exactly one last item, unless
/// nobody takes it.
fn relay(
    node: Arc<Node>,
    target: NodeId,
    request: RequestId,
    items: Items,
) -> mpsc::Receiver<StreamItem> {
    let (sink, receiver) = mpsc::channel(STREAM_ITEMS);
    node.clone().tasks.spawn(async move {
        let Items { first, mut rest } = items;
        let mut next = Some(first);
        while let Some(item) = next {
            let last = note(&node, &item);
            let counted = matches!(item, StreamItem::Failed(_));
            match give(&sink, item, patience(|| is_wanted(&node, &target))).await {
                Ok(()) if !last => {}
                // All is said, or the caller went away; dropping `rest` cancels.
                Ok(()) | Err(Untaken::Gone) => return,
                Err(Untaken::Stuck) => {
                    if !counted {
                        Tally::count(&node.tally.broken);
                    }
                    tracing::info!(%request, "a client takes nothing of its answer; it is ended");
                    return;
                }
            }
            next = tokio::select! {
                () = sink.closed() => return,
                () = node.stop.cancelled() => Some(StreamItem::Failed(Refusal::Gone)),
                item = rest.next() => item,
            };
        }
        let refusal = if target == node.id {
            Refusal::Failed("the answer broke off before its end".into())
        } else {
            let peer = target.short();
            tracing::info!(%request, %peer, "a node went away in the middle of an answer");
            node.lost(target);
            Refusal::Gone
        };
        Tally::count(&node.tally.broken);
        let _ = pass_on(&sink, StreamItem::Failed(refusal), TAKEN_WITHIN).await;
    });
    receiver
}

/// Counts what a last item says; false for items that are not the last.
fn note(node: &Node, item: &StreamItem) -> bool {
    match item {
        StreamItem::Started(_) | StreamItem::Tokens(_) => return false,
        StreamItem::Failed(_) => Tally::count(&node.tally.broken),
        StreamItem::Finished(finish) => {
            node.tally.add_prompt(&finish.prompt);
            node.tally.output.fetch_add(finish.output_tokens.into(), Ordering::Relaxed);
        }
    }
    true
}

impl Rest {
    async fn next(&mut self) -> Option<StreamItem> {
        match self {
            Self::Here(items) => items.recv().await,
            Self::There(answers) => match answers.recv().await? {
                ServeAnswer::Item(item) => Some(item),
                ServeAnswer::Refused(refusal) => Some(StreamItem::Failed(refusal)),
                ServeAnswer::Bounced(_) | ServeAnswer::Unknown => None,
            },
        }
    }
}

#[cfg(test)]
mod tests;
