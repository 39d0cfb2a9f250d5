//! What nodes tell each other about their blocks, and about themselves.

use crate::block::{StorageId, Tier};
use crate::card::BlobDigest;
use crate::hash::PrefixHash;
use crate::id::{EngineId, Incarnation, NodeId, Target};
use crate::sign::{Keypair, Signature};
use crate::time::Span;
use serde::{Deserialize, Serialize};

mod buckets;

pub use buckets::{BUCKETS, BucketDigests, Buckets, BucketsWanted, bucket_of};

/// Tokens per index granule: only prefixes that end at a multiple are gossiped. The node itself
/// is exact to the block.
pub const INDEX_GRANULE: u32 = 64;

/// Who holds something, as the index keeps it: engine slots belong to a target, DRAM and NVMe to
/// the node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug)]
pub enum Holder {
    /// One engine's pool.
    Engine(EngineId),
    /// The node's DRAM.
    Dram,
    /// The node's NVMe.
    Nvme,
    /// Nobody yet: a prefill that will hold it is under way on this engine.
    Computing(EngineId),
}

impl From<Tier> for Holder {
    fn from(tier: Tier) -> Self {
        match tier {
            Tier::Engine(engine) => Self::Engine(engine),
            Tier::Dram => Self::Dram,
            Tier::Nvme => Self::Nvme,
        }
    }
}

/// One change of what a node holds. `tokens` is the prefix's length up to and including the block.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub enum BlockEvent {
    /// A block became usable in a tier.
    Stored {
        /// Name of the prefix the block ends.
        prefix: PrefixHash,
        /// The prefix's length in tokens.
        tokens: u32,
        /// Form of its bytes.
        storage: StorageId,
        /// Where.
        holder: Holder,
    },
    /// A block left a tier.
    Removed {
        /// Name of the prefix the block ends.
        prefix: PrefixHash,
        /// The prefix's length in tokens.
        tokens: u32,
        /// Form of its bytes.
        storage: StorageId,
        /// From where.
        holder: Holder,
    },
    /// A tier lost everything.
    Cleared {
        /// Which.
        holder: Holder,
    },
}

/// A run of changes of one kind: consecutive granules of one chain share all but the hash.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub enum EventRun {
    /// Prefixes of lengths `first`, `first + INDEX_GRANULE`, … became usable.
    Stored {
        /// Form of the bytes.
        storage: StorageId,
        /// Where.
        holder: Holder,
        /// Length in tokens of the first prefix of the run.
        first: u32,
        /// Its name and the names of the longer ones.
        hashes: Vec<PrefixHash>,
    },
    /// The same, gone.
    Removed {
        /// Form of the bytes.
        storage: StorageId,
        /// From where.
        holder: Holder,
        /// Length in tokens of the first prefix of the run.
        first: u32,
        /// Its name and the names of the longer ones.
        hashes: Vec<PrefixHash>,
    },
    /// A tier lost everything.
    Cleared {
        /// Which.
        holder: Holder,
    },
    /// A prefill is under way that will store these (single-flight, design §4.3).
    Computing {
        /// Form of the bytes.
        storage: StorageId,
        /// By which engine.
        engine: EngineId,
        /// Expected time until the last is usable.
        eta: Span,
        /// Length in tokens of the first prefix of the run.
        first: u32,
        /// Names.
        hashes: Vec<PrefixHash>,
    },
}

/// Order of an origin's batches within one incarnation, from 1 without gaps.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug, Default,
)]
pub struct Seq(pub u64);

/// Digest of what an origin holds at one point of its history: count and keyed mix.
///
/// The mix is the wrapping sum of a keyed 128-bit hash of each held (holder, storage, prefix), so
/// that adding and removing commute and one differing entry shows.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
pub struct SetDigest {
    /// Entries held.
    pub count: u64,
    /// Wrapping sum of the entries' mixes.
    pub mix: u128,
}

