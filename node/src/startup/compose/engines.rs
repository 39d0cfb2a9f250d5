//! Starts the engine that the configuration names.

use crate::config::EngineConfig;
use crate::fault::Fault;
use crate::files;
use engine::{Embedded, EmbeddedConfig, Engine, MockConfig, MockEngine, Scripts};
use kernels::Pool;
use model::Model;
use protocol::block::StorageNamespace;
use protocol::id::EngineId;
use protocol::op::EngineEvent;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc::Sender;

/// The form of the blocks of the engine that is configured.
pub(super) fn storage(config: &EngineConfig, model: &Model) -> StorageNamespace {
    match config.is_mock() {
        true => mock_config(config, EngineId(0), "", Instant::now()).storage(),
        false => engine::storage_namespace(model.config()),
    }
}

/// Bytes of memory that the engine's pool takes.
pub(super) fn pool_bytes(config: &EngineConfig, storage: &StorageNamespace) -> u64 {
    let blocks = u64::from(config.kv_tokens.div_ceil(storage.block_tokens.max(1)));
    if config.is_mock() { 0 } else { blocks.saturating_mul(storage.block_bytes) }
}

/// What every engine is started with.
pub(super) struct Start {
    pub(super) id: EngineId,
    pub(super) name: String,
    pub(super) model: Arc<Model>,
    pub(super) dram: Arc<Pool>,
    pub(super) epoch: Instant,
    pub(super) events: Sender<EngineEvent>,
}

/// Loads what it needs and starts it. Slow, and blocking.
pub(super) fn start(config: &EngineConfig, start: Start) -> Result<Arc<dyn Engine>, Fault> {
    let Start { id, name, model, dram, epoch, events } = start;
    if config.is_mock() {
        let mut settings = mock_config(config, id, &name, epoch);
        if !config.mock.script.as_os_str().is_empty() {
            settings.scripts = Some(Arc::new(read_script(&config.mock.script, &model)?));
        }
        let started = MockEngine::start(&model, dram, &settings, events);
        return match started {
            Ok(engine) => Ok(engine),
            Err(error) => Err(Fault::new(error, "check the [engine.mock] section and --model")),
        };
    }
    let settings = EmbeddedConfig {
        kv_tokens: config.kv_tokens,
        threads: config.threads,
        max_batch: config.max_batch,
        prefill_chunk: config.prefill_chunk,
        ..EmbeddedConfig::new(id, name, epoch)
    };
    match Embedded::start(model, dram, settings, events) {
        Ok(engine) => Ok(engine),
        Err(error) => Err(Fault::new(error, "check the [engine] section and --model")),
    }
}

fn mock_config(config: &EngineConfig, id: EngineId, name: &str, epoch: Instant) -> MockConfig {
    let settings = &config.mock;
    MockConfig {
        kv_tokens: settings.kv_tokens,
        block_tokens: settings.block_tokens,
        block_bytes: u64::from(settings.block_kib) << 10,
        max_batch: settings.max_batch,
        max_batched_tokens: settings.max_batched_tokens,
        answer_tokens: settings.answer_tokens,
        timing: settings.timing(),
        ..MockConfig::new(id, name, epoch)
    }
}

/// Longest file of scripted answers.
const SCRIPT_MAX: u64 = 256 << 20;

fn read_script(file: &Path, model: &Model) -> Result<Scripts, Fault> {
    let help = "engine.mock.script names a TOML file with [[answer]] entries, or a .jsonl file";
    let fault = |error: &dyn std::fmt::Display| {
        Fault::new(format!("the script {}: {error}", file.display()), help)
    };
    let text = files::read(file, SCRIPT_MAX).map_err(|error| fault(&error))?;
    let text = String::from_utf8_lossy(&text);
    let lines = file.extension().is_some_and(|extension| extension == "jsonl");
    let scripts = match lines {
        true => Scripts::from_json_lines(&text, model),
        false => Scripts::from_toml(&text, model),
    };
    scripts.map_err(|error| fault(&error))
}
