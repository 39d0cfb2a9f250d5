//! A request as the cluster sees it, and what comes back: tokens in, tokens out.

use crate::block::Claim;
use crate::constraint::Constraint;
use crate::hash::{ClientSalt, PrefixHash, Token};
use crate::id::{NodeId, RequestId, SessionId, TenantId};
use crate::time::Span;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A tokenised request: no text, no dialect.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Prompt {
    /// The request.
    pub id: RequestId,
    /// Served model name, as in `/v1/models`.
    pub model: String,
    /// Whose.
    pub tenant: TenantId,
    /// The agent session, when named.
    pub session: Option<SessionId>,
    /// The whole prompt; shared, because a long one is looked at in many places.
    #[serde(with = "crate::wire::packed::tokens")]
    pub tokens: Arc<Vec<Token>>,
    /// Names of the prompt's full granules, in order.
    #[serde(with = "crate::wire::packed::names")]
    pub prefix: Arc<Vec<PrefixHash>>,
    /// Narrows the tenant's key space (`cache_salt`); the names above are under it.
    pub salt: Option<ClientSalt>,
    /// How to choose tokens.
    pub sampling: Sampling,
    /// When to stop.
    pub limits: Limits,
    /// What the answer must look like. An engine that cannot enforce it refuses the prompt.
    pub constraint: Option<Constraint>,
    /// What the agent tells about itself. Hints never change tokens.
    pub hints: Hints,
}

/// How tokens are chosen. Counter-based: the token at a position depends on the logits, these
/// values and the position only, so that a stream can continue elsewhere.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize, Debug)]
pub struct Sampling {
    /// 0 is greedy.
    pub temperature: f32,
    /// Keep the smallest set of tokens with at least this probability; 1 keeps all.
    pub top_p: f32,
    /// Keep the so many most likely; 0 keeps all.
    pub top_k: u32,
    /// Keep tokens at least this share as likely as the likeliest; 0 keeps all.
    pub min_p: f32,
    /// Seed of the draw.
    pub seed: u64,
}

impl Sampling {
    /// Always the likeliest token (the lowest id among equals).
    pub const GREEDY: Self = Self { temperature: 0.0, top_p: 1.0, top_k: 0, min_p: 0.0, seed: 0 };
}

/// When generation ends.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Limits {
    /// At most so many new tokens; at least 1.
    pub max_tokens: u32,
    /// Token ids that end the answer (end of turn); not emitted.
    pub stop_tokens: Vec<Token>,
}

/// What the agent knows about its request (`nvext.agent_hints`, `cache_control`).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
pub struct Hints {
    /// Higher goes sooner; may be negative.
    pub priority: i32,
    /// Queue tier; higher goes strictly first.
    pub strict_priority: u32,
    /// Expected output length in tokens.
    pub osl: Option<u32>,
    /// Prefill the next turn's known prefix when this one ends.
    pub speculative_prefill: bool,
    /// Pins: the first `tokens` of the prompt carry this claim.
    pub claims: Vec<RangeClaim>,
    /// The session that started this one, when named.
    pub parent: Option<SessionId>,
    /// The session sends nothing after this: its claims end with the answer.
    pub session_final: bool,
    /// How long the tools that the answer calls are expected to take.
    pub tool_latency: Option<Span>,
}

/// A claim on a range of the prompt.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct RangeClaim {
    /// First token.
    pub start: u32,
    /// One past the last token.
    pub end: u32,
    /// The claim.
    pub claim: Claim,
}

/// What a served request sends back, in order: `Started`, any number of `Tokens`, then exactly
/// one of `Finished` and `Failed`.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub enum StreamItem {
    /// The first token is about to come: prefill is done and its sources are known.
    Started(Started),
    /// New tokens.
    Tokens(Vec<Token>),
    /// The end.
    Finished(Finish),
    /// The end, in failure, after the stream began.
    Failed(Refusal),
}

/// Where a request runs and what it found cached.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Started {
    /// The node whose engine serves it.
    pub serving_node: NodeId,
    /// Prompt tokens by where they came from.
    pub prompt: PromptSources,
    /// Time from the request's arrival at the serving node until its engine took it.
    pub queued: Span,
}

/// Prompt tokens by source. `gpu + dram + nvme + peer + computed` is the prompt's length.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
pub struct PromptSources {
    /// Reused in place in the engine's pool (also of a CPU engine).
    pub gpu: u32,
    /// Copied from the node's DRAM.
    pub dram: u32,
    /// Read from the node's NVMe.
    pub nvme: u32,
    /// Fetched from another node.
    pub peer: u32,
    /// Computed by prefill.
    pub computed: u32,
}

impl PromptSources {
    /// All that was not computed.
    pub fn cached(&self) -> u32 {
        self.gpu.saturating_add(self.dram).saturating_add(self.nvme).saturating_add(self.peer)
    }

    /// The prompt's length.
    pub fn total(&self) -> u32 {
        self.cached().saturating_add(self.computed)
    }
}

/// How a served request ended.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Finish {
    /// Why.
    pub reason: FinishReason,
    /// Prompt tokens by source, final.
    pub prompt: PromptSources,
    /// Tokens generated, the stop token included.
    pub output_tokens: u32,
}

/// Why generation ended.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub enum FinishReason {
    /// A stop token; carried so that a dialect can tell which.
    Stop(Token),
    /// `max_tokens` reached.
    Length,
    /// The context limit reached.
    ContextFull,
    /// The caller went away.
    Cancelled,
}

/// Why a request is not served; the only error that crosses the wire.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug, thiserror::Error)]
pub enum Refusal {
    /// No room now.
    #[error("all engines are busy; retry in {} ms", retry_after.as_ms())]
    Busy {
        /// When to come again.
        retry_after: Span,
    },
    /// No node serves the model now.
    #[error("no node serves the model {model:?} now")]
    NoTarget {
        /// The model asked for.
        model: String,
    },
    /// The prompt exceeds the context.
    #[error("prompt is too long: {tokens} tokens > {limit} maximum")]
    TooLong {
        /// Its length.
        tokens: u32,
        /// The longest prompt the model takes.
        limit: u32,
    },
    /// The target was placed by a stale view (wrong incarnation, or shutting down), or was lost.
    #[error("the serving node was lost, is leaving or has restarted")]
    Gone,
    /// The serving node or its engine failed.
    #[error("the serving engine failed: {0}")]
    Failed(String),
}

#[cfg(test)]
mod tests;
