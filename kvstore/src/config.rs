//! What a store is told once.

use protocol::block::CacheRule;
use protocol::hash::GRANULE;
use protocol::id::{EngineId, Incarnation};
use protocol::op::EngineSpec;
use protocol::sign::Keypair;
use protocol::time::Span;

/// Settings of a [`crate::Store`].
#[derive(Clone, Debug)]
pub struct Config {
    /// The node's key: signs the digests of blocks sealed here, and names the node.
    pub keypair: Keypair,
    /// The node's life, named in those digests.
    pub incarnation: Incarnation,
    /// The resident engines; each slot of each pool holds one block.
    pub engines: Vec<EngineSpec>,
    /// Slots of the DRAM pool; 0 turns it off, and fetching with it.
    pub dram_slots: u32,
    /// Bytes of one DRAM slot. Engines whose blocks have another size do without DRAM.
    pub dram_slot_bytes: u64,
    /// Slots of the NVMe tier, each as large as a DRAM slot; 0 turns it off. What it holds is what
    /// [`protocol::disk::DiskEvent::Found`] tells.
    pub nvme_slots: u32,
    /// Slots leased ahead of decoding, in blocks.
    pub decode_batch: u32,
    /// Bounds.
    pub limits: Limits,
    /// Seed of deliberate mischief that stays within the contract, for simulated worlds: see
    /// [`crate::Buggify`]. `None`, as in a real node, does nothing and costs nothing.
    pub buggify: Option<u64>,
}

/// Bounds and lengths of time. [`Limits::default`] documents the values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Leases at once.
    pub leases: usize,
    /// Claims of one request that are honoured; later ones are ignored.
    pub claims: usize,
    /// Longest pin; longer ones are clipped.
    pub pin: Span,
    /// An ordinary claim lapses so long after the last request that made it.
    pub claim_life: Span,
    /// A copy from DRAM into an engine is waited for so long.
    pub import: Span,
    /// Longest fetch; longer deadlines are clipped.
    pub fetch: Span,
    /// Peers' reads at once.
    pub reads: usize,
    /// Longest lease of a peer's read.
    pub read: Span,
    /// Writes to NVMe at once; never more than a quarter of DRAM, which they hold.
    pub disk_writes: usize,
    /// Blocks that may wait to be written to NVMe.
    pub disk_queue: usize,
    /// Blocks that left NVMe unread and are remembered for it.
    pub disk_ghosts: usize,
    /// A read from NVMe is waited for so long while the engine's speed is not known, and never
    /// longer than [`Limits::fetch`]. Once it is known: as long as computing would take.
    pub disk_read: Span,
    /// A read from NVMe is waited for at least so long.
    pub disk_read_min: Span,
    /// Blocks that peers' reads may bring up from NVMe at once, and again prefetches: one part in so
    /// many of DRAM, at least one block.
    pub stage_share: u32,
    /// Prefetches at once.
    pub prefetches: usize,
    /// A request waits no longer than this for the prefill of another one that comes no further.
    pub prefill_wait: Span,
    /// What a refused request is told to wait.
    pub retry_after: Span,
}

impl Default for Limits {
    /// 4,096 leases, 32 claims per request, pins up to 2 h, claims for 10 min, imports 10 s,
    /// fetches up to 30 s, 1,024 reads of up to 30 s, retry after 500 ms; NVMe: 64 writes at once,
    /// 8,192 waiting, 65,536 ghosts, reads within 2 s (at least 250 ms), an eighth of DRAM for
    /// peers' reads and as much for at most 64 prefetches; another's prefill is awaited until it
    /// stands still for 30 s.
    fn default() -> Self {
        Self {
            leases: 4096,
            claims: 32,
            pin: Span::secs(2 * 3600),
            claim_life: Span::secs(600),
            import: Span::secs(10),
            fetch: Span::secs(30),
            reads: 1024,
            read: Span::secs(30),
            disk_writes: 64,
            disk_queue: 8192,
            disk_ghosts: 65_536,
            disk_read: Span::secs(2),
            disk_read_min: Span::millis(250),
            stage_share: 8,
            prefetches: 64,
            prefill_wait: Span::secs(30),
            retry_after: Span::millis(500),
        }
    }
}

/// Why a store cannot be made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// Two engines with one id.
    #[error("engine {} is configured twice", .0.0)]
    Twice(EngineId),
    /// An engine without slots.
    #[error("engine {} has no slots", .0.0)]
    NoSlots(EngineId),
    /// Block size not a multiple of the hash granule.
    #[error("engine {} has blocks of {tokens} tokens, not a multiple of {GRANULE}", engine.0)]
    BlockTokens {
        /// Which.
        engine: EngineId,
        /// Its block size.
        tokens: u32,
    },
    /// Blocks of several parts, or groups that do not need the whole past.
    #[error("engine {} has blocks of several parts or a windowed cache, which is not supported", .0.0)]
    Parts(EngineId),
    /// NVMe blocks pass through DRAM.
    #[error("an NVMe tier needs a DRAM tier: its blocks pass through it")]
    NvmeWithoutDram,
    /// No engine's blocks fit the DRAM slots, so that nothing could ever be kept on NVMe.
    #[error("no engine has blocks of {0} bytes, the size of a DRAM and NVMe slot")]
    SlotBytes(u64),
}

impl Config {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let mut seen = std::collections::BTreeSet::new();
        for spec in &self.engines {
            let (engine, storage) = (spec.engine, &spec.storage);
            if !seen.insert(engine) {
                return Err(ConfigError::Twice(engine));
            }
            if spec.slots == 0 {
                return Err(ConfigError::NoSlots(engine));
            }
            let tokens = storage.block_tokens;
            if tokens == 0 || !(tokens as usize).is_multiple_of(GRANULE) {
                return Err(ConfigError::BlockTokens { engine, tokens });
            }
            let whole_past = storage.groups.iter().all(|rule| *rule == CacheRule::Full);
            if storage.parts.len() > 1 || storage.groups.len() > 1 || !whole_past {
                return Err(ConfigError::Parts(engine));
            }
        }
        let fits = |spec: &EngineSpec| spec.storage.block_bytes == self.dram_slot_bytes;
        if self.nvme_slots > 0 && self.dram_slots == 0 {
            return Err(ConfigError::NvmeWithoutDram);
        }
        if self.nvme_slots > 0 && !self.engines.is_empty() && !self.engines.iter().any(fits) {
            return Err(ConfigError::SlotBytes(self.dram_slot_bytes));
        }
        Ok(())
    }
}
