//! The models that tests run: a tiny one from the fixtures, a slow one made here, the newcomer's.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The tiny seeded Qwen3 of the fixtures: starts at once, generates thousands of tokens a second.
pub(crate) fn tiny() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/tiny-qwen3")
}

/// The newcomer's model; none, with the reason printed, where it was not fetched.
pub(crate) fn smollm2() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let model = cache.or(home)?.join("dynamo-node/models/SmolLM2-135M-Instruct.Q4_1.gguf");
    if model.exists() {
        return Some(model);
    }
    println!("SKIPPED: {} is missing (`./dev setup` fetches it)", model.display());
    None
}

const HIDDEN: usize = 64;
const HEADS: usize = 32;
const HEAD_DIM: usize = 64;
const LAYERS: usize = 16;
const VOCABULARY: usize = 1024;
/// Ids of the letters a to z in the fixture's vocabulary.
const LETTERS: std::ops::RangeInclusive<usize> = 67..=92;

/// A model that is small on disk and takes its time: wide attention makes each token dearer than
/// the one before. Only letters have logits above zero, so that an answer has text from its first
/// token on and ends at `max_tokens`, never by itself. Made once and kept in the target folder.
pub(crate) fn slow() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
        // Change the number with the weights.
        let folder = target.join(format!("slow-qwen3-{LAYERS}x{HEADS}x{HEAD_DIM}-1"));
        if !folder.exists() {
            let draft = tempfile::tempdir_in(target).unwrap();
            write_slow(draft.path());
            // Another test process may have been quicker; its model is the same.
            let _ = std::fs::rename(draft.path(), &folder);
        }
        folder
    })
}

fn write_slow(folder: &Path) {
    for file in
        ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"]
    {
        std::fs::copy(tiny().join(file), folder.join(file)).unwrap();
    }
    let config = std::fs::read_to_string(tiny().join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    for (key, value) in [
        ("hidden_size", HIDDEN),
        ("intermediate_size", HIDDEN),
        ("num_attention_heads", HEADS),
        ("num_key_value_heads", 1),
        ("head_dim", HEAD_DIM),
        ("num_hidden_layers", LAYERS),
    ] {
        config[key] = json!(value);
    }
    config["layer_types"] = json!(vec!["full_attention"; LAYERS]);
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    std::fs::write(folder.join("model.safetensors"), weights()).unwrap();
}

/// How a tensor is filled.
#[derive(Clone, Copy)]
enum Fill {
    Ones,
    Random,
    /// Random in the letters' rows, zero elsewhere.
    Letters,
}

/// A safetensors file: length of the header, header, data.
fn weights() -> Vec<u8> {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    let mut state = 1u64;
    for (name, shape, fill) in tensors() {
        let start = data.len();
        let width = *shape.last().unwrap();
        for at in 0..shape.iter().product() {
            let value = match fill {
                Fill::Ones => 1.0,
                Fill::Letters if !LETTERS.contains(&(at / width)) => 0.0,
                Fill::Random | Fill::Letters => random(&mut state),
            };
            data.extend(((value.to_bits() >> 16) as u16).to_le_bytes()); // bfloat16
        }
        let entry = json!({ "dtype": "BF16", "shape": shape, "data_offsets": [start, data.len()] });
        header.insert(name, entry);
    }
    let mut header = Value::Object(header).to_string();
    header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));
    let length = (header.len() as u64).to_le_bytes();
    [&length, header.as_bytes(), &data].concat()
}

fn tensors() -> Vec<(String, Vec<usize>, Fill)> {
    let attended = HEADS * HEAD_DIM;
    let mut tensors = vec![
        ("lm_head.weight".to_owned(), vec![VOCABULARY, HIDDEN], Fill::Letters),
        ("model.embed_tokens.weight".to_owned(), vec![VOCABULARY, HIDDEN], Fill::Random),
        ("model.norm.weight".to_owned(), vec![HIDDEN], Fill::Ones),
    ];
    for layer in 0..LAYERS {
        for (name, shape, fill) in [
            ("input_layernorm", vec![HIDDEN], Fill::Ones),
            ("post_attention_layernorm", vec![HIDDEN], Fill::Ones),
            ("self_attn.q_norm", vec![HEAD_DIM], Fill::Ones),
            ("self_attn.k_norm", vec![HEAD_DIM], Fill::Ones),
            ("self_attn.q_proj", vec![attended, HIDDEN], Fill::Random),
            ("self_attn.k_proj", vec![HEAD_DIM, HIDDEN], Fill::Random),
            ("self_attn.v_proj", vec![HEAD_DIM, HIDDEN], Fill::Random),
            ("self_attn.o_proj", vec![HIDDEN, attended], Fill::Random),
            ("mlp.gate_proj", vec![HIDDEN, HIDDEN], Fill::Random),
            ("mlp.up_proj", vec![HIDDEN, HIDDEN], Fill::Random),
            ("mlp.down_proj", vec![HIDDEN, HIDDEN], Fill::Random),
        ] {
            tensors.push((format!("model.layers.{layer}.{name}.weight"), shape, fill));
        }
    }
    tensors
}

/// Between -0.1 and 0.1, by Knuth's MMIX generator.
fn random(state: &mut u64) -> f32 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    ((*state >> 40) as f32 / (1u64 << 24) as f32 - 0.5) * 0.2
}
