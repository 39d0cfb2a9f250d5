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

/// Most blocks of the pool: the block manager keeps some hundred bytes for each.
const BLOCKS_MAX: u32 = 8 << 20;

impl MockSettings {
    pub(super) fn check(&self) -> Result<(), Fault> {
        let usage = |message: String, help: &str| Err(Fault::usage(message, help));
        if !(1e-3..=1e6).contains(&self.speedup) {
            return usage(
                format!("engine.mock.speedup = {} is not from 0.001 to 1000000", self.speedup),
                "10.0 is ten times faster than the timing model",
            );
        }
        if let Err(error) = self.timing.check() {
            return usage(
                format!("engine.mock.{error}"),
                "leave a key of [engine.mock.timing] out to use its default",
            );
        }
        if !(16..=1 << 20).contains(&self.block_tokens) || !self.block_tokens.is_multiple_of(16) {
            return usage(
                format!(
                    "engine.mock.block_tokens = {} is not a multiple of 16 up to 1048576",
                    self.block_tokens
                ),
                "leave the key out to use its default",
            );
        }
        if self.block_kib == 0 || self.kv_tokens < 2 * self.block_tokens {
            return usage(
                "engine.mock.block_kib must be at least 1, and kv_tokens hold two blocks".into(),
                "leave a key out to use its default",
            );
        }
        if self.kv_tokens / self.block_tokens > BLOCKS_MAX {
            return usage(
                format!("engine.mock.kv_tokens = {} make too many blocks", self.kv_tokens),
                "a pool has at most 8388608 blocks: use fewer tokens, or larger blocks",
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
