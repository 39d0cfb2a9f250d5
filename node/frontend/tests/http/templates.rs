//! Models that differ from the fixture in their chat template, and in how it marks turns.

use crate::cluster::tiny;
use model::{Model, RenderRequest};
use protocol::hash::Token;
use serde_json::json;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// As the Llama 3 family has it: a header around the role, contents trimmed, no tools.
const LLAMA: &str = concat!(
    "{{ '<|begin_of_text|>' }}{% for message in messages %}",
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'",
    " + message['content'] | trim + '<|eot_id|>' }}{% endfor %}",
    "{% if add_generation_prompt %}",
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
);

/// As SmolLM2 has it: a system message of its own where the conversation has none, no tools.
const SMOLLM2: &str = concat!(
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}",
    "{{ '<|im_start|>system\nYou are a helpful AI assistant.<|im_end|>\n' }}{% endif %}",
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}",
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
);

/// Refuses system messages that are not first, and keeps reasoning where it was.
const STRICT: &str = concat!(
    "{% for message in messages %}",
    "{% if message.role == 'system' and not loop.first %}",
    "{{ raise_exception('System message must be at the beginning.') }}{% endif %}",
    "{{ '<|im_start|>' + message.role + '\n' }}",
    "{% if message.reasoning_content %}",
    "{{ '<think>\n' + message.reasoning_content + '\n</think>\n\n' }}{% endif %}",
    "{{ message.content }}{{ '<|im_end|>\n' }}{% endfor %}",
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
);

/// Refuses a conversation in which no user has said anything.
const ASKED: &str = concat!(
    "{% set ns = namespace(asked=false) %}{% for message in messages %}",
    "{% if message.role == 'user' %}{% set ns.asked = true %}{% endif %}",
    "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% endfor %}",
    "{% if not ns.asked %}{{ raise_exception('No user query found in messages.') }}{% endif %}",
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
);

/// Refuses two user messages in a row.
const ALTERNATING: &str = concat!(
    "{% for message in messages %}",
    "{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}",
    "{{ raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}",
    "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% endfor %}",
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
);

/// Names the tool of each result.
const NAMES: &str = concat!(
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' }}",
    "{% if message.tool_calls %}{% for call in message.tool_calls %}",
    "{{ '<tool_call>' + call.function.name + (call.function.arguments | tojson) }}{% endfor %}{% endif %}",
    "{% if message.role == 'tool' %}{{ message.name + ': ' }}{% endif %}",
    "{{ message.content }}{{ '<|im_end|>\n' }}{% endfor %}",
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
);

/// The fixture with another template; `rename` also rewrites its tokenizer's control tokens.
fn variant(template: &str, rename: &[(&str, &str)]) -> Arc<Model> {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/tiny-qwen3");
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(&fixture).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    std::fs::write(folder.path().join("chat_template.jinja"), template).unwrap();
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        let path = folder.path().join(file);
        let mut text = std::fs::read_to_string(&path).unwrap();
        for (from, to) in rename {
            text = text.replace(from, to);
        }
        std::fs::write(path, text).unwrap();
    }
    Arc::new(Model::open(folder.path()).unwrap())
}

fn llama() -> Arc<Model> {
    static LLAMA_MODEL: OnceLock<Arc<Model>> = OnceLock::new();
    let rename = [
        ("<|im_start|>", "<|start_header_id|>"),
        ("<|im_end|>", "<|eot_id|>"),
        ("<|endoftext|>", "<|end_header_id|>"),
        ("<tool_response>", "<|begin_of_text|>"),
    ];
    LLAMA_MODEL.get_or_init(|| variant(LLAMA, &rename)).clone()
}

fn smollm2() -> Arc<Model> {
    static SMOLLM2_MODEL: OnceLock<Arc<Model>> = OnceLock::new();
    SMOLLM2_MODEL.get_or_init(|| variant(SMOLLM2, &[])).clone()
}

/// A template that wants its system message first, and shows reasoning.
pub(crate) fn strict() -> Arc<Model> {
    static STRICT_MODEL: OnceLock<Arc<Model>> = OnceLock::new();
    STRICT_MODEL.get_or_init(|| variant(STRICT, &[])).clone()
}

/// A template that names the tool of each result.
pub(crate) fn with_names() -> Arc<Model> {
    static NAMES_MODEL: OnceLock<Arc<Model>> = OnceLock::new();
    NAMES_MODEL.get_or_init(|| variant(NAMES, &[])).clone()
}

/// A template that refuses what the API allows.
pub(crate) fn alternating() -> Arc<Model> {
    static ALTERNATING_MODEL: OnceLock<Arc<Model>> = OnceLock::new();
    ALTERNATING_MODEL.get_or_init(|| variant(ALTERNATING, &[])).clone()
}

/// A template that refuses what has no question.
pub(crate) fn asked() -> Arc<Model> {
    static ASKED_MODEL: OnceLock<Arc<Model>> = OnceLock::new();
    ASKED_MODEL.get_or_init(|| variant(ASKED, &[])).clone()
}

/// Models of all kinds whose templates only ever append.
pub(crate) fn appending() -> [(&'static str, Arc<Model>); 4] {
    [("qwen", tiny()), ("llama", llama()), ("smollm2", smollm2()), ("strict", strict())]
}

/// The prompt without the beginning of an answer, which the template put at its end.
pub(crate) fn history(model: &Model, prompt: &[Token]) -> Vec<Token> {
    let messages = [json!({"role": "user", "content": "x"})];
    let render = |add_generation_prompt| {
        let request = RenderRequest { messages: &messages, tools: &[], add_generation_prompt };
        model.template().render(&request).unwrap()
    };
    let with = render(true);
    let end = with.strip_prefix(&render(false)).expect("the template only appends").to_owned();
    let end = model.tokenizer().encode(&end, false);
    prompt.strip_suffix(end.as_slice()).expect("an answer is begun").to_vec()
}

/// The text of tokens, control tokens left out.
pub(crate) fn text(model: &Model, tokens: &[Token]) -> String {
    model.tokenizer().decode(tokens)
}
