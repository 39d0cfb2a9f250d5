//! GGUF tensor names in Hugging Face's words.

/// The Hugging Face name of a GGUF tensor; `None` for tensors that no decoder of ours uses.
pub(crate) fn hugging_face_name(gguf: &str) -> Option<String> {
    let fixed = match gguf {
        "token_embd.weight" => Some("model.embed_tokens.weight"),
        "output_norm.weight" => Some("model.norm.weight"),
        "output.weight" => Some("lm_head.weight"),
        _ => None,
    };
    if let Some(name) = fixed {
        return Some(name.to_owned());
    }
    let (layer, part) = gguf.strip_prefix("blk.")?.split_once('.')?;
    let layer: usize = layer.parse().ok()?;
    let (part, kind) = part.rsplit_once('.')?;
    let part = match part {
        "attn_norm" => "input_layernorm",
        "ffn_norm" => "post_attention_layernorm",
        "attn_q" => "self_attn.q_proj",
        "attn_k" => "self_attn.k_proj",
        "attn_v" => "self_attn.v_proj",
        "attn_output" => "self_attn.o_proj",
        "attn_q_norm" => "self_attn.q_norm",
        "attn_k_norm" => "self_attn.k_norm",
        "ffn_gate" => "mlp.gate_proj",
        "ffn_up" => "mlp.up_proj",
        "ffn_down" => "mlp.down_proj",
        _ => return None,
    };
    Some(format!("model.layers.{layer}.{part}.{kind}"))
}

/// Names and shapes of all tensors that the decoder of `config` uses.
pub(super) fn needed(config: &crate::ModelConfig) -> Vec<(String, Vec<usize>)> {
    let (hidden, inner) = (config.hidden, config.intermediate);
    let queries = config.heads * config.head_dim;
    let keys = config.kv_heads * config.head_dim;
    let mut all = vec![
        (super::EMBEDDING.to_owned(), vec![config.vocab, hidden]),
        ("model.norm.weight".to_owned(), vec![hidden]),
    ];
    if !config.tie_word_embeddings {
        all.push((super::HEAD.to_owned(), vec![config.vocab, hidden]));
    }
    for layer in 0..config.layers {
        let mut push = |part: &str, shape: Vec<usize>| {
            all.push((format!("model.layers.{layer}.{part}.weight"), shape));
        };
        push("input_layernorm", vec![hidden]);
        push("post_attention_layernorm", vec![hidden]);
        push("self_attn.q_proj", vec![queries, hidden]);
        push("self_attn.k_proj", vec![keys, hidden]);
        push("self_attn.v_proj", vec![keys, hidden]);
        push("self_attn.o_proj", vec![hidden, queries]);
        push("mlp.gate_proj", vec![inner, hidden]);
        push("mlp.up_proj", vec![inner, hidden]);
        push("mlp.down_proj", vec![hidden, inner]);
        if config.arch == crate::Arch::Qwen3 {
            push("self_attn.q_norm", vec![config.head_dim]);
            push("self_attn.k_norm", vec![config.head_dim]);
        }
    }
    all
}
