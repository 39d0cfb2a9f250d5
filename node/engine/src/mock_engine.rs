//! The mock engine, live: the pure machine on its own OS thread, with the real clock.

mod bytes;
mod script;
#[cfg(test)]
mod tests;
mod worker;

pub use mock::Timing;
pub use script::{ScriptError, Scripts};

use crate::api::{Engine, EngineError, Health, Job};
use crate::inbox::Inbox;
use crate::worker::Pulse;
use kernels::Pool;
use model::{Model, Tokenizer};
use protocol::hash::Token;
use protocol::id::EngineId;
use protocol::op::{EngineEvent, EngineOp, EngineSpec};
use protocol::prompt::Refusal;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc::Sender;
use worker::Worker;

/// Settings of a mock engine.
#[derive(Clone, Debug)]
pub struct MockConfig {
    /// Its number.
    pub engine: EngineId,
    /// The model's served name.
    pub served_name: String,
    /// Size of the pool in tokens; rounded up to whole blocks. The pool itself takes no memory.
    pub kv_tokens: u32,
    /// Tokens of one block; a multiple of 16.
    pub block_tokens: u32,
    /// Bytes of one block in DRAM and between nodes.
    pub block_bytes: u64,
    /// Most sequences that run together.
    pub max_batch: u32,
    /// Most tokens of one step; at least `max_batch`.
    pub max_batched_tokens: u32,
    /// Length of answers without a script, in tokens; 0 lets them go on until the request's limit.
    pub answer_tokens: u32,
    /// How long steps take.
    pub timing: Timing,
    /// What to answer to which prompt.
    pub scripts: Option<Arc<Scripts>>,
    /// The instant of [`protocol::time::Time::ZERO`] on this node, to which the deadlines of
    /// leases refer.
    pub epoch: Instant,
}

impl MockConfig {
    /// Pool of 1,048,576 tokens in blocks of 16 tokens and 16 KiB, 256 sequences, 8,192 tokens per
    /// step, drawn answers of 64 tokens, Dynamo's timing, no script.
    pub fn new(engine: EngineId, served_name: impl Into<String>, epoch: Instant) -> Self {
        Self {
            engine,
            served_name: served_name.into(),
            kv_tokens: 1 << 20,
            block_tokens: 16,
            block_bytes: 16 << 10,
            max_batch: 256,
            max_batched_tokens: 8192,
            answer_tokens: 64,
            timing: Timing::default(),
            scripts: None,
            epoch,
        }
    }

    /// The storage namespace of its blocks. Known before the engine starts, so that pools can be
    /// sized.
    pub fn storage(&self) -> protocol::block::StorageNamespace {
        mock::storage_namespace(self.block_tokens, self.block_bytes)
    }

    fn machine(&self, model: &Model) -> mock::Config {
        let slots = self.kv_tokens.div_ceil(self.block_tokens.max(1));
        let tokens = slots.saturating_mul(self.block_tokens) as usize;
        let context = model.config().max_position.min(tokens);
        let spec = EngineSpec {
            engine: self.engine,
            kind: "mock".into(),
            model: self.served_name.clone(),
            routing: model.routing(),
            storage: self.storage(),
            slots,
            context: u32::try_from(context).unwrap_or(u32::MAX),
        };
        let vocabulary = u32::try_from(model.config().vocab).unwrap_or(u32::MAX);
        let stop = model.stop_tokens().first().copied().unwrap_or_default();
        mock::Config {
            timing: self.timing,
            max_batch: self.max_batch,
            max_batched_tokens: self.max_batched_tokens,
            answer_tokens: self.answer_tokens,
            words: words(model.tokenizer()),
            ..mock::Config::new(spec, vocabulary, stop)
        }
    }
}

