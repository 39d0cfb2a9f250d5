//! The index' records: their keys, their envelope, what they say.
//!
//! `meta` says what the folder is for. Every other key is `b` ‖ tokens ‖ prefix ‖ slot (big
//! endian), so that a scan meets a block after its parent, and no two slots share a record.
//! A value is a version byte, eight bytes of BLAKE3 over version, key and payload, and the payload;
//! every later version keeps this envelope, so that damage and a later release can be told apart.

use protocol::block::StorageNamespace;
use protocol::block::{BlockKey, Claim, ContentDigest, SignedDigest, SlotId, StorageId};
use protocol::disk::{DISK_CLAIMS_MAX, DiskBlock};
use protocol::hash::PrefixHash;
use protocol::id::{Incarnation, NodeId};
use protocol::sign::Signature;
use protocol::time::Span;
use protocol::trust::UnixTime;
use protocol::wire;
use serde::{Deserialize, Serialize};

/// Version of the folder and of its records.
pub(super) const VERSION: u8 = 1;
const CHECK: usize = 8;
/// Key of the folder's description.
pub(super) const META_KEY: &[u8] = b"meta";
const BLOCK: u8 = b'b';
/// Longest record, for the bound of the index: eight claims with the longest names.
pub(super) const RECORD_MAX: u64 = 4 << 10;

/// What the folder is for.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub(super) struct Meta {
    pub(super) storage: StorageNamespace,
    /// Slots of a whole extent: fixed when the folder is made.
    pub(super) extent_slots: u32,
}

/// A block in a slot.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub(super) struct Record {
    parent: Option<PrefixHash>,
    digest: ContentDigest,
    producer: NodeId,
    incarnation: Incarnation,
    signature: Signature,
    /// When the claims' spans began.
    at: UnixTime,
    claims: Vec<Claim>,
}

/// Which block a record is of, and where it lies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct RecordKey {
    pub(super) tokens: u32,
    pub(super) prefix: PrefixHash,
    pub(super) slot: SlotId,
}

/// What is wrong with a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bad {
    /// A later release wrote it.
    Newer(u8),
    /// Not what was written.
    Damaged,
}

impl RecordKey {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut key = vec![BLOCK];
        key.extend(self.tokens.to_be_bytes());
        key.extend(self.prefix.0.to_be_bytes());
        key.extend(self.slot.0.to_be_bytes());
        key
    }

    pub(super) fn decode(key: &[u8]) -> Option<Self> {
        let (kind, rest) = key.split_first()?;
        let (tokens, rest) = rest.split_first_chunk::<4>()?;
        let (prefix, rest) = rest.split_first_chunk::<16>()?;
        let slot: [u8; 4] = rest.try_into().ok()?;
        (*kind == BLOCK).then_some(Self {
            tokens: u32::from_be_bytes(*tokens),
            prefix: PrefixHash(u128::from_be_bytes(*prefix)),
            slot: SlotId(u32::from_be_bytes(slot)),
        })
    }
}

fn checksum(version: u8, key: &[u8], payload: &[u8]) -> [u8; CHECK] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[version]);
    hasher.update(&(key.len() as u64).to_le_bytes()).update(key).update(payload);
    let mut short = [0; CHECK];
    hasher.finalize_xof().fill(&mut short);
    short
}

/// Wraps a value for its key; `None` when it cannot be encoded.
pub(super) fn seal<T: Serialize>(key: &[u8], value: &T) -> Option<Vec<u8>> {
    seal_as(VERSION, key, value)
}

/// Wraps a value in the envelope of a version.
pub(super) fn seal_as<T: Serialize>(version: u8, key: &[u8], value: &T) -> Option<Vec<u8>> {
    let payload = wire::encode(value).ok()?;
    let mut bytes = Vec::with_capacity(1 + CHECK + payload.len());
    bytes.push(version);
    bytes.extend(checksum(version, key, &payload));
    bytes.extend(payload);
    Some(bytes)
}

/// The value that was sealed for this key.
pub(super) fn unseal<T: for<'a> Deserialize<'a>>(key: &[u8], bytes: &[u8]) -> Result<T, Bad> {
    let (version, rest) = bytes.split_first().ok_or(Bad::Damaged)?;
    let (check, payload) = rest.split_at_checked(CHECK).ok_or(Bad::Damaged)?;
    if check != checksum(*version, key, payload) {
        return Err(Bad::Damaged);
    }
    if *version != VERSION {
        return Err(Bad::Newer(*version));
    }
    wire::decode(payload).map_err(|_| Bad::Damaged)
}

impl Record {
    pub(super) fn new(block: &DiskBlock, now: UnixTime) -> Self {
        let signed = &block.signed;
        let mut record = Self {
            parent: block.parent.map(|parent| parent.prefix),
            digest: signed.digest,
            producer: signed.producer,
            incarnation: signed.incarnation,
            signature: signed.signature,
            at: now,
            claims: Vec::new(),
        };
        record.claim(&block.claims, now);
        record
    }

    /// Replaces the claims.
    pub(super) fn claim(&mut self, claims: &[Claim], now: UnixTime) {
        self.at = now;
        self.claims = claims.iter().take(DISK_CLAIMS_MAX).cloned().collect();
    }

    pub(super) fn parent(&self) -> Option<PrefixHash> {
        self.parent
    }

    pub(super) fn signed(&self, key: BlockKey) -> SignedDigest {
        SignedDigest {
            key,
            digest: self.digest,
            producer: self.producer,
            incarnation: self.incarnation,
            signature: self.signature,
        }
    }

    /// The block as it is at `now`; `None` when its legal age is over. A wall clock that went back
    /// counts as no time passed.
    pub(super) fn block(
        self,
        at: &RecordKey,
        storage: StorageId,
        now: UnixTime,
    ) -> Option<DiskBlock> {
        let named = |prefix| BlockKey { prefix, storage };
        let key = named(at.prefix);
        let passed = Span::secs(now.0.saturating_sub(self.at.0));
        let left = |span: Span| Some(Span(span.0.saturating_sub(passed.0))).filter(|s| s.0 > 0);
        let signed = self.signed(key);
        let parent = self.parent.map(named);
        let mut claims = self.claims;
        for claim in &mut claims {
            claim.ttl = claim.ttl.and_then(left);
            if let Some(age) = claim.max_age {
                claim.max_age = Some(left(age)?);
            }
        }
        Some(DiskBlock { key, parent, tokens: at.tokens, signed, claims })
    }
}

#[cfg(test)]
mod tests;
