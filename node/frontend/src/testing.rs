//! What the tests share: the tiny model, keys, a cluster that serves nothing, and the reader of
//! event streams.

use crate::{Cluster, Kept, RecordName, Served, ServedModel, Unkept, Want};
use futures::FutureExt;
use futures::future::BoxFuture;
use model::{Model, Processor};
use protocol::hash::{ClientSalt, RoutingKey, Token};
use protocol::id::TenantId;
use protocol::prompt::{Prompt, Refusal};
use protocol::time::Span;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Event streams put together again, as clients read them.
#[path = "../tests/http/sse.rs"]
pub(crate) mod read;

/// The tiny model of the test fixtures.
fn opened() -> &'static Model {
    static TINY: OnceLock<Model> = OnceLock::new();
    TINY.get_or_init(|| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/tiny-qwen3");
        Model::open(&path).unwrap()
    })
}

/// The tiny model without its weights.
pub(crate) fn tiny() -> Arc<Processor> {
    opened().processor().clone()
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
    RoutingKey::derive(&opened().routing(), &[salt; 32])
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
    crate::tools::Tools::new([w.into(), now.into()].into())
}

/// A cluster without models.
pub(crate) struct Nobody;

impl Cluster for Nobody {
    fn models(&self) -> Arc<[ServedModel]> {
        Arc::new([])
    }

    fn awaits(&self, _: Option<&str>) -> bool {
        false
    }

    fn readiness(&self) -> Result<(), String> {
        Err("nobody is here".into())
    }

    fn routing_key(
        &self,
        _: &ServedModel,
        _: &TenantId,
        _: Option<&ClientSalt>,
    ) -> Option<RoutingKey> {
        None
    }

    fn serve(&self, prompt: Prompt, _: Want) -> BoxFuture<'static, Result<Served, Refusal>> {
        async move { Err(Refusal::NoTarget { model: prompt.model }) }.boxed()
    }

    fn sealing_secret(&self, _: &TenantId) -> [u8; 32] {
        [0; 32]
    }

    fn keep(&self, _: RecordName, _: Vec<u8>, _: Span) -> BoxFuture<'static, Result<Kept, Unkept>> {
        async { Err(Unkept("nobody is here".into())) }.boxed()
    }

    fn recall(&self, _: RecordName) -> BoxFuture<'static, Result<Option<Vec<u8>>, Unkept>> {
        async { Ok(None) }.boxed()
    }

    fn forget(&self, _: RecordName) -> BoxFuture<'static, Result<bool, Unkept>> {
        async { Ok(false) }.boxed()
    }

    fn entry_node(&self) -> String {
        String::new()
    }

    fn now_unix(&self) -> u64 {
        0
    }

    fn fresh_id(&self) -> u128 {
        1
    }
}