/// Tokens that read like words: drawn answers are made of them. Where a vocabulary has few, as one
/// of bytes does, its letters and spaces.
fn words(tokenizer: &Tokenizer) -> Arc<[Token]> {
    let size = u32::try_from(tokenizer.vocab_size()).unwrap_or(u32::MAX);
    let plain = |token: &Token| !tokenizer.is_special(*token);
    let spelt = |token: Token| Some((token, tokenizer.spelling(token)?));
    let lower = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase());
    // Byte-level vocabularies spell a space before a word `Ġ`, others `▁`.
    let word = |text: &str| text.strip_prefix(['Ġ', '▁']).is_some_and(lower);
    let all: Vec<_> = (0..size).map(Token).filter(plain).filter_map(spelt).collect();
    let words: Vec<_> = all.iter().filter(|(_, text)| word(text)).map(|(t, _)| *t).collect();
    if words.len() >= 100 {
        return words.into();
    }
    let letter = |text: &str| text.len() == 1 && lower(text);
    let letters = all.iter().filter(|(_, text)| letter(text)).map(|(token, _)| *token);
    let space = all.iter().find(|(_, text)| text == "Ġ" || text == "▁").map(|(token, _)| *token);
    // About one in six characters of English text is a space.
    letters.chain(std::iter::repeat_n(space, 5).flatten()).collect()
}

/// An engine without a model's arithmetic: it takes as long as one, tells the same events and moves
/// real bytes. Dropping it stops it: what still runs fails with [`Refusal::Gone`].
pub struct MockEngine {
    spec: EngineSpec,
    vocabulary: u32,
    inbox: Arc<Inbox>,
    pulse: Arc<Pulse>,
}

impl MockEngine {
    /// Starts the engine's thread. `dram` holds the node's DRAM slots, from which blocks are
    /// imported and to which they are exported; `events` goes to the block manager, who must keep
    /// reading.
    pub fn start(
        model: &Arc<Model>,
        dram: Arc<Pool>,
        config: &MockConfig,
        events: Sender<EngineEvent>,
    ) -> Result<Arc<Self>, EngineError> {
        if (dram.slot_bytes() as u64) < config.block_bytes {
            let (slot, block) = (dram.slot_bytes(), config.block_bytes);
            let problem = format!("hold {slot} bytes, a mock block has {block}");
            return Err(EngineError::Setting { setting: "dram slots", problem });
        }
        let machine = config.machine(model);
        let (spec, vocabulary) = (machine.spec.clone(), machine.vocabulary);
        let machine = mock::Engine::new(machine).map_err(|error| EngineError::Setting {
            setting: "engine.mock",
            problem: error.to_string(),
        })?;
        let engine = Arc::new(Self {
            spec,
            vocabulary,
            inbox: Arc::default(),
            pulse: Arc::new(Pulse::new(Instant::now())),
        });
        let (inbox, pulse) = (Arc::clone(&engine.inbox), Arc::clone(&engine.pulse));
        let scripts = config.scripts.clone();
        let mut worker = Worker::new(machine, dram, inbox, pulse, events, scripts, config.epoch);
        std::thread::Builder::new()
            .name(format!("mock-{}", config.engine.0))
            .spawn(move || worker.run_to_end())?;
        Ok(engine)
    }
}

impl Engine for MockEngine {
    fn spec(&self) -> &EngineSpec {
        &self.spec
    }

    fn submit(&self, job: Job) -> Result<(), Refusal> {
        self.spec.accepts(self.vocabulary, &job.prompt, &job.grant)?;
        self.inbox.offer(Box::new(job), &self.pulse)
    }

    fn perform(&self, op: EngineOp) {
        self.inbox.perform(op);
    }

    /// Scripts and patterns are played as they are.
    fn constrains(&self) -> bool {
        false
    }

    fn health(&self) -> Health {
        self.pulse.health(Instant::now())
    }
}

impl fmt::Debug for MockEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MockEngine").field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl Drop for MockEngine {
    fn drop(&mut self) {
        self.inbox.close();
    }
}
