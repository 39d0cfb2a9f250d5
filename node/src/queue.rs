//! The admission queue of this node's engines: the pure queue machine, and those who wait in it.

use crate::actors::shell::{Mail, Parts, Perform, Shell};
use crate::clock::Clock;
use crate::fault::Fault;
use protocol::id::RequestId;
use protocol::plan::Placed;
use protocol::prompt::{Prompt, Refusal};
use ractor::{Actor, ActorRef};
use router::admission::{self, Arrival};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;

type Answer = oneshot::Sender<Result<(), Refusal>>;
type Waiting = Arc<Mutex<BTreeMap<RequestId, Answer>>>;

/// The queue in front of this node's engines.
pub(crate) struct Queue {
    actor: ActorRef<Mail<admission::In>>,
    waiting: Waiting,
    depth: Arc<Depth>,
}

/// How much waits, for the heartbeat.
#[derive(Default)]
struct Depth {
    requests: AtomicU32,
    tokens: AtomicU32,
}

/// What waits in front of the engines.
pub(crate) struct Backlog {
    /// Requests.
    pub(crate) requests: u32,
    /// Their uncached prompt tokens.
    pub(crate) tokens: u32,
}

struct Answers(Waiting);

impl Perform<admission::Out> for Answers {
    fn perform(&self, effects: &mut Vec<admission::Out>) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for effect in effects.drain(..) {
            let (request, answer) = match effect {
                admission::Out::Admit(request) => (request, Ok(())),
                admission::Out::Refuse(request, refusal) => (request, Err(refusal)),
            };
            if let Some(sender) = waiting.remove(&request) {
                // A caller that went away drops its ticket, which tells the machine.
                let _ = sender.send(answer);
            }
        }
    }
}

/// A place in the queue, then in the running window; leaving is telling the machine.
pub(crate) struct Ticket {
    request: RequestId,
    waiting: Waiting,
    actor: ActorRef<Mail<admission::In>>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.request);
        let _ = self.actor.cast(Mail::Input(admission::In::Cancel(self.request), None));
    }
}

/// Counts one waiting request while it lives.
struct Counted(Arc<Depth>, u32);

impl Counted {
    fn new(depth: &Arc<Depth>, tokens: u32) -> Self {
        depth.requests.fetch_add(1, Ordering::Relaxed);
        depth.tokens.fetch_add(tokens, Ordering::Relaxed);
        Self(depth.clone(), tokens)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
        self.0.tokens.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl Queue {
    /// Starts the queue of a node on which `window` requests may run at once.
    pub(crate) async fn start(window: usize, clock: Clock) -> Result<Self, Fault> {
        let window = u32::try_from(window).unwrap_or(u32::MAX);
        let config = admission::Config { window, ..admission::Config::default() };
        let waiting = Waiting::default();
        let parts = Parts {
            machine: admission::Queue::new(config),
            perform: Answers(waiting.clone()),
            clock,
        };
        let (actor, _) = Actor::spawn(None, Shell::<admission::Queue, Answers>::new(), parts)
            .await
            .map_err(|error| Fault::new(error, "this is a defect; please report it"))?;
        Ok(Self { actor, waiting, depth: Arc::default() })
    }

    /// Waits for this prompt's turn.
    pub(crate) async fn enter(&self, prompt: &Prompt, placed: &Placed) -> Result<Ticket, Refusal> {
        let (sender, answer) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(prompt.id, sender);
        let (waiting, actor) = (self.waiting.clone(), self.actor.clone());
        let ticket = Ticket { request: prompt.id, waiting, actor };
        let uncached = placed.plan.estimate.computed_tokens;
        let counted = Counted::new(&self.depth, uncached);
        let arrival = Arrival {
            id: prompt.id,
            strict: prompt.hints.strict_priority,
            priority: prompt.hints.priority,
            uncached,
        };
        let _ = self.actor.cast(Mail::Input(admission::In::Arrive(arrival), None));
        let turn = answer.await;
        drop(counted);
        turn.map_err(|_| Refusal::Gone)??;
        Ok(ticket)
    }

    /// What waits now.
    pub(crate) fn waiting(&self) -> Backlog {
        Backlog {
            requests: self.depth.requests.load(Ordering::Relaxed),
            tokens: self.depth.tokens.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests;
