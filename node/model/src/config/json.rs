//! `config.json` of a Hugging Face folder, in its old and new forms.

use super::{Arch, ModelConfig, RopeScaling};
use crate::ModelError;
use crate::fields::{Fields, short};

/// Defaults of the two families where `config.json` leaves a field out (transformers'
/// `LlamaConfig` and `Qwen3Config`).
struct Defaults {
    head_dim: Option<usize>,
    max_position: usize,
}

/// Reads the configuration; `eos` of other files is added by the caller.
pub(crate) fn from_json(fields: &Fields<'_>) -> Result<ModelConfig, ModelError> {
    let arch = arch(fields)?;
    refuse_variants(fields)?;
    let defaults = match arch {
        Arch::Llama => Defaults { head_dim: None, max_position: 2048 },
        Arch::Qwen3 => Defaults { head_dim: Some(128), max_position: 32_768 },
    };
    let size = |name: &str| fields.need(name, fields.size(name)?);
    let hidden = size("hidden_size")?;
    let heads = size("num_attention_heads")?;
    let head_dim = fields.size("head_dim")?.or(defaults.head_dim);
    let (rope_theta, rope_scaling) = rope(fields)?;
    let config = ModelConfig {
        arch,
        hidden,
        layers: size("num_hidden_layers")?,
        heads,
        kv_heads: fields.size("num_key_value_heads")?.unwrap_or(heads),
        head_dim: head_dim.unwrap_or_else(|| hidden.checked_div(heads).unwrap_or(0)),
        intermediate: size("intermediate_size")?,
        vocab: size("vocab_size")?,
        rms_eps: fields.number("rms_norm_eps")?.unwrap_or(1e-6),
        rope_theta,
        rope_scaling,
        max_position: fields.size("max_position_embeddings")?.unwrap_or(defaults.max_position),
        tie_word_embeddings: fields.flag("tie_word_embeddings")?.unwrap_or(false),
        bos: fields.ids("bos_token_id")?.first().copied(),
        eos: fields.ids("eos_token_id")?,
    };
    config.check(fields.path())
}

fn arch(fields: &Fields<'_>) -> Result<Arch, ModelError> {
    const SUPPORTED: &str = "LlamaForCausalLM, Qwen3ForCausalLM";
    let named = fields.get("architectures").and_then(|list| list.get(0)?.as_str());
    let (field, found) = match named {
        Some(name) => ("architectures", Some(name)),
        None => ("model_type", fields.text("model_type")?),
    };
    match found {
        Some("LlamaForCausalLM" | "llama") => Ok(Arch::Llama),
        Some("Qwen3ForCausalLM" | "qwen3") => Ok(Arch::Qwen3),
        Some(other) => Err(ModelError::unsupported(fields.path(), field, other, SUPPORTED)),
        None => Err(fields.error("architectures", "is missing")),
    }
}

/// Variants of the families whose arithmetic differs: running them would give wrong tokens.
fn refuse_variants(fields: &Fields<'_>) -> Result<(), ModelError> {
    for name in ["attention_bias", "mlp_bias", "use_sliding_window"] {
        if fields.flag(name)? == Some(true) {
            return Err(ModelError::unsupported(fields.path(), name, "true", "false"));
        }
    }
    if let Some(found) = fields.text("hidden_act")?.filter(|act| !["silu", "swish"].contains(act)) {
        return Err(ModelError::unsupported(fields.path(), "hidden_act", found, "silu"));
    }
    if let Some(found) = fields.get("quantization_config") {
        let supported = "unquantised safetensors (f32, f16, bf16) or a quantised GGUF file";
        let found = short(found);
        return Err(ModelError::unsupported(
            fields.path(),
            "quantization_config",
            found,
            supported,
        ));
    }
    Ok(())
}

/// Old form: `rope_theta` and `rope_scaling`; new form: both inside `rope_parameters`.
fn rope(fields: &Fields<'_>) -> Result<(f64, RopeScaling), ModelError> {
    const DEFAULT_THETA: f64 = 10_000.0;
    let new = fields.object("rope_parameters", "rope_parameters.")?;
    let scaling = match new {
        Some(_) => new,
        None => fields.object("rope_scaling", "rope_scaling.")?,
    };
    let inner = match scaling {
        Some(scaling) => scaling.number("rope_theta")?,
        None => None,
    };
    let theta = match inner {
        Some(theta) => theta,
        None => fields.number("rope_theta")?.unwrap_or(DEFAULT_THETA),
    };
    let scaling = scaling.map(|scaling| rope_scaling(&scaling, fields)).transpose()?;
    Ok((theta, scaling.unwrap_or(RopeScaling::None)))
}

fn rope_scaling(scaling: &Fields<'_>, config: &Fields<'_>) -> Result<RopeScaling, ModelError> {
    let (field, kind) = match scaling.text("rope_type")? {
        Some(kind) => ("rope_type", kind),
        None => ("type", scaling.text("type")?.unwrap_or("default")),
    };
    let positive = |name: &str| {
        let value = scaling.need(name, scaling.number(name)?)?;
        if value > 0.0 {
            return Ok(value);
        }
        Err(scaling.error(name, format!("is {value}, expected a number above 0")))
    };
    match kind {
        "default" => Ok(RopeScaling::None),
        "linear" => Ok(RopeScaling::Linear { factor: positive("factor")? }),
        "llama3" => {
            let (low, high) = (positive("low_freq_factor")?, positive("high_freq_factor")?);
            if low >= high {
                let problem = format!("is {low}, expected less than high_freq_factor ({high})");
                return Err(scaling.error("low_freq_factor", problem));
            }
            let original = match scaling.size("original_max_position_embeddings")? {
                Some(original) => Some(original),
                None => config.size("original_max_position_embeddings")?,
            };
            Ok(RopeScaling::Llama3 {
                factor: positive("factor")?,
                low_freq_factor: low,
                high_freq_factor: high,
                original_context: scaling.need("original_max_position_embeddings", original)?,
            })
        }
        other => Err(ModelError::unsupported(
            scaling.path(),
            format!("rope scaling {field}"),
            other,
            "default, linear, llama3",
        )),
    }
}
