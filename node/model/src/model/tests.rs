mod builtin;
mod gguf;
mod smollm2;

use super::{Model, OpenOptions};
use crate::{Arch, ModelError, RenderRequest, RopeScaling};
use protocol::hash::Token;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

pub(super) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures")
}

/// A copy of the tiny model, to be damaged.
fn copy() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(fixtures().join("tiny-qwen3")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    folder
}

fn edit(folder: &Path, file: &str, change: impl FnOnce(&mut Value)) {
    let path = folder.join(file);
    let mut value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut value);
    std::fs::write(path, value.to_string()).unwrap();
}

fn error(folder: &Path) -> ModelError {
    Model::open(folder).expect_err("the model is damaged")
}

#[test]
fn a_model_is_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Model>();
    shared::<crate::Tokenizer>();
    shared::<crate::DecodeStream>();
}

#[test]
fn the_tiny_model() {
    let model = Model::open(&fixtures().join("tiny-qwen3")).unwrap();
    assert_eq!(model.name(), "tiny-qwen3");
    let config = model.config();
    assert_eq!((config.arch, config.layers, config.heads, config.kv_heads), (Arch::Qwen3, 2, 4, 2));
    assert_eq!((config.hidden, config.head_dim, config.vocab), (64, 32, 1024));
    assert_eq!((config.rope_theta, config.max_position), (1e4, 4096));
    assert_eq!(config.rope_scaling, RopeScaling::None);
    assert!(model.tokenizer().vocab_size() <= config.vocab);
    let end = |text| model.tokenizer().token(text).unwrap();
    assert_eq!(model.stop_tokens(), [end("<|endoftext|>"), end("<|im_end|>")]);
    let query = model.weights().tensor("model.layers.1.self_attn.q_proj.weight").unwrap();
    assert_eq!(query.dims(), [128, 64]);
    let spread = query.sqr().unwrap().mean_all().unwrap().to_scalar::<f32>().unwrap();
    assert!((0.2..0.4).contains(&spread.sqrt()), "{spread}");
    assert!(model.template().renders_tools());
    assert_eq!(model.routing(), Model::open(&fixtures().join("tiny-qwen3")).unwrap().routing());
}

