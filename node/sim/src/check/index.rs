//! The index tells the truth after quiet: every node's set of every origin is what that origin holds.

use protocol::event::{BlockEvent, INDEX_GRANULE, SetDigest};
use protocol::id::NodeId;

/// Digest of what a block manager really holds, at the granule of the index.
pub(crate) fn truth(node: &NodeId, store: &kvstore::Store) -> SetDigest {
    let mut digest = SetDigest::default();
    for event in store.held() {
        if let BlockEvent::Stored { prefix, tokens, storage, holder } = event
            && tokens.is_multiple_of(INDEX_GRANULE)
        {
            digest.add(node, holder, storage, prefix);
        }
    }
    digest
}
