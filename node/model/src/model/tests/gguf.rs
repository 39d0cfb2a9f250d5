//! A whole model in one GGUF file, made here.

use super::super::Model;
use crate::gguf::tests::Writer;
use crate::{Arch, ModelError, RenderRequest, RopeScaling};
use protocol::hash::Token;
use serde_json::json;
use std::path::Path;

const HIDDEN: usize = 32;
const HEADS: usize = 2;

/// Eight bits per weight: blocks of 32 with scale 1, so that the integers are the weights.
fn q8(rows: usize, value: impl Fn(usize) -> i8) -> Vec<u8> {
    let mut bytes = Vec::new();
    for row in 0..rows {
        bytes.extend(half::f16::ONE.to_le_bytes());
        bytes.extend([value(row).cast_unsigned(); HIDDEN]);
    }
    bytes
}

fn vocabulary(arch: &str) -> Writer {
    let mut tokens: Vec<String> =
        (0x100..0x200).filter_map(char::from_u32).map(String::from).collect();
    tokens.push("<|im_end|>".into());
    let mut types = vec![1; 256];
    types.push(3);
    Writer::default()
        .text("general.architecture", arch)
        .text("tokenizer.ggml.model", "gpt2")
        .text("tokenizer.ggml.pre", "smollm")
        .texts("tokenizer.ggml.tokens", &tokens)
        .texts("tokenizer.ggml.merges", &[])
        .ints("tokenizer.ggml.token_type", &types)
        .u32("tokenizer.ggml.eos_token_id", 256)
        .text(
            "tokenizer.chat_template",
            "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}",
        )
}

fn sizes(writer: Writer, arch: &str) -> Writer {
    writer
        .u32(&format!("{arch}.embedding_length"), HIDDEN as u32)
        .u32(&format!("{arch}.block_count"), 1)
        .u32(&format!("{arch}.attention.head_count"), HEADS as u32)
        .u32(&format!("{arch}.attention.head_count_kv"), 1)
        .u32(&format!("{arch}.feed_forward_length"), 32)
        .u32(&format!("{arch}.context_length"), 128)
        .f32(&format!("{arch}.attention.layer_norm_rms_epsilon"), 1e-5)
        .f32(&format!("{arch}.rope.freq_base"), 1e5)
}

/// Query rows hold their own number, in the file's order.
fn weights(writer: Writer) -> Writer {
    let ones = [1.0; HIDDEN];
    let square = |writer: Writer, name: &str, rows: usize| {
        writer.tensor(
            &format!("blk.0.{name}.weight"),
            &[rows, HIDDEN],
            8,
            q8(rows, |row| row as i8),
        )
    };
    let writer = writer
        .tensor("token_embd.weight", &[257, HIDDEN], 8, q8(257, |row| (row % 100) as i8))
        .floats("output_norm.weight", &[HIDDEN], &ones)
        .floats("blk.0.attn_norm.weight", &[HIDDEN], &ones)
        .floats("blk.0.ffn_norm.weight", &[HIDDEN], &ones);
    let writer = square(square(square(writer, "attn_q", 32), "attn_k", 16), "attn_v", 16);
    let writer = square(square(writer, "attn_output", 32), "ffn_gate", 32);
    square(square(writer, "ffn_up", 32), "ffn_down", 32)
}

fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
    let file = tempfile::Builder::new().prefix("tiny.").suffix(".gguf").tempfile().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    file
}

fn open(writer: &Writer) -> Result<Model, ModelError> {
    Model::open(file(&writer.bytes()).path())
}

fn llama() -> Writer {
    weights(sizes(vocabulary("llama"), "llama"))
}

/// The first column of a tensor.
fn column(model: &Model, name: &str) -> Vec<f32> {
    let rows = model.weights().tensor(name).unwrap().to_vec2::<f32>().unwrap();
    rows.iter().map(|row| row[0]).collect()
}

#[test]
fn llama_rows_come_back_into_halves() {
    let model = open(&llama()).unwrap();
    assert!(model.name().starts_with("tiny."));
    let config = model.config();
    assert_eq!((config.arch, config.head_dim, config.vocab), (Arch::Llama, 16, 257));
    assert_eq!((config.rope_theta, config.tie_word_embeddings), (1e5, true));
    // Head 0: the even rows of the file, then the odd ones; then head 1 likewise.
    let expected: Vec<f32> = [0, 1, 16, 17]
        .iter()
        .flat_map(|first| (0..8).map(move |pair| (first + 2 * pair) as f32))
        .collect();
    assert_eq!(column(&model, "model.layers.0.self_attn.q_proj.weight"), expected);
    let quantised = model.weights().qtensor("model.layers.0.self_attn.q_proj.weight").unwrap();
    let rows = quantised.dequantize(&candle_core::Device::Cpu).unwrap().to_vec2::<f32>().unwrap();
    assert_eq!(rows.iter().map(|row| row[5]).collect::<Vec<_>>(), expected);
    // Values and all else stay.
    let plain: Vec<f32> = (0..16).map(|row| row as f32).collect();
    assert_eq!(column(&model, "model.layers.0.self_attn.v_proj.weight"), plain);
    assert!(model.weights().qtensor("model.norm.weight").is_none());
    assert_eq!(model.weights().tensor("lm_head.weight").unwrap().dims(), [257, 32]);
}

