//! The bytes of mock blocks in the node's DRAM slots.

use kernels::{Pool, PoolError};
use mock::{In, Pattern};
use protocol::block::{ContentDigest, SlotRef};
use protocol::op::OpId;
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

/// Looks at a slot that should hold the bytes of `digest`: the answer to [`mock::Out::Read`].
pub(super) fn read(
    dram: &Arc<Pool>,
    op: OpId,
    from: SlotRef,
    digest: &ContentDigest,
    bytes: usize,
) -> In {
    let taken = dram.reader(from.slot.0, from.generation.0);
    let taken = taken.inspect_err(|error| refused("imported", *error));
    match taken.as_ref().ok().and_then(|reader| reader.get(..bytes)) {
        None => In::Unreadable(op),
        Some(block) if ContentDigest::of(block) != *digest => {
            tracing::error!("a block in DRAM has changed: this machine's memory fails");
            In::Corrupt(op)
        }
        Some(block) => In::Read { op, pattern: Pattern::recognise(block) },
    }
}

fn refused(what: &str, error: PoolError) {
    tracing::debug!(%error, "a block cannot be {what}");
}
