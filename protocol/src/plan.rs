//! Where a request goes and what it is expected to cost.

use crate::id::{NodeId, Target};
use crate::time::Span;
use serde::{Deserialize, Serialize};

/// Where a prompt is prefilled and decoded, and what is fetched for it. In the first version both
/// targets are equal.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Plan {
    /// Who prefills.
    pub prefill: Target,
    /// Who decodes.
    pub decode: Target,
    /// Blocks to fetch from peers, in prompt order, not overlapping.
    pub sources: Vec<Source>,
    /// Expected costs.
    pub estimate: Estimate,
}

/// A stretch of the prompt that a peer holds and is worth fetching.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Source {
    /// From whom.
    pub node: NodeId,
    /// First token of the stretch.
    pub start: u32,
    /// One past the last token.
    pub end: u32,
    /// Give up after so long: the estimate of recomputing the stretch, with a margin.
    pub deadline: Span,
}

/// The parts of a placement's cost in milliseconds (design §4.3).
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct Estimate {
    /// Waiting behind earlier work.
    pub queue_ms: f32,
    /// Bringing cached blocks to the engine.
    pub onboard_ms: f32,
    /// Computing the rest of the prompt.
    pub prefill_ms: f32,
    /// Weighted decode pressure.
    pub decode_ms: f32,
    /// Price of the engine time used.
    pub gpu_ms: f32,
    /// The sum that was compared.
    pub cost_ms: f32,
    /// Prompt tokens found at the target.
    pub local_tokens: u32,
    /// Prompt tokens to fetch.
    pub peer_tokens: u32,
    /// Prompt tokens to compute.
    pub computed_tokens: u32,
}

/// A placed request: it can be served, and never placed again.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Placed {
    /// Where.
    pub plan: Plan,
    /// How it was chosen, in words for people (`kv: lowest cost of 3`).
    pub outcome: String,
}