#[test]
fn qwen3_rows_stay() {
    let ones = [1.0; 16];
    let writer = weights(sizes(vocabulary("qwen3"), "qwen3"))
        .floats("blk.0.attn_q_norm.weight", &[16], &ones)
        .floats("blk.0.attn_k_norm.weight", &[16], &ones);
    let model = open(&writer).unwrap();
    assert_eq!(model.config().arch, Arch::Qwen3);
    let plain: Vec<f32> = (0..32).map(|row| row as f32).collect();
    assert_eq!(column(&model, "model.layers.0.self_attn.q_proj.weight"), plain);
    assert!(model.weights().has("model.layers.0.self_attn.q_norm.weight"));
}

#[test]
fn template_and_tokens() {
    let model = open(&llama()).unwrap();
    assert_eq!(model.stop_tokens(), [Token(256)]);
    let messages = [json!({"role": "user", "content": "x"})];
    let request = RenderRequest { messages: &messages, tools: &[], add_generation_prompt: false };
    let text = model.template().render(&request).unwrap();
    assert_eq!(text, "x<|im_end|>");
}

#[test]
fn a_folder_with_one_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("x.gguf"), llama().bytes()).unwrap();
    let model = Model::open(folder.path()).unwrap();
    assert_eq!(model.name(), folder.path().file_name().unwrap().to_str().unwrap());
}

#[test]
fn rope_factors() {
    let factors = llama().floats("rope_freqs.weight", &[8], &[2.0; 8]);
    let scaling = open(&factors).unwrap().config().rope_scaling.clone();
    assert_eq!(scaling, RopeScaling::Factors(vec![2.0; 8]));
    let wrong = llama().floats("rope_freqs.weight", &[7], &[2.0; 7]);
    assert!(open(&wrong).unwrap_err().to_string().contains("rope_freqs.weight"));
    let yarn = open(&llama().text("llama.rope.scaling.type", "yarn"));
    assert!(matches!(yarn, Err(ModelError::Unsupported { .. })));
}

#[test]
fn other_models_are_named() {
    let gemma = open(&weights(sizes(vocabulary("gemma3"), "gemma3"))).unwrap_err().to_string();
    assert!(gemma.contains("general.architecture") && gemma.contains("gemma3"), "{gemma}");
    let experts = open(&llama().u32("llama.expert_count", 8));
    assert!(matches!(experts, Err(ModelError::Unsupported { .. })));
    let partial = open(&llama().u32("llama.rope.dimension_count", 8));
    assert!(matches!(partial, Err(ModelError::Unsupported { .. })));
    let bias = open(&llama().floats("blk.0.attn_q.bias", &[32], &[0.0; 32]));
    assert!(matches!(bias, Err(ModelError::Unsupported { .. })));
    let empty = open(&sizes(vocabulary("llama"), "llama")).unwrap_err().to_string();
    assert!(empty.contains("token_embd.weight"), "{empty}");
    let less = open(&weights(vocabulary("llama"))).unwrap_err().to_string();
    assert!(less.contains("llama.embedding_length"), "{less}");
}

#[test]
fn truncated_files_are_damage() {
    let bytes = llama().bytes();
    for len in [5, 30, 1000, bytes.len() / 2, bytes.len() - 40] {
        let error = Model::open(file(&bytes[..len]).path()).unwrap_err();
        assert!(matches!(error, ModelError::Damaged { .. }), "{len}: {error}");
    }
}

#[test]
fn fuzz_headers() {
    let bytes = llama().bytes();
    let header = bytes.len().min(8000);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.gguf");
    bolero::check!().with_iterations(200).with_type::<Vec<(u16, u8)>>().for_each(|changes| {
        let mut bytes = bytes.clone();
        for (at, value) in changes {
            bytes[usize::from(*at) % header] = *value;
        }
        let _ = std::fs::remove_file(&path);
        std::fs::write(&path, &bytes).unwrap();
        check(&path);
    });
}

/// Either refused, or everything that was promised can be read.
fn check(path: &Path) {
    if let Ok(model) = Model::open(path) {
        for name in model.weights().names() {
            model.weights().tensor(name).unwrap();
        }
        model.tokenizer().encode("text <|im_end|>", true);
    }
}