impl SetDigest {
    fn term(origin: &NodeId, holder: Holder, storage: StorageId, prefix: PrefixHash) -> u128 {
        let mut hasher = blake3::Hasher::new_keyed(&origin.0);
        hasher.update(&match holder {
            Holder::Engine(engine) => [0, engine.0.to_le_bytes()[0], engine.0.to_le_bytes()[1]],
            Holder::Dram => [1, 0, 0],
            Holder::Nvme => [2, 0, 0],
            Holder::Computing(engine) => [3, engine.0.to_le_bytes()[0], engine.0.to_le_bytes()[1]],
        });
        hasher.update(&storage.0.to_le_bytes());
        hasher.update(&prefix.0.to_le_bytes());
        let mut short = [0u8; 16];
        hasher.finalize_xof().fill(&mut short);
        u128::from_le_bytes(short)
    }

    /// Digest of a set of one entry.
    pub fn of(origin: &NodeId, holder: Holder, storage: StorageId, prefix: PrefixHash) -> Self {
        Self { count: 1, mix: Self::term(origin, holder, storage, prefix) }
    }

    /// Digest of this set and another one that has no entry of it.
    pub fn plus(self, other: Self) -> Self {
        Self { count: self.count.wrapping_add(other.count), mix: self.mix.wrapping_add(other.mix) }
    }

    /// Digest of this set without another one that is a part of it.
    pub fn minus(self, other: Self) -> Self {
        Self { count: self.count.wrapping_sub(other.count), mix: self.mix.wrapping_sub(other.mix) }
    }

    /// Counts an entry in. The caller calls it once per entry that was not held before.
    pub fn add(&mut self, origin: &NodeId, holder: Holder, storage: StorageId, prefix: PrefixHash) {
        *self = self.plus(Self::of(origin, holder, storage, prefix));
    }

    /// Counts an entry out that was held.
    pub fn remove(
        &mut self,
        origin: &NodeId,
        holder: Holder,
        storage: StorageId,
        prefix: PrefixHash,
    ) {
        *self = self.minus(Self::of(origin, holder, storage, prefix));
    }
}

/// An origin's batch of changes, opaque to gossip, signed by its origin as a chain: each
/// signature covers the hash of the batch before it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct EventBatch {
    /// Whose changes.
    pub origin: NodeId,
    /// In which of its lives.
    pub incarnation: Incarnation,
    /// Its place in the order.
    pub seq: Seq,
    /// BLAKE3 of the previous batch's signed bytes; zero for the first.
    pub previous: [u8; 32],
    /// What the origin holds after this batch.
    pub digest: SetDigest,
    /// Encoded `Vec<EventRun>`.
    pub payload: Vec<u8>,
    /// By the origin, over all of the above.
    pub signature: Signature,
}

impl EventBatch {
    /// What the signature covers.
    pub fn signed_bytes(&self) -> Vec<u8> {
        let mut bytes = b"dynamo-node event batch 1".to_vec();
        let fields = (
            &self.origin,
            &self.incarnation,
            &self.seq,
            &self.previous,
            &self.digest,
            &self.payload,
        );
        bytes.extend(crate::wire::encode(&fields).unwrap_or_default());
        bytes
    }

    /// Signs the batch as `signer`, its origin.
    pub fn sign(mut self, signer: &Keypair) -> Self {
        self.signature = signer.sign(&self.signed_bytes());
        self
    }

    /// Whether its origin signed it.
    pub fn is_genuine(&self) -> bool {
        self.signature.verify(&self.origin, &self.signed_bytes())
    }

    /// Link for the next batch's `previous`.
    pub fn link(&self) -> [u8; 32] {
        *blake3::hash(&self.signed_bytes()).as_bytes()
    }
}

/// One origin's whole set at one point, as a donor hands it to a newcomer. Until the digest is
/// checked, the set is only a hint.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Snapshot {
    /// Whose set.
    pub origin: NodeId,
    /// In which of its lives.
    pub incarnation: Incarnation,
    /// The set is exact after this batch; later batches are replayed on top.
    pub watermark: Seq,
    /// The chain's link at the watermark, so that later batches are checked against it.
    pub link: [u8; 32],
    /// What the origin said it holds at the watermark.
    pub digest: SetDigest,
    /// The set, as runs of `Stored`.
    pub runs: Vec<EventRun>,
}

