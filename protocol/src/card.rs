//! What a node must know of a model to take requests for it: everything but the weights.

use crate::hash::{RoutingNamespace, Token};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Names bytes by their content: the BLAKE3 digest of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlobDigest(pub [u8; 32]);

impl BlobDigest {
    /// The name of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }
}

impl fmt::Display for BlobDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::id::hex(f, &self.0)
    }
}

impl fmt::Debug for BlobDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "blob:{:.8}", self.to_string())
    }
}

/// A model as one node serves it. The name of its encoding stands in the heartbeats of that node
/// ([`crate::event::EngineReport::card`]), so that every other node can ask any holder for it, and
/// for the tokenizer that it names, and check what comes.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct ModelCard {
    /// Name under which it is served.
    pub name: String,
    /// Other names that it answers to.
    pub aliases: Vec<String>,
    /// How it writes reasoning and calls, by name.
    pub format: String,
    /// Names its prefixes.
    pub routing: RoutingNamespace,
    /// Tokens that end an answer, sorted.
    pub stop_tokens: Vec<Token>,
    /// Source of the chat template; without one messages are written one below the other.
    pub template: Option<String>,
    /// The template's variables for special tokens: `bos_token` and the like.
    pub specials: Vec<(String, String)>,
    /// Name of its tokenizer, in the form of a `tokenizer.json`.
    pub tokenizer: BlobDigest,
}

impl ModelCard {
    /// The card's bytes, as they are named and sent. `None` when it is too large for a frame.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let bytes = crate::wire::encode(self).ok()?;
        // What others could not read need not be sent.
        crate::wire::decode::<Self>(&bytes).is_ok().then_some(bytes)
    }
}
