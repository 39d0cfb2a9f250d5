//! Plain counters; the node turns them into metrics.

use crate::pool::SlotCounts;
use protocol::block::Tier;

/// A look at the store.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// What happened since the start.
    pub counters: Counters,
    /// The tiers now: each engine, then DRAM, then NVMe where there is one.
    pub tiers: Vec<TierStats>,
    /// Leases now.
    pub leases: usize,
    /// Requests that wait for the prefill of another one.
    pub prefill_waiting: usize,
    /// Operations under way now.
    pub operations: usize,
    /// Peers' reads now.
    pub reads: usize,
    /// Blocks that wait to be written to NVMe.
    pub nvme_waiting: usize,
    /// Whether NVMe is in use: false until it has told what it holds, and while it fails.
    pub nvme_online: bool,
    /// Deliberate mischief done so far, see [`crate::Buggify`].
    pub mischief: u64,
}

/// One tier now, and what was evicted from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TierStats {
    /// Which.
    pub tier: Tier,
    /// Its slots by state.
    pub slots: SlotCounts,
    /// Blocks it holds.
    pub blocks: u32,
    /// Blocks with an unexpired pin.
    pub pinned: u32,
    /// Blocks evicted since the start.
    pub evicted: u64,
    /// Of these, pinned ones: only pinned ones were left.
    pub pins_broken: u64,
    /// Pins not accepted because the tier's budget was spent.
    pub pins_refused: u64,
}

/// What happened since the start. `queried_tokens` is the sum of the five token counts after it;
/// a request is counted when its lease ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Requests granted.
    pub granted: u64,
    /// Requests refused for want of room.
    pub refused_busy: u64,
    /// Requests refused for another reason.
    pub refused_other: u64,
    /// Requests that waited for the prefill of another one.
    pub prefill_waits: u64,
    /// Of these, in vain: they went on by themselves.
    pub prefill_waits_late: u64,
    /// Prompt tokens of ended leases.
    pub queried_tokens: u64,
    /// Of these, reused in place.
    pub engine_tokens: u64,
    /// Of these, copied from DRAM.
    pub dram_tokens: u64,
    /// Of these, read from NVMe.
    pub nvme_tokens: u64,
    /// Of these, fetched from peers.
    pub peer_tokens: u64,
    /// Of these, in no cache.
    pub uncached_tokens: u64,
    /// Blocks sealed.
    pub sealed: u64,
    /// Blocks sealed or imported that the engine's tier held already: the first copy stays.
    pub duplicates: u64,
    /// Sealed blocks whose tokens do not have the name the request gave.
    pub misnamed: u64,
    /// Claims or pins of requests beyond a limit.
    pub claims_clipped: u64,
    /// Requests for more slots that got none.
    pub top_ups_empty: u64,
    /// Sealed blocks written through to DRAM.
    pub offloaded: u64,
    /// Sealed blocks for which DRAM had no room.
    pub offload_skipped: u64,
    /// Copies to DRAM that failed.
    pub offload_failed: u64,
    /// Copies to DRAM whose bytes are not those the producer signed: memory has failed.
    pub offload_corrupt: u64,
    /// Blocks whose bytes changed in DRAM, seen when a sequence was to use them: they left the tier.
    pub dram_corrupt: u64,
    /// Blocks asked of peers.
    pub fetch_asked: u64,
    /// Of these, arrived.
    pub fetch_verified: u64,
    /// Of these, not there.
    pub fetch_absent: u64,
    /// Of these, wrong.
    pub fetch_corrupt: u64,
    /// Of these, late or unreachable.
    pub fetch_failed: u64,
    /// Fetches cancelled because nobody waited any more.
    pub fetch_cancelled: u64,
    /// Blocks lent to peers.
    pub read_blocks: u64,
    /// Blocks that peers asked for and did not get.
    pub read_absent: u64,
    /// Reads whose lease ran out.
    pub read_expired: u64,
    /// Blocks brought up from NVMe for peers' reads.
    pub read_staged: u64,
    /// Peers' reads answered in part because NVMe was too slow.
    pub read_partial: u64,
    /// Writes to NVMe begun.
    pub nvme_writes: u64,
    /// Of these, durable.
    pub nvme_written: u64,
    /// Of these, failed.
    pub nvme_write_failed: u64,
    /// Blocks not written: of a class that is not read again.
    pub nvme_refused_class: u64,
    /// Blocks not written: too many waited.
    pub nvme_refused_busy: u64,
    /// Blocks not written: nothing but pinned or used blocks could make room.
    pub nvme_refused_pinned: u64,
    /// Blocks not written: they left the full tier unread before.
    pub nvme_refused_unread: u64,
    /// Blocks not written: they had left DRAM when their turn came, or their parent is not there.
    pub nvme_skipped: u64,
    /// Durable blocks given up because their parent did not become durable or their time was over.
    pub nvme_orphans: u64,
    /// Reads from NVMe begun. The sum of the four counts after it, once all are answered.
    pub nvme_reads: u64,
    /// Of these, in time and right.
    pub nvme_verified: u64,
    /// Of these, wrong: the block left the tier.
    pub nvme_corrupt: u64,
    /// Of these, failed.
    pub nvme_failed: u64,
    /// Of these, too late.
    pub nvme_late: u64,
    /// Blocks of an earlier life found on NVMe and usable.
    pub nvme_found: u64,
    /// Blocks found on NVMe and dropped: of another form, without parent, twice, over age.
    pub nvme_dropped: u64,
    /// Times the disk was given up.
    pub nvme_quarantined: u64,
    /// Blocks asked of NVMe ahead of need. The sum of the four counts after it, once all prefetches
    /// have ended.
    pub prefetch_asked: u64,
    /// Of these, used by a request.
    pub prefetch_used: u64,
    /// Of these, wanted by a request before they had come.
    pub prefetch_late: u64,
    /// Of these, not used in time.
    pub prefetch_wasted: u64,
    /// Of these, not read.
    pub prefetch_failed: u64,
    /// Prefetches beyond the limit, or under a number in use.
    pub prefetch_refused: u64,
    /// Inputs about unknown or ended things, ignored.
    pub stale: u64,
}