/// What a node says of itself a few times a second.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Heartbeat {
    /// Who.
    pub node: NodeId,
    /// In which life.
    pub incarnation: Incarnation,
    /// Grows with each heartbeat of a life.
    pub beat: u64,
    /// Seq of its last batch.
    pub head: Seq,
    /// What it holds after that batch.
    pub digest: SetDigest,
    /// Where it can be reached.
    pub contact: Contact,
    /// Its engines.
    pub engines: Vec<EngineReport>,
    /// Bytes its transfer agent has promised and not yet sent.
    pub owed_bytes: u64,
    /// True while it finishes what it has and takes nothing new.
    pub draining: bool,
    /// Blocks held: engine, DRAM, NVMe.
    pub blocks: [u64; 3],
    /// By the node.
    pub signature: Signature,
}

impl Heartbeat {
    /// What the signature covers: a context string and all other fields, canonically encoded.
    pub fn signed_bytes(&self) -> Vec<u8> {
        let mut bytes = b"dynamo-node heartbeat 1".to_vec();
        let fields = (
            &self.node,
            &self.incarnation,
            &self.beat,
            &self.head,
            &self.digest,
            &self.contact,
            &self.engines,
            &self.owed_bytes,
            &self.draining,
            &self.blocks,
        );
        bytes.extend(crate::wire::encode(&fields).unwrap_or_default());
        bytes
    }
}

/// Its author has not heard of a member for too long.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Suspicion {
    /// Who is silent.
    pub subject: NodeId,
    /// In which life.
    pub incarnation: Incarnation,
    /// The last of its heartbeats that the author knows; 0 for none. A later one refutes.
    pub beat: u64,
}

/// How to reach a node.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
pub struct Contact {
    /// `ip:port` addresses of the cluster port (UDP and TCP), best first.
    pub cluster: Vec<String>,
    /// Base URL of the HTTP listener.
    pub http: String,
    /// Site name.
    pub site: String,
}

/// What a node says of one engine: what it serves and how busy it is. All rates are measured.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct EngineReport {
    /// Which.
    pub engine: EngineId,
    /// Kind of engine: `embedded`, `mock`, …
    pub kind: String,
    /// Served model name.
    pub model: String,
    /// BLAKE3 of the model's routing namespace (without any salt): equal means that prefixes
    /// have equal names.
    pub routing: [u8; 32],
    /// Name of its [`crate::card::ModelCard`]; zero where there is none to be had.
    pub card: BlobDigest,
    /// Form of its blocks.
    pub storage: StorageId,
    /// Bytes of one block.
    pub block_bytes: u64,
    /// Tokens of one block.
    pub block_tokens: u32,
    /// Longest prompt plus answer in tokens.
    pub context: u32,
    /// Its load now.
    pub load: EngineLoad,
}

/// Load of one engine.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct EngineLoad {
    /// Prompt tokens waiting or being prefilled, cached ones excluded.
    pub prefill_tokens: u32,
    /// Requests running.
    pub running: u32,
    /// Requests waiting.
    pub waiting: u32,
    /// Requests that run at once at most; 0 when that is not known.
    pub seats: u32,
    /// Blocks in use by running requests.
    pub active_blocks: u32,
    /// Blocks of the pool.
    pub total_blocks: u32,
    /// Prefill rate at short context, tokens per second, smoothed; 0 until measured.
    pub prefill_rate: f32,
    /// Extra nanoseconds per new token and context token (the quadratic term), smoothed.
    pub attention_ns: f32,
    /// Milliseconds per decode step, smoothed; 0 until measured.
    pub decode_ms: f32,
}

/// A member as gossip reports it.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct MemberView {
    /// Who.
    pub node: NodeId,
    /// In which life; zero until heard.
    pub incarnation: Incarnation,
    /// How it is.
    pub state: MemberState,
    /// Where.
    pub contact: Contact,
    /// Its last heartbeat's engines.
    pub engines: Vec<EngineReport>,
    /// Bytes it owes to others.
    pub owed_bytes: u64,
    /// Blocks held: engine, DRAM, NVMe.
    pub blocks: [u64; 3],
}

impl MemberView {
    /// The target of one of its engines.
    pub fn target(&self, engine: EngineId) -> Target {
        Target { node: self.node, incarnation: self.incarnation, engine, dp_rank: 0 }
    }
}

/// How a member is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug)]
pub enum MemberState {
    /// Heard lately.
    Alive,
    /// Not heard lately: unroutable, its entries kept.
    Suspect,
    /// Finishing; takes nothing new.
    Draining,
    /// Said goodbye.
    Left,
    /// Silent for too long.
    Dead,
}

#[cfg(test)]
mod tests;
