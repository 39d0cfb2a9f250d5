//! A model folder for the measurements: real byte-level BPE, weights that nobody computes with.
//!
//! The words of our agents are one token each with the space before them, everything else falls
//! apart into bytes: about five bytes a token, as usual vocabularies have for English. The splitting
//! expression is the one of Qwen's and of most recent tokenizers, the template is ChatML with tools.

use crate::agents::words::WORDS;
use crate::error::LoadError;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Longest context in tokens.
const CONTEXT: u32 = 262_144;
/// Width of the model.
const HIDDEN: usize = 8;
const SPECIALS: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];
/// Source: `tokenizer.json` of Qwen2 and Qwen3.
const SPLIT: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEMPLATE: &str = r#"{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{%- endif %}
    {{- '# Tools\n<tools>' }}
    {%- for tool in tools %}{{- '\n' }}{{- tool | tojson }}{%- endfor %}
    {{- '\n</tools><|im_end|>\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\n' }}
        {%- if message.content %}{{- message.content }}{%- endif %}
        {%- for call in message.tool_calls or [] %}
            {{- '\n<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}
            {{- call.function.arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user\n<tool_response>\n' + message.content + '\n</tool_response><|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}
"#;

/// Writes the folder's files.
pub(super) fn write(folder: &Path) -> Result<(), LoadError> {
    std::fs::create_dir_all(folder).map_err(LoadError::io("make the model's folder"))?;
    let (tokenizer, vocabulary) = tokenizer();
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "hidden_size": HIDDEN, "intermediate_size": HIDDEN,
        "num_attention_heads": 1, "num_key_value_heads": 1, "num_hidden_layers": 1,
        "head_dim": HIDDEN, "vocab_size": vocabulary, "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-6, "rope_theta": 10_000.0, "tie_word_embeddings": true,
        "eos_token_id": 2, "torch_dtype": "float32",
    });
    for (file, bytes) in [
        ("config.json", config.to_string().into_bytes()),
        ("tokenizer.json", tokenizer.to_string().into_bytes()),
        ("chat_template.jinja", TEMPLATE.as_bytes().to_vec()),
        ("model.safetensors", weights(vocabulary)),
    ] {
        std::fs::write(folder.join(file), bytes).map_err(LoadError::io(format!("write {file}")))?;
    }
    Ok(())
}

/// GPT-2's letter for a byte.
fn letter(byte: u8) -> char {
    let shifted = match byte {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => u32::from(byte),
        0..=0x20 => 0x100 + u32::from(byte),
        0x7f..=0xa0 => 0x121 + u32::from(byte - 0x7f),
        0xad => 0x143,
    };
    char::from_u32(shifted).unwrap_or('?')
}

fn capital(word: &str) -> String {
    word.get(..1)
        .map(str::to_ascii_uppercase)
        .into_iter()
        .chain(word.get(1..).map(str::to_owned))
        .collect()
}

/// The tokenizer and the size of its vocabulary.
fn tokenizer() -> (Value, usize) {
    let mut vocabulary: BTreeMap<String, usize> = BTreeMap::new();
    let add = |vocabulary: &mut BTreeMap<String, usize>, token: String| {
        let next = vocabulary.len();
        *vocabulary.entry(token).or_insert(next)
    };
    for special in SPECIALS {
        add(&mut vocabulary, special.to_owned());
    }
    for byte in 0..=u8::MAX {
        add(&mut vocabulary, letter(byte).to_string());
    }
    // Each word grows letter by letter; words with one beginning share its merges.
    let mut merges: Vec<Value> = Vec::new();
    for word in WORDS.iter().flat_map(|word| [(*word).to_owned(), capital(word)]) {
        let spelt: Vec<String> =
            format!(" {word}").bytes().map(|b| letter(b).to_string()).collect();
        let mut grown = spelt.first().cloned().unwrap_or_default();
        for next in spelt.iter().skip(1) {
            let longer = format!("{grown}{next}");
            if !vocabulary.contains_key(&longer) {
                merges.push(json!([grown, next]));
                add(&mut vocabulary, longer.clone());
            }
            grown = longer;
        }
    }
    let added: Vec<Value> = SPECIALS
        .iter()
        .enumerate()
        .map(|(id, text)| {
            json!({ "id": id, "content": text, "single_word": false, "lstrip": false,
                    "rstrip": false, "normalized": false, "special": true })
        })
        .collect();
    let size = vocabulary.len();
    let byte_level = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
                             "use_regex": false });
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": { "type": "Sequence", "pretokenizers": [
            { "type": "Split", "pattern": { "Regex": SPLIT }, "behavior": "Isolated",
              "invert": false },
            byte_level.clone(),
        ]},
        "post_processor": null,
        "decoder": byte_level,
        "model": { "type": "BPE", "dropout": null, "unk_token": null,
                   "continuing_subword_prefix": "", "end_of_word_suffix": "", "fuse_unk": false,
                   "byte_fallback": false, "ignore_merges": false, "vocab": vocabulary,
                   "merges": merges },
    });
    (tokenizer, size)
}

/// A safetensors file of zeros: length of the header, header, data.
fn weights(vocabulary: usize) -> Vec<u8> {
    let square = vec![HIDDEN, HIDDEN];
    let layer = "model.layers.0";
    let mut tensors = vec![
        ("model.embed_tokens.weight".to_owned(), vec![vocabulary, HIDDEN]),
        ("model.norm.weight".to_owned(), vec![HIDDEN]),
        (format!("{layer}.input_layernorm.weight"), vec![HIDDEN]),
        (format!("{layer}.post_attention_layernorm.weight"), vec![HIDDEN]),
    ];
    for part in ["self_attn.q", "self_attn.k", "self_attn.v", "self_attn.o"] {
        tensors.push((format!("{layer}.{part}_proj.weight"), square.clone()));
    }
    for part in ["gate", "up", "down"] {
        tensors.push((format!("{layer}.mlp.{part}_proj.weight"), square.clone()));
    }
    let (mut header, mut end) = (Map::new(), 0);
    for (name, shape) in tensors {
        let start = end;
        end += shape.iter().product::<usize>() * size_of::<f32>();
        let entry = json!({ "dtype": "F32", "shape": shape, "data_offsets": [start, end] });
        header.insert(name, entry);
    }
    let mut header = Value::Object(header).to_string();
    header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));
    let length = (header.len() as u64).to_le_bytes();
    [&length, header.as_bytes(), &vec![0; end]].concat()
}
