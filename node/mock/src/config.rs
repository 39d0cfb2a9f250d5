//! What a mock engine is told once.

use crate::{Pattern, Script, Timing, TimingError};
use protocol::block::{CacheRule, PartSpec, StorageNamespace};
use protocol::hash::{GRANULE, Token};
use protocol::op::EngineSpec;
use std::sync::Arc;

/// Settings of an [`crate::Engine`].
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// What it says it is; kind `mock`, storage from [`storage_namespace`].
    pub spec: EngineSpec,
    /// How long steps take.
    pub timing: Timing,
    /// Most sequences that run together.
    pub max_batch: u32,
    /// Most tokens of one step, prompt and answer tokens together; at least `max_batch`.
    pub max_batched_tokens: u32,
    /// Number of token ids.
    pub vocabulary: u32,
    /// Ends answers.
    pub stop_token: Token,
    /// Length of answers without a script, in tokens; 0 lets them go on until the job's limit.
    pub answer_tokens: u32,
    /// Tokens that answers are drawn from; empty means the whole vocabulary but the stop token.
    pub words: Arc<[Token]>,
    /// What to answer to jobs that bring no script; `None` draws the answer.
    pub script: Option<Arc<Script>>,
    /// Of the jitter. Never changes an answer.
    pub seed: u64,
}

impl Config {
    /// 256 sequences, 8,192 tokens per step, Dynamo's timing, drawn answers up to the job's limit.
    pub fn new(spec: EngineSpec, vocabulary: u32, stop_token: Token) -> Self {
        Self {
            spec,
            timing: Timing::default(),
            max_batch: 256,
            max_batched_tokens: 8192,
            vocabulary,
            stop_token,
            answer_tokens: 0,
            words: Arc::default(),
            script: None,
            seed: 0,
        }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let block = self.spec.storage.block_tokens;
        if block == 0 || !(block as usize).is_multiple_of(GRANULE) {
            return Err(ConfigError::BlockTokens(block));
        }
        if self.spec.storage.block_bytes < Pattern::BYTES_MIN as u64 {
            return Err(ConfigError::BlockBytes(self.spec.storage.block_bytes));
        }
        let sizes = [
            ("slots", self.spec.slots, 1),
            ("context", self.spec.context, 2),
            ("max_batch", self.max_batch, 1),
            ("max_batched_tokens", self.max_batched_tokens, self.max_batch),
            ("vocabulary", self.vocabulary, 2),
        ];
        if let Some((what, size, least)) = sizes.into_iter().find(|(_, size, least)| size < least) {
            return Err(ConfigError::Small { what, size, least });
        }
        let outside = |token: &&Token| token.0 >= self.vocabulary;
        let mut named = self.words.iter().chain([&self.stop_token]);
        if let Some(token) = named.find(outside) {
            return Err(ConfigError::Token(token.0));
        }
        Ok(self.timing.check()?)
    }
}

/// Why an engine cannot be made.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// Block size not a multiple of the hash granule.
    #[error("a block of {0} tokens: must be a multiple of {GRANULE}")]
    BlockTokens(u32),
    /// Blocks too short to be recognised.
    #[error("a block of {0} bytes: must have at least {min}", min = Pattern::BYTES_MIN)]
    BlockBytes(u64),
    /// A size too small to work.
    #[error("{what} is {size}: must be at least {least}")]
    Small {
        /// Which.
        what: &'static str,
        /// Its value.
        size: u32,
        /// The least.
        least: u32,
    },
    /// A configured token is none.
    #[error("token {0} is outside the vocabulary")]
    Token(u32),
    /// The timing makes no sense.
    #[error(transparent)]
    Timing(#[from] TimingError),
}

/// The storage namespace of mock engines: what must be equal for two of them to use each other's
/// blocks.
pub fn storage_namespace(block_tokens: u32, block_bytes: u64) -> StorageNamespace {
    StorageNamespace {
        block_tokens,
        kv_dtype: "mock".into(),
        layout: "pattern-1".into(),
        block_bytes,
        parts: vec![PartSpec { group: 0, tp_rank: 0, first_layer: 0, layers: 1 }],
        groups: vec![CacheRule::Full],
    }
}
