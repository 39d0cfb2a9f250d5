//! What every engine offers.

use protocol::constraint::Constraint;
use protocol::hash::Token;
use protocol::id::{NodeId, RequestId};
use protocol::op::{EngineOp, EngineSpec, Grant};
use protocol::prompt::{Limits, Refusal, Sampling, StreamItem};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc::Sender;

/// An engine: token ids in, token ids out.
pub trait Engine: Send + Sync + 'static {
    /// What it is.
    fn spec(&self) -> &EngineSpec;

    /// Takes a job; never blocks. Refused are jobs that can never run ([`Refusal::TooLong`],
    /// [`Refusal::Failed`] for malformed ones), more jobs than may wait ([`Refusal::Busy`]), and
    /// all jobs once the engine died ([`Refusal::Failed`]). A refused job's guard is dropped.
    fn submit(&self, job: Job) -> Result<(), Refusal>;

    /// Takes an operation of the block manager; never blocks. Operations that arrive before the
    /// job of their lease are kept for it. A dead engine drops them: its pool is lost.
    fn perform(&self, op: EngineOp);

    /// Whether answers are held to the constraint of their job. `false` only of an engine that
    /// computes nothing: what its script says is taken for what the author of the script wants.
    /// Any other engine that cannot enforce a constraint refuses the job.
    fn constrains(&self) -> bool;

    /// How it is now.
    fn health(&self) -> Health;
}

/// State of an engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Health {
    /// It works, or has nothing to do.
    Healthy,
    /// It has work but has finished no step for too long.
    Sick {
        /// In words.
        reason: String,
    },
    /// It stopped; all its sequences failed and its pool is lost.
    Died {
        /// In words.
        reason: String,
    },
}

/// One sequence to run.
pub struct Job {
    /// The request, for logs.
    pub request: RequestId,
    /// Its slots. They must cover the prompt.
    pub grant: Grant,
    /// The whole prompt; at least one token.
    pub prompt: Arc<Vec<Token>>,
    /// Tokens at the prompt's end that earlier runs of the same request answered. An engine that
    /// plays a script goes on after them, and so does the grammar of a constrained answer.
    pub resumed: u32,
    /// How to choose tokens.
    pub sampling: Sampling,
    /// When to stop.
    pub limits: Limits,
    /// What the answer must look like; the last `resumed` tokens of the prompt are its beginning.
    pub constraint: Option<Constraint>,
    /// Higher goes sooner.
    pub priority: i32,
    /// When the request reached this node; earlier goes sooner among equal priorities.
    pub arrived: Instant,
    /// This node, to be told in the stream.
    pub serving_node: NodeId,
    /// Where the stream goes. While it is full the sequence pauses; when it is closed the sequence
    /// is removed within one step.
    pub sink: Sender<StreamItem>,
    /// The lease on the slots; dropped exactly when no more write to them can land.
    pub guard: Box<dyn Send>,
}

/// Why an engine does not start.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The model has a shape that the engine cannot run.
    #[error("the embedded engine cannot run this model: it has {what}")]
    Unsupported {
        /// The shape.
        what: String,
    },
    /// A weight cannot be read.
    #[error("weight {name} cannot be read: {detail}; fetch the model again")]
    Weights {
        /// The tensor.
        name: String,
        /// Why.
        detail: String,
    },
    /// A setting makes no sense.
    #[error("engine setting {setting}: {problem}")]
    Setting {
        /// Which.
        setting: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The system gives no thread.
    #[error("the engine's thread cannot be started: {0}")]
    Thread(#[from] std::io::Error),
}