/// Token ids of rendered conversations, as transformers has them.
pub(super) fn check_ids(model: &Model, template: &str) {
    let text = std::fs::read_to_string(fixtures().join("reference/templates.json")).unwrap();
    let cases: Vec<Value> = serde_json::from_str(&text).unwrap();
    let cases: Vec<&Value> = cases.iter().filter(|case| case["template"] == template).collect();
    assert!(cases.len() >= 10);
    for case in cases {
        let request = RenderRequest {
            messages: case["messages"].as_array().unwrap(),
            tools: case["tools"].as_array().unwrap(),
            add_generation_prompt: case["add_generation_prompt"].as_bool().unwrap(),
        };
        let rendered = model.template().render(&request).unwrap();
        let ids: Vec<u64> =
            case["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
        let tokens = model.tokenizer().encode(&rendered, false);
        let tokens: Vec<u64> = tokens.iter().map(|token| u64::from(token.0)).collect();
        assert_eq!(tokens, ids, "{}", case["name"]);
    }
}

/// The reference prompts are inside the model's limits and do not repeat themselves.
pub(super) fn check_reference(model: &Model, file: &str) {
    let text = std::fs::read_to_string(fixtures().join("reference").join(file)).unwrap();
    let prompts: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert!(prompts.len() >= 24);
    let len = |prompt: &Value, key: &str| prompt[key].as_array().unwrap().len();
    assert!(prompts.iter().filter(|prompt| len(prompt, "prompt_ids") > 1500).count() >= 6);
    for prompt in &prompts {
        assert!(prompt["min_margin"].as_f64().unwrap() > 1e-3);
        assert_eq!(len(prompt, "output_ids"), 24);
        assert!(len(prompt, "prompt_ids") + 24 <= model.config().max_position.min(2048));
        for id in
            ["prompt_ids", "output_ids"].iter().flat_map(|key| prompt[*key].as_array().unwrap())
        {
            assert!((id.as_u64().unwrap() as usize) < model.config().vocab);
        }
    }
}

#[test]
fn the_tiny_model_tokenises_as_transformers() {
    let model = Model::open(&fixtures().join("tiny-qwen3")).unwrap();
    check_ids(&model, "tiny-qwen3");
    check_reference(&model, "tiny-qwen3.json");
}

/// The prefix property in tokens: control tokens are borders that no token crosses.
#[test]
fn longer_histories_begin_with_the_same_tokens() {
    let model = Model::open(&fixtures().join("tiny-qwen3")).unwrap();
    let call = json!({"function": {"name": "f", "arguments": "{\"a\": \"\\n\"}"}});
    let messages = [
        json!({"role": "system", "content": "Be brief. "}),
        json!({"role": "user", "content": "\n ü🙂 "}),
        json!({"role": "assistant", "content": " \n", "tool_calls": [call]}),
        json!({"role": "tool", "content": ""}),
        json!({"role": "system", "content": "\n\n"}),
        json!({"role": "user", "content": "  <|im_end|>"}),
    ];
    let mut before = Vec::new();
    for n in 1..=messages.len() {
        let messages = &messages[..n];
        let request = RenderRequest { messages, tools: &[], add_generation_prompt: false };
        let text = model.template().render(&request).unwrap();
        let tokens = model.tokenizer().encode(&text, false);
        assert!(tokens.starts_with(&before) && tokens.len() > before.len());
        before = tokens;
    }
}

#[test]
fn paths_that_are_no_models() {
    let folder = tempfile::tempdir().unwrap();
    let nothing = folder.path().join("nothing");
    assert!(matches!(error(&nothing), ModelError::Missing { .. }));
    let message = error(folder.path()).to_string();
    assert!(message.contains("config.json") && message.contains(".gguf"), "{message}");
    let text = folder.path().join("notes.txt");
    std::fs::write(&text, "hello").unwrap();
    assert!(matches!(error(&text), ModelError::NotAModel { .. }));
    for name in ["a.gguf", "b.gguf"] {
        std::fs::write(folder.path().join(name), "GGUF").unwrap();
    }
    assert!(error(folder.path()).to_string().contains("found 2"));
}

#[test]
fn missing_files_are_named() {
    for name in ["model.safetensors", "tokenizer.json"] {
        let folder = copy();
        std::fs::remove_file(folder.path().join(name)).unwrap();
        let message = error(folder.path()).to_string();
        assert!(message.contains(name.trim_start_matches("model")), "{message}");
    }
    // The others are optional.
    let folder = copy();
    for name in ["generation_config.json", "tokenizer_config.json", "chat_template.jinja"] {
        std::fs::remove_file(folder.path().join(name)).unwrap();
    }
    let model = Model::open(folder.path()).unwrap();
    assert_eq!(model.template().source(), None);
}

#[test]
fn truncated_files_are_damage() {
    for (name, keep) in [("model.safetensors", 0.9), ("config.json", 0.5), ("tokenizer.json", 0.5)]
    {
        let folder = copy();
        let path = folder.path().join(name);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..(bytes.len() as f64 * keep) as usize]).unwrap();
        let message = error(folder.path()).to_string();
        assert!(message.contains(name) && message.contains("download it again"), "{message}");
    }
}

#[test]
fn a_configuration_of_another_model_is_noticed() {
    let folder = copy();
    edit(folder.path(), "config.json", |config| {
        config["num_hidden_layers"] = json!(3);
    });
    assert!(
        matches!(error(folder.path()), ModelError::TensorMissing { name, .. } if name.contains("layers.2"))
    );
    edit(folder.path(), "config.json", |config| {
        config["num_hidden_layers"] = json!(1u64 << 40);
    });
    assert!(matches!(error(folder.path()), ModelError::Field { .. }));
    let folder = copy();
    edit(folder.path(), "config.json", |config| {
        config["intermediate_size"] = json!(256);
    });
    assert!(matches!(error(folder.path()), ModelError::TensorShape { .. }));
    let folder = copy();
    edit(folder.path(), "config.json", |config| {
        config["eos_token_id"] = json!(5000);
    });
    assert!(error(folder.path()).to_string().contains("eos_token_id"));
}

