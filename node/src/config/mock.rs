//! `[engine.mock]`: settings of the mock engine.

use super::EngineConfig;
use crate::fault::Fault;
use engine::Timing;
use serde::Deserialize;
use std::path::PathBuf;

/// `[engine.mock]`
#[derive(Deserialize, Debug, Clone)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MockSettings {
    /// Everything is so many times faster.
    pub(crate) speedup: f64,
    /// Script file: which prompt gets which answer; empty draws all answers.
    pub(crate) script: PathBuf,
    /// Length of drawn answers.
    pub(crate) answer_tokens: u32,
    /// Tokens the pool holds.
    pub(crate) kv_tokens: u32,
    /// Sequences in one step.
    pub(crate) max_batch: u32,
    /// Tokens in one step.
    pub(crate) max_batched_tokens: u32,
    /// Tokens of a block.
    pub(crate) block_tokens: u32,
    /// Bytes of a block.
    pub(crate) block_kib: u32,
    /// How long steps take.
    pub(crate) timing: Timing,
}

impl Default for MockSettings {
    fn default() -> Self {
        Self {
            speedup: 1.0,
            script: PathBuf::new(),
            answer_tokens: 64,
            kv_tokens: 1 << 20,
            max_batch: 256,
            max_batched_tokens: 8192,
            block_tokens: 16,
            block_kib: 16,
            timing: Timing::default(),
        }
    }
}

impl MockSettings {
    pub(super) fn check(&self) -> Result<(), Fault> {
        let usage = |message: String, help: &str| Err(Fault::usage(message, help));
        if !(self.speedup.is_finite() && self.speedup > 0.0) {
            return usage(
                format!("engine.mock.speedup = {} is not a factor", self.speedup),
                "use a number above 0, as 10.0 for ten times faster",
            );
        }
        if let Err(error) = self.timing.check() {
            return usage(
                format!("engine.mock.{error}"),
                "leave a key of [engine.mock.timing] out to use its default",
            );
        }
        if self.block_tokens == 0 || !self.block_tokens.is_multiple_of(16) {
            return usage(
                format!("engine.mock.block_tokens = {} cannot be", self.block_tokens),
                "use a multiple of 16",
            );
        }
        if self.block_kib == 0 || self.kv_tokens < 2 * self.block_tokens {
            return usage(
                "engine.mock.block_kib must be at least 1, and kv_tokens hold two blocks".into(),
                "leave a key out to use its default",
            );
        }
        if self.max_batch == 0 || self.max_batched_tokens < self.max_batch {
            return usage(
                "engine.mock.max_batch must be at least 1, and max_batched_tokens not less".into(),
                "leave a key out to use its default",
            );
        }
        Ok(())
    }

    /// The timing with the factor of `speedup`.
    pub(crate) fn timing(&self) -> Timing {
        Timing { speedup_ratio: self.timing.speedup_ratio * self.speedup, ..self.timing }
    }
}

impl EngineConfig {
    /// Whether the engine is the mock one.
    pub(crate) fn is_mock(&self) -> bool {
        self.kind == "mock"
    }

    /// Requests that run together.
    pub(crate) fn window(&self) -> usize {
        if self.is_mock() { self.mock.max_batch as usize } else { self.max_batch }
    }
}
