//! Greedy answers equal those of another implementation, however the prompt gets into the pool.
//!
//! SmolLM2 is tried when its file is there (`DYNAMO_TEST_MODEL`, or the cache that set-up fills):
//! six prompts of it, all with `DYNAMO_TEST_FULL=1`.

use crate::house::{House, LATER, Reference, TINY, references};
use model::Model;
use protocol::id::NodeId;
use protocol::op::{Arriving, ArrivingFrom};
use protocol::prompt::{FinishReason, PromptSources};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Whole blocks of a prompt that may be reused: one token is always computed.
fn reusable(prompt: usize) -> usize {
    (prompt - 1) / 16
}

/// Cold, reused and imported answers of one prompt.
fn check_paths(here: &House, there: &House, reference: &Reference) {
    let Reference { name, .. } = reference;
    let (prompt, output) = (reference.prompt(), reference.output());
    let max = output.len() as u32;
    let computed = PromptSources { computed: prompt.len() as u32, ..Default::default() };

    let mut cold = here.ask(&prompt, max).submit();
    let answer = cold.answer();
    assert_eq!(answer.tokens, output, "{name} cold");
    assert_eq!(answer.finish.reason, FinishReason::Length);
    assert_eq!(answer.started.prompt, computed);
    // The last token is never fed back, so its block is not full.
    let all = [prompt.clone(), output.clone()].concat();
    let full = all[..all.len() - 1].chunks_exact(16).enumerate();
    let full: Vec<_> = full.map(|(index, tokens)| (index as u32, tokens.to_vec())).collect();
    here.settle();
    assert_eq!(here.sealed(cold.lease), full, "{name}");

    let blocks = reusable(prompt.len());
    let cached = (blocks * 16) as u32;
    let mut ask = here.ask(&prompt, max);
    ask.slots.splice(..blocks, cold.slots[..blocks].iter().copied());
    ask.ready = blocks as u32;
    let mut reused = ask.submit();
    let answer = reused.answer();
    assert_eq!(answer.tokens, output, "{name} reused");
    let computed = prompt.len() as u32 - cached;
    let sources = PromptSources { gpu: cached, computed, ..Default::default() };
    assert_eq!(answer.started.prompt, sources);
    here.settle();
    assert!(here.sealed(reused.lease).iter().all(|(index, _)| *index >= blocks as u32));

    let exported = here.export(&cold.slots[..blocks]);
    let mut ask = there.ask(&prompt, max);
    let from = ArrivingFrom::Peer(NodeId([9; 32]));
    let arriving = |index| Arriving { index, from, deadline: LATER };
    ask.arriving = (0..blocks as u32).map(arriving).collect();
    let mut imported = ask.submit();
    for (index, (from, _)) in exported.iter().enumerate() {
        assert!(there.import(imported.lease, index as u32, imported.slots[index], *from), "{name}");
    }
    let answer = imported.answer();
    assert_eq!(answer.tokens, output, "{name} imported");
    let sources = PromptSources { peer: cached, computed, ..Default::default() };
    assert_eq!(answer.started.prompt, sources);

    // The bytes are the same wherever they were computed and however they came.
    let again = there.export(&imported.slots[..blocks]);
    assert!(exported.iter().zip(&again).all(|(a, b)| a.1 == b.1), "{name}");
}

fn check_batched(house: &House, references: &[Reference]) {
    let submit = |r: &Reference| house.ask(&r.prompt(), r.output_ids.len() as u32).submit();
    let mut streams: Vec<_> = references.iter().map(submit).collect();
    for (stream, reference) in streams.iter_mut().zip(references) {
        assert_eq!(stream.answer().tokens, reference.output(), "{} batched", reference.name);
    }
}

#[test]
fn the_tiny_model_equals_its_reference_cold_reused_and_imported() {
    let references = references("tiny-qwen3.json");
    assert!(references.len() >= 20);
    for some in references.chunks(8) {
        let here = House::start(&TINY, |config| with_pool(config, 2048 * 16));
        // Nothing is shared but the DRAM slots.
        let dram = Arc::clone(&here.dram);
        let there = House::with_dram(&TINY, dram, |config| with_pool(config, 2048 * 16));
        some.iter().for_each(|reference| check_paths(&here, &there, reference));
    }
}

fn with_pool(mut config: engine::EmbeddedConfig, tokens: u32) -> engine::EmbeddedConfig {
    config.kv_tokens = tokens;
    config
}

#[test]
fn the_tiny_model_equals_its_reference_batched() {
    let house = House::start(&TINY, |config| with_pool(config, 2048 * 16));
    check_batched(&house, &references("tiny-qwen3.json"));
}

fn smollm2() -> Option<Arc<Model>> {
    let path = match std::env::var_os("DYNAMO_TEST_MODEL") {
        Some(path) => PathBuf::from(path),
        None => Path::new(&std::env::var_os("HOME")?)
            .join(".cache/dynamo-node/models/SmolLM2-135M-Instruct.Q4_1.gguf"),
    };
    if !path.exists() {
        eprintln!("skipped: {} is not there (set DYNAMO_TEST_MODEL)", path.display());
        return None;
    }
    Some(Arc::new(Model::open(&path).expect("the model opens")))
}

/// All with `DYNAMO_TEST_FULL`; otherwise five short ones and the longest.
fn chosen() -> Vec<Reference> {
    let mut all = references("smollm2.json");
    assert!(all.len() >= 20);
    if std::env::var_os("DYNAMO_TEST_FULL").is_none() {
        all.sort_by_key(|reference| reference.prompt_ids.len());
        let longest = all.pop();
        let step = all.len() / 10;
        all = all.into_iter().step_by(step.max(1)).take(5).chain(longest).collect();
        assert!(all.iter().any(|reference| reference.prompt_ids.len() > 1_500));
    }
    all
}

#[test]
fn smollm2_equals_its_reference() {
    let Some(model) = smollm2() else { return };
    let chosen = chosen();
    let short = |reference: &&Reference| reference.prompt_ids.len() < 500;
    let batch: Vec<_> = chosen.iter().filter(short).take(8).cloned().collect();
    for (round, some) in chosen.chunks(3).enumerate() {
        let here = House::start(&model, |config| with_pool(config, 1024 * 16));
        let dram = Arc::clone(&here.dram);
        let there = House::with_dram(&model, dram, |config| with_pool(config, 512 * 16));
        some.iter().for_each(|reference| check_paths(&here, &there, reference));
        if round == 0 {
            check_batched(&there, &batch);
        }
    }
}
