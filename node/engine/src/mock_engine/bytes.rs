//! The bytes of mock blocks in the node's DRAM slots.

use kernels::{Pool, PoolError};
use mock::Pattern;
use protocol::block::{ContentDigest, SlotRef};
use std::sync::Arc;

/// Fills a slot with a block of `bytes` bytes; `None` when it could not be taken for writing.
pub(super) fn write(
    dram: &Arc<Pool>,
    to: SlotRef,
    pattern: Pattern,
    bytes: usize,
) -> Option<ContentDigest> {
    let taken = dram.writer(to.slot.0, to.generation.0);
    let mut writer = taken.inspect_err(|error| refused("exported", *error)).ok()?;
    let into = writer.get_mut(..bytes)?;
    pattern.fill(into);
    // At once, while the bytes are in the cache.
    Some(ContentDigest::of(into))
}

/// Looks at a slot; `None` when it could not be taken for reading.
pub(super) fn read(dram: &Arc<Pool>, from: SlotRef, bytes: usize) -> Option<Option<Pattern>> {
    let taken = dram.reader(from.slot.0, from.generation.0);
    let reader = taken.inspect_err(|error| refused("imported", *error)).ok()?;
    Some(reader.get(..bytes).and_then(Pattern::recognise))
}

fn refused(what: &str, error: PoolError) {
    tracing::debug!(%error, "a block cannot be {what}");
}
