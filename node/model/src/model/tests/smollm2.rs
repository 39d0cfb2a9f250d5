//! The newcomer's model, where it has been downloaded.

use super::super::Model;
use super::{check_ids, check_reference};
use crate::Arch;
use protocol::hash::Token;
use std::path::PathBuf;

const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

#[allow(clippy::disallowed_methods)] // a test asks where the model is
fn path() -> Option<PathBuf> {
    let set = std::env::var_os("DYNAMO_TEST_MODEL").map(PathBuf::from);
    let cached = std::env::var_os("HOME")
        .map(|home| PathBuf::from(home).join(".cache/dynamo-node/models").join(FILE));
    let path = set.or(cached).filter(|path| path.is_file());
    if path.is_none() {
        println!("skipped: {FILE} is not there; set DYNAMO_TEST_MODEL to its path");
    }
    path
}

#[test]
fn opens_and_tokenises_as_transformers() {
    let Some(path) = path() else { return };
    let model = Model::open(&path).unwrap();
    assert_eq!(model.name(), "SmolLM2-135M-Instruct.Q4_1");
    let config = model.config();
    assert_eq!((config.arch, config.layers, config.hidden), (Arch::Llama, 30, 576));
    assert_eq!((config.heads, config.kv_heads, config.head_dim), (9, 3, 64));
    assert_eq!((config.vocab, config.max_position, config.rope_theta), (49_152, 8192, 1e5));
    assert!(config.tie_word_embeddings);
    assert_eq!(model.stop_tokens(), [Token(0), Token(2)]);
    assert!(!model.template().renders_tools());
    check_ids(&model, "smollm2");
    check_reference(&model, "smollm2.json");
    crate::processor::tests::agrees(&model);
    // Digits one by one: the vocabulary has no token of two.
    assert_eq!(model.tokenizer().encode("12", false).len(), 2);
}

/// First two values and the sum of single rows, as the gguf package of Python decodes them (query
/// and key rows in Hugging Face's order).
#[test]
fn weights_are_those_that_python_reads() {
    let Some(path) = path() else { return };
    let model = Model::open(&path).unwrap();
    for (name, row, first, second, sum) in [
        ("model.layers.0.self_attn.q_proj.weight", 0, -0.096_313_48, 0.157_348_63, 1.007_263_2),
        ("model.layers.0.self_attn.q_proj.weight", 1, -0.159_179_69, 0.397_949_22, 4.223_083_5),
        ("model.layers.0.self_attn.q_proj.weight", 33, -0.062_805_18, 0.144_653_32, -3.499_054),
        ("model.layers.7.self_attn.k_proj.weight", 63, 0.016_784_67, 0.620_788_6, -2.084_808_3),
        ("model.layers.7.self_attn.k_proj.weight", 191, 0.593_627_9, 0.210_327_15, -2.480_590_8),
        ("model.embed_tokens.weight", 49_151, 0.011_505_13, 0.005_752_56, -0.466_220_86),
        ("lm_head.weight", 1, -0.023_803_71, -0.015_869_14, 0.359_227_18),
        ("model.layers.29.mlp.down_proj.weight", 575, -0.229_187_01, -0.039_123_54, -5.229_95),
    ] {
        let tensor = model.weights().tensor(name).unwrap();
        let values = tensor.get(row).unwrap().to_vec1::<f32>().unwrap();
        assert!(
            (values[0] - first).abs() < 1e-6 && (values[1] - second).abs() < 1e-6,
            "{name} {row}"
        );
        let total: f64 = values.iter().copied().map(f64::from).sum();
        assert!((total - sum).abs() < 1e-3, "{name} {row}: {total}");
    }
}
