//! Names of prefixes: keyed BLAKE3 over parent, 16 tokens and canonical extras.
//!
//! Only full granules have names. The key is derived from the routing namespace, so equal token
//! runs under different weights, tokenizers, adapters or tenants have unrelated names.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Tokens in one hashed granule; fixed by [`HASH_VERSION`].
pub const GRANULE: usize = 16;

/// Version of the hash layout; a part of every routing key.
pub const HASH_VERSION: u16 = 1;

/// One token id of the model's vocabulary.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug, Default,
)]
#[serde(transparent)]
pub struct Token(pub u32);

/// The name of a prefix that ends at a granule border: 128 bits of keyed BLAKE3.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
#[serde(transparent)]
pub struct PrefixHash(pub u128);

impl fmt::Display for PrefixHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for PrefixHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0 >> 96)
    }
}

/// What besides its tokens makes a granule what it is.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub enum Extra {
    /// An image or sound whose first placeholder lies in this granule. Granules in which it goes on
    /// need no extra: their parent's name covers it.
    Media {
        /// BLAKE3 of the media's bytes.
        digest: [u8; 32],
        /// Tokens from the granule's start to the media's first placeholder.
        offset: u32,
    },
}

impl Extra {
    fn feed(&self, hasher: &mut blake3::Hasher) {
        match self {
            Self::Media { digest, offset } => {
                hasher.update(&[1]);
                hasher.update(digest);
                hasher.update(&offset.to_le_bytes());
            }
        }
    }
}

/// What must be equal for two nodes to mean the same prefix by the same name.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct RoutingNamespace {
    /// Digest of the weights' identity (architecture, shapes, revision).
    pub weights: [u8; 32],
    /// Digest of the tokenizer and chat template.
    pub tokenizer: [u8; 32],
    /// Digest of the LoRA weights, when one is applied.
    pub lora: Option<[u8; 32]>,
    /// [`HASH_VERSION`] of the node.
    pub hash_version: u16,
}

/// The key of one tenant's prefix names in one namespace. Never logged, never sent.
#[derive(Clone, PartialEq, Eq, zeroize::Zeroize, zeroize::ZeroizeOnDrop)]
pub struct RoutingKey([u8; 32]);

impl fmt::Debug for RoutingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RoutingKey(…)")
    }
}

impl RoutingKey {
    /// Derives the key from the namespace and the tenant's salt (see [`tenant_salt`]).
    pub fn derive(namespace: &RoutingNamespace, salt: &[u8; 32]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("dynamo-node 2026-11 routing key");
        hasher.update(&namespace.hash_version.to_le_bytes());
        hasher.update(&namespace.weights);
        hasher.update(&namespace.tokenizer);
        match &namespace.lora {
            None => hasher.update(&[0]),
            Some(digest) => hasher.update(&[1]).update(digest),
        };
        hasher.update(salt);
        Self(*hasher.finalize().as_bytes())
    }

    /// The name of `parent` extended by one full granule. `tokens` must be [`GRANULE`] long:
    /// shorter or longer runs get `None`. `extras` go in order of their offset.
    pub fn extend(
        &self,
        parent: Option<PrefixHash>,
        tokens: &[Token],
        extras: &[Extra],
    ) -> Option<PrefixHash> {
        if tokens.len() != GRANULE {
            return None;
        }
        let mut input = [0u8; 17 + GRANULE * 4];
        let (head, body) = input.split_at_mut(17);
        if let (Some((flag, name)), Some(parent)) = (head.split_first_mut(), parent) {
            *flag = 1;
            name.copy_from_slice(&parent.0.to_le_bytes());
        }
        for (place, token) in body.chunks_exact_mut(4).zip(tokens) {
            place.copy_from_slice(&token.0.to_le_bytes());
        }
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(&input);
        for extra in extras {
            extra.feed(&mut hasher);
        }
        let mut short = [0u8; 16];
        hasher.finalize_xof().fill(&mut short);
        Some(PrefixHash(u128::from_le_bytes(short)))
    }

    /// The names of all full granules of `tokens`, continuing `known` (the names of its first
    /// granules, as an earlier turn computed them): only what is new is hashed.
    pub fn chain(&self, known: &[PrefixHash], tokens: &[Token]) -> Vec<PrefixHash> {
        let full = tokens.len() / GRANULE;
        let mut names: Vec<PrefixHash> = known.iter().take(full).copied().collect();
        self.extend_chain(&mut names, tokens);
        names
    }

    /// Adds to `names`, those of the first granules of `tokens`, the names of all others.
    pub fn extend_chain(&self, names: &mut Vec<PrefixHash>, tokens: &[Token]) {
        for granule in tokens.chunks_exact(GRANULE).skip(names.len()) {
            let Some(name) = self.extend(names.last().copied(), granule, &[]) else { break };
            names.push(name);
        }
    }
}

/// What a client's own salt (`cache_salt`) comes to: only its digest is kept or sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClientSalt([u8; 32]);

impl ClientSalt {
    /// Digest of the text that the client sent.
    pub fn of(text: &str) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("dynamo-node 2026-11 client salt");
        Self(*hasher.update(text.as_bytes()).finalize().as_bytes())
    }
}

impl fmt::Debug for ClientSalt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientSalt(…)")
    }
}

/// A tenant's salt: KDF(salt root, tenant name), narrowed by a client's own salt when it sent one.
/// Fields are framed by their length, so that no two pairs meet.
pub fn tenant_salt(root: &[u8; 32], tenant: &str, client: Option<&ClientSalt>) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("dynamo-node 2026-11 tenant salt");
    hasher.update(root);
    hasher.update(&(tenant.len() as u64).to_le_bytes());
    hasher.update(tenant.as_bytes());
    if let Some(client) = client {
        hasher.update(&client.0);
    }
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests;
