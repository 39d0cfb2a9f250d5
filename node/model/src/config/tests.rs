use super::{Arch, ModelConfig, RopeScaling, from_json};
use crate::ModelError;
use crate::fields::Fields;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::path::Path;

fn read(config: &Value) -> Result<ModelConfig, ModelError> {
    from_json(&Fields::new(Path::new("config.json"), config.as_object().unwrap()))
}

fn llama() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 100,
    })
}

fn with(mut config: Value, changes: Value) -> Value {
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}

#[test]
fn old_form_with_defaults() {
    let config =
        read(&with(llama(), json!({"rope_theta": 5e5, "torch_dtype": "float16"}))).unwrap();
    assert_eq!((config.arch, config.head_dim, config.kv_heads), (Arch::Llama, 16, 4));
    assert_eq!((config.rope_theta, config.rope_scaling.clone()), (5e5, RopeScaling::None));
    assert_eq!((config.max_position, config.tie_word_embeddings), (2048, false));
    assert!(config.eos.is_empty());
}

#[test]
fn new_form() {
    let config = with(
        llama(),
        json!({
            "architectures": ["Qwen3ForCausalLM"], "head_dim": 32, "dtype": "bfloat16",
            "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}, "eos_token_id": [1, 2],
        }),
    );
    let config = read(&config).unwrap();
    assert_eq!((config.arch, config.head_dim, config.rope_theta), (Arch::Qwen3, 32, 1e6));
    assert_eq!(config.eos, [1, 2]);
}

#[test]
fn rope_scaling_in_both_forms() {
    let scaling = json!({
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192, "rope_type": "llama3",
    });
    let old = read(&with(llama(), json!({"rope_scaling": scaling, "rope_theta": 5e5}))).unwrap();
    let mut new = scaling;
    new["rope_theta"] = json!(5e5);
    let new = read(&with(llama(), json!({"rope_parameters": new}))).unwrap();
    assert_eq!(old, new);
    assert!(matches!(old.rope_scaling, RopeScaling::Llama3 { original_context: 8192, .. }));
    let linear = json!({"rope_scaling": {"type": "linear", "factor": 2.0}});
    let linear = read(&with(llama(), linear)).unwrap();
    assert_eq!(linear.rope_scaling, RopeScaling::Linear { factor: 2.0 });
    let yarn = read(&with(llama(), json!({"rope_scaling": {"type": "yarn", "factor": 2.0}})));
    assert!(matches!(yarn, Err(ModelError::Unsupported { found, .. }) if found == "yarn"));
}

#[test]
fn frequencies() {
    let plain = read(&with(llama(), json!({"rope_theta": 1e4}))).unwrap();
    let frequencies = plain.inv_freq();
    assert_eq!(frequencies.len(), 8);
    assert_eq!(frequencies[0], 1.0);
    assert!((frequencies[4] - 0.01).abs() < 1e-7);
    let scaling = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_context: 8192,
    };
    let long =
        ModelConfig { rope_scaling: scaling, rope_theta: 5e5, head_dim: 128, ..plain.clone() };
    let unscaled = ModelConfig { rope_scaling: RopeScaling::None, ..long.clone() }.inv_freq();
    let scaled = long.inv_freq();
    assert_eq!(scaled[0], unscaled[0]); // high frequencies stay
    assert_eq!(scaled[63], unscaled[63] / 8.0); // low ones are divided
    assert!(scaled.iter().zip(&unscaled).any(|(s, u)| *s < *u && *s > u / 8.0)); // a ramp between
    let factors = RopeScaling::Factors(vec![2.0; 8]);
    let halved = ModelConfig { rope_scaling: factors, ..plain }.inv_freq();
    assert_eq!(halved[0], 0.5);
}

#[test]
fn other_models_are_named() {
    let mistral = with(llama(), json!({"architectures": ["MistralForCausalLM"]}));
    let message = read(&mistral).unwrap_err().to_string();
    for part in ["architectures", "MistralForCausalLM", "LlamaForCausalLM", "Qwen3ForCausalLM"] {
        assert!(message.contains(part), "{message}");
    }
    for change in [
        json!({"attention_bias": true}),
        json!({"mlp_bias": true}),
        json!({"hidden_act": "gelu"}),
        json!({"use_sliding_window": true}),
        json!({"quantization_config": {"bits": 4}}),
    ] {
        let error = read(&with(llama(), change.clone()));
        assert!(matches!(error, Err(ModelError::Unsupported { .. })), "{change}");
    }
}

#[test]
fn unreadable_fields_are_named() {
    for (field, value) in [
        ("hidden_size", json!("64")),
        ("num_hidden_layers", json!(-1)),
        ("vocab_size", json!(1.5)),
        ("rms_norm_eps", json!([])),
        ("rope_theta", json!("big")),
        ("eos_token_id", json!("</s>")),
        ("tie_word_embeddings", json!("yes")),
        ("intermediate_size", json!(null)),
        ("rope_scaling", json!("linear")),
    ] {
        let message = read(&with(llama(), json!({field: value}))).unwrap_err().to_string();
        assert!(message.contains(field), "{field}: {message}");
    }
    let inside = json!({"rope_parameters": {"rope_type": "linear"}});
    let message = read(&with(llama(), inside)).unwrap_err().to_string();
    assert!(message.contains("rope_parameters.factor"), "{message}");
}

#[test]
fn impossible_sizes_are_refused() {
    for change in [
        json!({"num_attention_heads": 0}),
        json!({"num_key_value_heads": 3}),
        json!({"head_dim": 15}),
        json!({"num_hidden_layers": 1u64 << 60}),
        json!({"rms_norm_eps": 0.0}),
        json!({"rope_theta": -1.0}),
    ] {
        assert!(matches!(read(&with(llama(), change)), Err(ModelError::Field { .. })));
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z3]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("(type|factor|rope_type)", inner, 0..3)
                .prop_map(|map| map.into_iter().collect()),
        ]
    })
}

proptest! {
    /// Whatever a field holds, the answer is a usable configuration or an error.
    #[test]
    fn any_field_values(field in 0usize..12, value in any_json()) {
        const FIELDS: [&str; 12] = [
            "architectures", "hidden_size", "num_attention_heads", "num_key_value_heads",
            "head_dim", "vocab_size", "rope_scaling", "rope_parameters", "eos_token_id",
            "max_position_embeddings", "rms_norm_eps", "num_hidden_layers",
        ];
        if let Ok(config) = read(&with(llama(), json!({FIELDS[field]: value}))) {
            prop_assert_eq!(config.inv_freq().len() * 2, config.head_dim);
            prop_assert_eq!(config.heads % config.kv_heads, 0);
        }
    }
}
