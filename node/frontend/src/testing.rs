//! What the tests share: the tiny model and keys.

use model::Model;
use protocol::hash::{RoutingKey, Token};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// The tiny model of the test fixtures.
pub(crate) fn tiny() -> Arc<Model> {
    static TINY: OnceLock<Arc<Model>> = OnceLock::new();
    let open = || {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/tiny-qwen3");
        Arc::new(Model::open(&path).unwrap())
    };
    TINY.get_or_init(open).clone()
}

/// The tiny model, served with a context of `context` tokens.
pub(crate) fn served(context: u32) -> crate::ServedModel {
    crate::ServedModel {
        name: "tiny".into(),
        aliases: vec!["small".into()],
        model: tiny(),
        context,
        created: 0,
        format: crate::Format::Hermes,
    }
}

/// The key of one salt.
pub(crate) fn key(salt: u8) -> RoutingKey {
    RoutingKey::derive(&tiny().routing(), &[salt; 32])
}

/// Tokens of `text`.
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    tiny().tokenizer().encode(text, false)
}

/// Two tools: `w`, which takes a text `city`, an integer `n` and whatever `any`, and `now`, which
/// takes nothing.
pub(crate) fn tools() -> crate::tools::Tools {
    let w = serde_json::json!({"type": "function", "function": {"name": "w", "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "n": {"type": "integer"}, "any": {}},
    }}});
    let now = serde_json::json!({"type": "function", "function": {"name": "now", "parameters": {
        "type": "object", "properties": {},
    }}});
    crate::tools::Tools::new([w, now].into())
}
