//! The configuration in a GGUF file's metadata.

use super::{Arch, ModelConfig, RopeScaling};
use crate::ModelError;
use crate::fields::Fields;

/// Shapes and data that the metadata leaves to the tensors.
pub(crate) struct FromTensors {
    /// Rows of `token_embd.weight`.
    pub(crate) vocab: Option<usize>,
    /// `output.weight` is there.
    pub(crate) has_head: bool,
    /// Content of `rope_freqs.weight`.
    pub(crate) rope_factors: Option<Vec<f32>>,
}

/// Reads the configuration from the scalar metadata of a GGUF file.
pub(crate) fn from_gguf(
    fields: &Fields<'_>,
    tensors: FromTensors,
) -> Result<ModelConfig, ModelError> {
    let arch = arch(fields)?;
    let key = |name: &str| format!("{}.{name}", arch.name());
    let size = |name: &str| fields.size(&key(name));
    let need = |name: &str| fields.need(&key(name), size(name)?);
    let hidden = need("embedding_length")?;
    let heads = need("attention.head_count")?;
    let head_dim = match size("attention.key_length")? {
        Some(head_dim) => head_dim,
        None => hidden.checked_div(heads).unwrap_or(0),
    };
    refuse_variants(fields, arch, head_dim)?;
    let theta = fields.number(&key("rope.freq_base"))?.unwrap_or(10_000.0);
    let config = ModelConfig {
        arch,
        hidden,
        layers: need("block_count")?,
        heads,
        kv_heads: size("attention.head_count_kv")?.unwrap_or(heads),
        head_dim,
        intermediate: need("feed_forward_length")?,
        vocab: fields.need("token_embd.weight", tensors.vocab)?,
        rms_eps: fields.need(
            &key("attention.layer_norm_rms_epsilon"),
            fields.number(&key("attention.layer_norm_rms_epsilon"))?,
        )?,
        rope_theta: theta,
        rope_scaling: scaling(fields, arch, head_dim, tensors.rope_factors)?,
        max_position: need("context_length")?,
        tie_word_embeddings: !tensors.has_head,
        bos: fields.ids("tokenizer.ggml.bos_token_id")?.first().copied(),
        eos: eos(fields)?,
    };
    config.check(fields.path())
}

fn arch(fields: &Fields<'_>) -> Result<Arch, ModelError> {
    const FIELD: &str = "general.architecture";
    match fields.need(FIELD, fields.text(FIELD)?)? {
        "llama" => Ok(Arch::Llama),
        "qwen3" => Ok(Arch::Qwen3),
        other => Err(ModelError::unsupported(fields.path(), FIELD, other, "llama, qwen3")),
    }
}

fn refuse_variants(fields: &Fields<'_>, arch: Arch, head_dim: usize) -> Result<(), ModelError> {
    let experts = format!("{}.expert_count", arch.name());
    if let Some(count) = fields.size(&experts)?.filter(|count| *count > 0) {
        return Err(ModelError::unsupported(fields.path(), experts, count.to_string(), "0"));
    }
    for name in ["rope.dimension_count", "attention.value_length"] {
        let name = format!("{}.{name}", arch.name());
        if let Some(found) = fields.size(&name)?.filter(|found| *found != head_dim) {
            let supported = format!("{head_dim} (the head dimension)");
            return Err(ModelError::unsupported(fields.path(), name, found.to_string(), supported));
        }
    }
    Ok(())
}

fn scaling(
    fields: &Fields<'_>,
    arch: Arch,
    head_dim: usize,
    factors: Option<Vec<f32>>,
) -> Result<RopeScaling, ModelError> {
    if let Some(factors) = factors {
        let usable = factors.iter().all(|factor| factor.is_finite() && *factor > 0.0);
        if factors.len() != head_dim / 2 || !usable {
            let problem = format!("does not hold {} numbers above 0", head_dim / 2);
            return Err(fields.error("rope_freqs.weight", problem));
        }
        return Ok(RopeScaling::Factors(factors));
    }
    let name = format!("{}.rope.scaling.type", arch.name());
    match fields.text(&name)?.unwrap_or("none") {
        "none" => Ok(RopeScaling::None),
        "linear" => {
            let name = format!("{}.rope.scaling.factor", arch.name());
            match fields.need(&name, fields.number(&name)?)? {
                factor if factor > 0.0 => Ok(RopeScaling::Linear { factor }),
                _ => Err(fields.error(&name, "is not above 0")),
            }
        }
        other => Err(ModelError::unsupported(fields.path(), name, other, "none, linear")),
    }
}

fn eos(fields: &Fields<'_>) -> Result<Vec<u32>, ModelError> {
    let names = ["eos_token_id", "eot_token_id", "eom_token_id"];
    let mut all = Vec::new();
    for name in names {
        all.extend(fields.ids(&format!("tokenizer.ggml.{name}"))?);
    }
    Ok(all)
}
