//! The accounts add up: every prompt token has exactly one source.

use kvstore::Stats;

/// Checks the counters of a block manager at rest.
pub(super) fn at_rest(stats: &Stats) -> Result<(), String> {
    let c = &stats.counters;
    let sources =
        c.engine_tokens + c.dram_tokens + c.nvme_tokens + c.peer_tokens + c.uncached_tokens;
    if c.queried_tokens != sources {
        let queried = c.queried_tokens;
        return Err(format!("{queried} tokens were queried, their sources add up to {sources}"));
    }
    let decided = c.fetch_verified + c.fetch_absent + c.fetch_corrupt + c.fetch_failed;
    if c.fetch_asked != decided {
        let asked = c.fetch_asked;
        return Err(format!("{asked} blocks were asked of peers, {decided} were decided"));
    }
    Ok(())
}

/// Checks that slots are conserved, at any time.
pub(super) fn slots(
    stats: &Stats,
    sizes: impl Fn(protocol::block::Tier) -> u32,
) -> Result<(), String> {
    for tier in &stats.tiers {
        let (total, size) = (tier.slots.total(), sizes(tier.tier));
        if total != size {
            return Err(format!("{:?} has {total} slots, not {size}", tier.tier));
        }
    }
    Ok(())
}
