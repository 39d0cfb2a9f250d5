//! The embedded engine: a decoder on its own OS thread.

use crate::api::{Engine, EngineError, Health, Job};
use crate::decoder;
use crate::guided::Helpers;
use crate::inbox::Inbox;
use crate::math::parallel::Threads;
use crate::pool::{BLOCK, BlockShape, storage_namespace};
use crate::schedule::Schedule;
use crate::worker::{Pulse, Worker};
use kernels::Pool;
use model::Model;
use protocol::id::EngineId;
use protocol::op::{EngineEvent, EngineOp, EngineSpec};
use protocol::prompt::Refusal;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc::Sender;

/// Settings of an embedded engine.
#[derive(Clone, Debug)]
pub struct EmbeddedConfig {
    /// Its number.
    pub engine: EngineId,
    /// The model's served name.
    pub served_name: String,
    /// Size of the pool in tokens; rounded up to whole blocks of 16.
    pub kv_tokens: u32,
    /// Threads that share a step; 1 leaves the other cores alone.
    pub threads: usize,
    /// Most sequences that run together.
    pub max_batch: usize,
    /// Prompt tokens per step; decoding never waits longer than for one such chunk.
    pub prefill_chunk: usize,
    /// The instant of [`protocol::time::Time::ZERO`] on this node, to which the deadlines of
    /// leases refer.
    pub epoch: Instant,
}

impl EmbeddedConfig {
    /// Pool of 16,384 tokens, one thread, 16 sequences, chunks of 64.
    pub fn new(engine: EngineId, served_name: impl Into<String>, epoch: Instant) -> Self {
        Self {
            engine,
            served_name: served_name.into(),
            kv_tokens: 16_384,
            threads: 1,
            max_batch: 16,
            prefill_chunk: 64,
            epoch,
        }
    }

    fn check(&self) -> Result<(), EngineError> {
        let settings = [
            ("kv_tokens", self.kv_tokens as usize, 2 * BLOCK),
            ("threads", self.threads, 1),
            ("max_batch", self.max_batch, 1),
            ("prefill_chunk", self.prefill_chunk, 1),
        ];
        match settings.into_iter().find(|(_, value, least)| value < least) {
            None => Ok(()),
            Some((setting, value, least)) => Err(EngineError::Setting {
                setting,
                problem: format!("is {value}, must be at least {least}"),
            }),
        }
    }
}

/// Llama or Qwen3 on the CPU, with its own paged pool. Dropping it stops it: what still runs fails
/// with [`Refusal::Gone`].
pub struct Embedded {
    spec: EngineSpec,
    vocab: u32,
    inbox: Arc<Inbox>,
    pulse: Arc<Pulse>,
}

impl Embedded {
    /// Loads the weights, which takes seconds, and starts the engine's thread. The thread first
    /// measures its speed. `dram` holds the node's DRAM slots, from which blocks are imported and
    /// to which they are exported; `events` goes to the block manager, who must keep reading.
    pub fn start(
        model: Arc<Model>,
        dram: Arc<Pool>,
        config: EmbeddedConfig,
        events: Sender<EngineEvent>,
    ) -> Result<Arc<Self>, EngineError> {
        config.check()?;
        let storage = storage_namespace(model.config());
        if (dram.slot_bytes() as u64) < storage.block_bytes {
            return Err(EngineError::Setting {
                setting: "dram slots",
                problem: format!(
                    "hold {} bytes, a block of this model has {}",
                    dram.slot_bytes(),
                    storage.block_bytes
                ),
            });
        }
        let slots = (config.kv_tokens as usize).div_ceil(BLOCK);
        let context = model.config().max_position.min(slots * BLOCK);
        let decoder = decoder::load(&model, context, Threads::new(config.threads))?;
        let spec = EngineSpec {
            engine: config.engine,
            kind: "embedded".into(),
            model: config.served_name.clone(),
            routing: model.routing(),
            storage,
            slots: slots as u32,
            context: context as u32,
        };
        let engine = Arc::new(Self {
            spec,
            vocab: u32::try_from(decoder.vocab()).unwrap_or(u32::MAX),
            inbox: Arc::default(),
            pulse: Arc::new(Pulse::new(Instant::now())),
        });
        let shape = BlockShape::of(model.config());
        let (inbox, pulse) = (Arc::clone(&engine.inbox), Arc::clone(&engine.pulse));
        let helpers = Helpers::start(model.grammars(), config.threads.min(4), inbox)?;
        std::thread::Builder::new().name(format!("engine-{}", config.engine.0)).spawn(
            move || {
                let pool = crate::pool::KvPool::new(shape, slots);
                let schedule = Schedule::new(config.max_batch, config.prefill_chunk);
                let mut worker = Worker::new(decoder, pool, dram, schedule, helpers, pulse, events);
                worker.set_limits(context, config.epoch);
                worker.run_to_end(config.prefill_chunk);
            },
        )?;
        Ok(engine)
    }
}

impl Engine for Embedded {
    fn spec(&self) -> &EngineSpec {
        &self.spec
    }

    fn submit(&self, job: Job) -> Result<(), Refusal> {
        self.spec.accepts(self.vocab, &job.prompt, &job.grant)?;
        self.inbox.offer(Box::new(job), &self.pulse)
    }

    fn perform(&self, op: EngineOp) {
        self.inbox.perform(op);
    }

    fn constrains(&self) -> bool {
        true
    }

    fn health(&self) -> Health {
        self.pulse.health(Instant::now())
    }
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded").field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.inbox.close();
    }
}
