//! Blocks: their keys, parts, places, claims and signed digests.

use crate::hash::PrefixHash;
use crate::id::{EngineId, Incarnation, NodeId, SessionId, TenantId};
use crate::sign::Signature;
use crate::time::Span;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What must be equal for two engines to use each other's bytes.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct StorageNamespace {
    /// Tokens in one block; a multiple of [`crate::hash::GRANULE`].
    pub block_tokens: u32,
    /// Element type or codec of the cached keys and values, `f32` say.
    pub kv_dtype: String,
    /// Order of layers, heads and elements inside a block, with its version.
    pub layout: String,
    /// Bytes of one whole block, all parts together.
    pub block_bytes: u64,
    /// The parts of a block (one in the first version).
    pub parts: Vec<PartSpec>,
    /// The cache groups and how far back each must reach.
    pub groups: Vec<CacheRule>,
}

impl StorageNamespace {
    /// The short name of the namespace: BLAKE3 over its canonical encoding.
    pub fn id(&self) -> StorageId {
        let bytes = crate::wire::encode(self).unwrap_or_default();
        let mut short = [0u8; 8];
        for (place, byte) in short.iter_mut().zip(blake3::hash(&bytes).as_bytes()) {
            *place = *byte;
        }
        StorageId(u64::from_le_bytes(short))
    }

    /// The first field in which two namespaces differ, for the handshake's error.
    pub fn differs(&self, other: &Self) -> Option<&'static str> {
        let fields = [
            ("block_tokens", self.block_tokens != other.block_tokens),
            ("kv_dtype", self.kv_dtype != other.kv_dtype),
            ("layout", self.layout != other.layout),
            ("block_bytes", self.block_bytes != other.block_bytes),
            ("parts", self.parts != other.parts),
            ("groups", self.groups != other.groups),
        ];
        fields.into_iter().find(|(_, differs)| *differs).map(|(name, _)| name)
    }
}

/// Short name of a [`StorageNamespace`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
pub struct StorageId(pub u64);

impl fmt::Debug for StorageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "storage:{:016x}", self.0)
    }
}

/// One part of a block: a cache group's layers on one tensor-parallel rank.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct PartSpec {
    /// Index into [`StorageNamespace::groups`].
    pub group: u16,
    /// Tensor-parallel rank.
    pub tp_rank: u16,
    /// First layer.
    pub first_layer: u16,
    /// Number of layers.
    pub layers: u16,
}

/// How much of the past a cache group needs.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub enum CacheRule {
    /// All earlier blocks.
    Full,
    /// The last so many tokens.
    Window(u32),
    /// One state at the border.
    State,
}

/// A block of bytes: which prefix it ends, in which storage namespace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug)]
pub struct BlockKey {
    /// The prefix that the block's last token ends.
    pub prefix: PrefixHash,
    /// The form of its bytes.
    pub storage: StorageId,
}

/// A kind of place for blocks, fastest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug)]
pub enum Tier {
    /// The engine's own pool (GPU HBM, or memory of a CPU engine); belongs to one engine.
    Engine(EngineId),
    /// The node's DRAM pool.
    Dram,
    /// The node's local NVMe.
    Nvme,
}

/// A slot of an engine's pool or of the DRAM pool, by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug)]
pub struct SlotId(pub u32);

/// Which lease of a slot: grows each time the slot is leased; a write under an older generation
/// is refused.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug, Default,
)]
pub struct Generation(pub u32);

/// A slot in one of its lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug)]
pub struct SlotRef {
    /// The slot.
    pub slot: SlotId,
    /// Its life.
    pub generation: Generation,
}

/// BLAKE3 of a block's bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ContentDigest(pub [u8; 32]);

impl ContentDigest {
    /// Digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }
}

impl fmt::Debug for ContentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short: Vec<String> = self.0.iter().take(4).map(|b| format!("{b:02x}")).collect();
        write!(f, "digest:{}", short.concat())
    }
}

/// A block's content digest as the node that sealed it signed it; travels with the block.
///
/// Promised: the bytes equal what that node sealed. Not promised: that it computed them rightly.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct SignedDigest {
    /// The block.
    pub key: BlockKey,
    /// Digest of its bytes.
    pub digest: ContentDigest,
    /// Who sealed it.
    pub producer: NodeId,
    /// In which life.
    pub incarnation: Incarnation,
    /// ed25519 over the fields above, see [`SignedDigest::signed_bytes`].
    pub signature: Signature,
}

impl SignedDigest {
    /// What the signature covers: a context string and the four fields, canonically encoded.
    pub fn signed_bytes(
        key: &BlockKey,
        digest: &ContentDigest,
        producer: &NodeId,
        incarnation: Incarnation,
    ) -> Vec<u8> {
        let mut bytes = b"dynamo-node block digest 1".to_vec();
        bytes
            .extend(crate::wire::encode(&(key, digest, producer, incarnation)).unwrap_or_default());
        bytes
    }

    /// Signs `digest` for `key` as `signer`.
    pub fn sign(
        signer: &crate::sign::Keypair,
        incarnation: Incarnation,
        key: BlockKey,
        digest: ContentDigest,
    ) -> Self {
        let producer = signer.node();
        let signature = signer.sign(&Self::signed_bytes(&key, &digest, &producer, incarnation));
        Self { key, digest, producer, incarnation, signature }
    }

    /// Whether `bytes` are what the producer signed for `key`.
    pub fn covers(&self, key: &BlockKey, bytes: &[u8]) -> bool {
        self.key == *key
            && self.digest == ContentDigest::of(bytes)
            && self.signature.verify(
                &self.producer,
                &Self::signed_bytes(&self.key, &self.digest, &self.producer, self.incarnation),
            )
    }
}

/// What part of a conversation a block holds; weighs in eviction.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug, Default,
)]
pub enum BlockClass {
    /// System prompt.
    System,
    /// Tool definitions.
    Tools,
    /// Conversation.
    #[default]
    Context,
    /// Reasoning that templates drop later.
    Reasoning,
    /// Generated output.
    Output,
}

/// One party's interest in a block. A block's retention is the maximum over its claims.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Claim {
    /// The session, when the client names one.
    pub session: Option<SessionId>,
    /// Whose.
    pub tenant: TenantId,
    /// What the block holds.
    pub class: BlockClass,
    /// Request priority; higher stays longer.
    pub priority: i32,
    /// Remaining time to live of a pin; `None` without one. Travels as a remaining span and is
    /// clamped on the receiver's clock.
    pub ttl: Option<Span>,
    /// Legal upper bound on the block's age, from now.
    pub max_age: Option<Span>,
}

#[cfg(test)]
mod tests;
