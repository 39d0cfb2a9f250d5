//! The shell of every pure machine: receive, call, perform.

use crate::clock::Clock;
use crate::switchboard::Switchboard;
use protocol::machine::Machine;
use protocol::time::Time;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use std::marker::PhantomData;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// A question on a machine's state.
pub(crate) type Question = Box<dyn FnOnce(&dyn std::any::Any) + Send>;

/// A message to a machine. Mailboxes are unbounded, so whatever comes from outside the node
/// carries a permit of a named, bounded semaphore; it is given back when the machine has handled
/// the message.
pub(crate) enum Mail<In> {
    /// An input.
    Input(In, Option<OwnedSemaphorePermit>),
    /// The machine's deadline may have come.
    Tick,
    /// Run a question on the machine's state, between two inputs.
    Ask(Question),
}

/// How a machine's effects leave its actor.
pub(crate) trait Perform<Out>: Send + Sync + 'static {
    /// Performs the effects, in order.
    fn perform(&self, effects: &mut Vec<Out>);
}

/// A machine as an actor.
pub(crate) struct Shell<M, P>(PhantomData<fn() -> (M, P)>);

impl<M, P> Shell<M, P> {
    /// A shell for `M`; the machine itself comes with the arguments.
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }
}

/// What a shell is started with.
pub(crate) struct Parts<M, P> {
    /// The machine.
    pub(crate) machine: M,
    /// Its way out.
    pub(crate) perform: P,
    /// The node's clock.
    pub(crate) clock: Clock,
}

/// A running machine.
pub(crate) struct Running<M: Machine, P> {
    parts: Parts<M, P>,
    outbox: Vec<M::Out>,
    wake_at: Option<Time>,
}

impl<M, P> Running<M, P>
where
    M: Machine,
    M::In: Send + 'static,
    P: Perform<M::Out>,
{
    fn finish(&mut self, me: &ActorRef<Mail<M::In>>) {
        self.parts.perform.perform(&mut self.outbox);
        self.outbox.clear();
        let Some(deadline) = self.parts.machine.deadline() else { return };
        if self.wake_at.is_none_or(|at| deadline < at) {
            self.wake_at = Some(deadline);
            me.send_after(self.parts.clock.until(deadline), || Mail::Tick);
        }
    }
}

impl<M, P> Actor for Shell<M, P>
where
    M: Machine + Send + 'static,
    M::In: Send + 'static,
    M::Out: Send + 'static,
    P: Perform<M::Out>,
{
    type Msg = Mail<M::In>;
    type State = Running<M, P>;
    type Arguments = Parts<M, P>;

    async fn pre_start(
        &self,
        me: ActorRef<Self::Msg>,
        parts: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        let mut running = Running { parts, outbox: Vec::new(), wake_at: None };
        running.finish(&me);
        Ok(running)
    }

    async fn handle(
        &self,
        me: ActorRef<Self::Msg>,
        mail: Self::Msg,
        running: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        let now = running.parts.clock.now();
        match mail {
            Mail::Input(input, permit) => {
                running.parts.machine.handle(now, input, &mut running.outbox);
                drop(permit);
            }
            Mail::Tick => {
                running.wake_at = None;
                if running.parts.machine.deadline().is_some_and(|deadline| deadline <= now) {
                    running.parts.machine.tick(now, &mut running.outbox);
                }
            }
            Mail::Ask(question) => question(&running.parts.machine),
        }
        running.finish(&me);
        Ok(())
    }
}

/// Returns when a machine is gone: it was stopped, or it panicked.
pub(crate) async fn gone<In: Send + 'static>(actor: &ActorRef<Mail<In>>) {
    let _ = actor.get_cell().wait(None).await;
}

/// Effects of the three cluster machines go through the wiring to the switchboard.
pub(crate) struct Wired<F> {
    /// Where deliveries go.
    pub(crate) board: Arc<Switchboard>,
    /// Names the machine an effect comes from.
    pub(crate) effect: F,
}

impl<Out, F> Perform<Out> for Wired<F>
where
    Out: Send + 'static,
    F: Fn(Out) -> wiring::Effect + Send + Sync + 'static,
{
    fn perform(&self, effects: &mut Vec<Out>) {
        let mut deliveries = Vec::new();
        for effect in effects.drain(..) {
            wiring::deliver((self.effect)(effect), &mut deliveries);
        }
        for delivery in deliveries {
            self.board.dispatch(delivery);
        }
    }
}

#[cfg(test)]
mod tests;
