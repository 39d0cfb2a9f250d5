//! A decoder made from a model's weights.

use super::{Decoder, Layer, Rope};
use crate::EngineError;
use crate::math::linear::Linear;
use crate::math::parallel::Threads;
use crate::pool::BLOCK;
use model::{Arch, Model, ModelConfig, Weights};

/// Reads and packs all weights, dequantised to f32. Takes seconds per hundred million parameters
/// and memory for one layer beyond the result. `positions` is the longest context in tokens.
pub(crate) fn load(
    model: &Model,
    positions: usize,
    threads: Threads,
) -> Result<Decoder, EngineError> {
    let (config, weights) = (model.config(), model.weights());
    if !config.head_dim.is_multiple_of(BLOCK) {
        return Err(EngineError::Unsupported {
            what: format!("a head dimension of {}, not a multiple of {BLOCK}", config.head_dim),
        });
    }
    let layers = (0..config.layers).map(|index| layer(config, weights, index));
    let head = floats(weights, "lm_head.weight")?;
    let embedding = match config.tie_word_embeddings {
        true => None,
        false => Some(floats(weights, "model.embed_tokens.weight")?),
    };
    Ok(Decoder {
        heads: config.heads,
        kv_heads: config.kv_heads,
        dim: config.head_dim,
        hidden: config.hidden,
        intermediate: config.intermediate,
        vocab: config.vocab,
        eps: config.rms_eps as f32,
        layers: layers.collect::<Result<_, _>>()?,
        norm: floats(weights, "model.norm.weight")?,
        head: Linear::pack(config.hidden, &[&head]),
        embedding,
        rope: Rope::new(&config.inv_freq(), positions),
        threads,
    })
}

fn layer(config: &ModelConfig, weights: &Weights, index: usize) -> Result<Layer, EngineError> {
    let read = |name: &str| floats(weights, &format!("model.layers.{index}.{name}.weight"));
    let (hidden, attended) = (config.hidden, config.heads * config.head_dim);
    let qkv = [read("self_attn.q_proj")?, read("self_attn.k_proj")?, read("self_attn.v_proj")?];
    let gate_up = [read("mlp.gate_proj")?, read("mlp.up_proj")?];
    let qk_norms = match config.arch {
        Arch::Llama => None,
        Arch::Qwen3 => Some([read("self_attn.q_norm")?, read("self_attn.k_norm")?]),
    };
    Ok(Layer {
        attention_norm: read("input_layernorm")?,
        qkv: Linear::pack(hidden, &qkv.each_ref().map(Vec::as_slice)),
        qk_norms,
        output: Linear::pack(attended, &[&read("self_attn.o_proj")?]),
        mlp_norm: read("post_attention_layernorm")?,
        gate_up: Linear::pack(hidden, &gate_up.each_ref().map(Vec::as_slice)),
        down: Linear::pack(config.intermediate, &[&read("mlp.down_proj")?]),
    })
}

fn floats(weights: &Weights, name: &str) -> Result<Vec<f32>, EngineError> {
    let failed = |detail: String| EngineError::Weights { name: name.to_owned(), detail };
    let tensor = weights.tensor(name).map_err(|e| failed(e.to_string()))?;
    tensor.flatten_all().and_then(|flat| flat.to_vec1()).map_err(|e| failed(e.to_string()))
}