#[test]
fn templates_and_ends_from_the_old_files() {
    let folder = copy();
    std::fs::remove_file(folder.path().join("chat_template.jinja")).unwrap();
    edit(folder.path(), "generation_config.json", |config| {
        config["eos_token_id"] = json!([7, 2]);
    });
    edit(folder.path(), "tokenizer_config.json", |config| {
        config["chat_template"] = json!([
            {"name": "tool_use", "template": "no"},
            {"name": "default", "template": "{{ bos_token }}{{ eos_token }}"},
        ]);
        config["bos_token"] = json!({"content": "<|im_start|>", "lstrip": false});
    });
    let model = Model::open(folder.path()).unwrap();
    assert!(model.stop_tokens().contains(&Token(7)));
    assert_eq!(model.config().eos, [0, 2, 7]);
    let messages = [json!({"role": "user", "content": "x"})];
    let request = RenderRequest { messages: &messages, tools: &[], add_generation_prompt: true };
    assert_eq!(model.template().render(&request).unwrap(), "<|im_start|><|im_end|>");
    std::fs::write(folder.path().join("chat_template.jinja"), "{% for %}").unwrap();
    let message = error(folder.path()).to_string();
    assert!(message.contains("chat_template.jinja"), "{message}");
}

#[test]
fn weights_in_several_files() {
    let folder = copy();
    let whole = folder.path().join("model.safetensors");
    std::fs::rename(&whole, folder.path().join("part.safetensors")).unwrap();
    let before = Model::open(folder.path()).unwrap().routing();
    let index = folder.path().join("model.safetensors.index.json");
    std::fs::write(&index, r#"{"weight_map": {"x": "part.safetensors"}}"#).unwrap();
    assert_eq!(Model::open(folder.path()).unwrap().routing(), before);
    for (map, word) in [
        (r#"{"weight_map": {"x": "../part.safetensors"}}"#, "weight_map.x"),
        (r#"{"weight_map": {"x": "other.safetensors"}}"#, "other.safetensors"),
        (r#"{"weight_map": {}}"#, "weight_map"),
        (r#"{}"#, "weight_map"),
    ] {
        std::fs::write(&index, map).unwrap();
        let message = error(folder.path()).to_string();
        assert!(message.contains(word), "{message}");
    }
}

#[test]
fn the_routing_namespace_sees_what_matters() {
    let before = Model::open(&fixtures().join("tiny-qwen3")).unwrap().routing();
    let folder = copy();
    assert_eq!(Model::open(folder.path()).unwrap().routing(), before);
    let template = folder.path().join("chat_template.jinja");
    std::fs::write(&template, "other").unwrap();
    let other = Model::open(folder.path()).unwrap().routing();
    assert!(other.tokenizer != before.tokenizer && other.weights == before.weights);
    let folder = copy();
    let path = folder.path().join("model.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, bytes).unwrap();
    let other = Model::open(folder.path()).unwrap().routing();
    assert!(other.tokenizer == before.tokenizer && other.weights != before.weights);
}

#[test]
fn the_date_reaches_the_template() {
    let folder = copy();
    let template = folder.path().join("chat_template.jinja");
    std::fs::write(&template, "{{ strftime_now('%F') }}").unwrap();
    let today = Some(crate::Date { year: 2026, month: 2, day: 3 });
    let model = Model::open_with(folder.path(), &OpenOptions { today }).unwrap();
    let messages = [json!({"role": "user", "content": "x"})];
    let request = RenderRequest { messages: &messages, tools: &[], add_generation_prompt: true };
    assert_eq!(model.template().render(&request).unwrap(), "2026-02-03");
    let own = "{% if strftime_now is defined %}{{ strftime_now('%F') }}{% else %}a day{% endif %}";
    std::fs::write(&template, own).unwrap();
    let model = Model::open_with(folder.path(), &OpenOptions { today }).unwrap();
    assert_eq!(model.template().render(&request).unwrap(), "a day", "the same every day");
}
