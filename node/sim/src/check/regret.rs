//! Bounded regret: how much longer requests take than with an all-knowing router, which sees every
//! node's true blocks and load at the moment of the choice.

use protocol::event::EngineLoad;

/// What a target offers a prompt in truth.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Offer {
    /// Prompt tokens in the engine's pool or the node's DRAM.
    pub(crate) local: u32,
    /// Prompt tokens that some node has in DRAM, this one included.
    pub(crate) anywhere: u32,
    /// Bytes per token, and bytes per second between nodes.
    pub(crate) bytes_per_token: f64,
    pub(crate) bytes_s: f64,
    /// The engine's load now, what waits in its queue included.
    pub(crate) load: EngineLoad,
}

impl Offer {
    /// Milliseconds until the first token of a prompt of `tokens`.
    pub(crate) fn cost_ms(&self, tokens: u32) -> f64 {
        let rate = f64::from(self.load.prefill_rate).max(1.0);
        let queue = f64::from(self.load.prefill_tokens) / rate * 1e3;
        let compute = |cached: u32| {
            let new = f64::from(tokens.saturating_sub(cached).max(1));
            let pairs = new * f64::from(cached) + new * new / 2.0;
            new / rate * 1e3 + pairs * f64::from(self.load.attention_ns) * 1e-6
        };
        let bytes = f64::from(self.anywhere.saturating_sub(self.local)) * self.bytes_per_token;
        let fetched = bytes / self.bytes_s.max(1.0) * 1e3 + compute(self.anywhere);
        queue + fetched.min(compute(self.local))
    }
}

/// Sums over all choices.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Regret {
    pub(crate) chosen_ms: f64,
    pub(crate) best_ms: f64,
    pub(crate) choices: u64,
}

impl Regret {
    /// A choice was made.
    pub(crate) fn add(&mut self, chosen_ms: f64, best_ms: f64) {
        self.chosen_ms += chosen_ms;
        self.best_ms += best_ms;
        self.choices += 1;
    }

    /// The share by which the choices were worse than the best ones.
    pub(crate) fn share(&self) -> f64 {
        if self.best_ms > 0.0 { self.chosen_ms / self.best_ms - 1.0 } else { 0.0 }
    }
}
