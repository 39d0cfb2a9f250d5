use super::*;
use crate::sign::Keypair;
use proptest::prelude::*;
use std::collections::BTreeSet;

const STORAGE: StorageId = StorageId(4);

fn origin() -> Keypair {
    Keypair::from_seed(&[1; 32])
}

fn digests(set: &BTreeSet<u128>) -> BucketDigests {
    let mut digests = BucketDigests::default();
    for name in set {
        let prefix = PrefixHash(*name);
        digests.add(prefix, SetDigest::of(&origin().node(), Holder::Dram, STORAGE, prefix));
    }
    digests
}

fn batch(runs: &[EventRun]) -> EventBatch {
    EventBatch {
        origin: origin().node(),
        incarnation: Incarnation::default(),
        seq: Seq(1),
        previous: [0; 32],
        digest: SetDigest::default(),
        payload: crate::wire::encode(&runs).unwrap(),
        signature: origin().sign(b""),
    }
}

fn changed(stored: bool, names: &BTreeSet<u128>) -> EventRun {
    let (storage, holder, first) = (STORAGE, Holder::Dram, 64);
    let hashes = names.iter().map(|name| PrefixHash(*name)).collect();
    match stored {
        true => EventRun::Stored { storage, holder, first, hashes },
        false => EventRun::Removed { storage, holder, first, hashes },
    }
}

proptest! {
    /// Exactly the buckets of what only one set has differ; batches of real changes are undone.
    #[test]
    fn differences_show_in_their_buckets_and_changes_can_be_undone(
        before in prop::collection::btree_set(0u128..2000, 0..60),
        after in prop::collection::btree_set(0u128..2000, 0..60),
    ) {
        let apart: BTreeSet<u8> = before
            .symmetric_difference(&after)
            .map(|name| bucket_of(PrefixHash(*name)))
            .collect();
        let differing = digests(&before).differing(&digests(&after));
        prop_assert_eq!(differing, apart.into_iter().collect::<Vec<_>>());
        let gone = before.difference(&after).copied().collect();
        let new = after.difference(&before).copied().collect();
        let batches = [batch(&[changed(false, &gone)]), batch(&[changed(true, &new)])];
        let mut undone = digests(&after);
        prop_assert!(undone.undo(&batches));
        prop_assert_eq!(undone, digests(&before));
    }
}

#[test]
fn what_cannot_be_undone_says_so() {
    let mut digests = BucketDigests::default();
    assert!(!digests.undo(&[batch(&[EventRun::Cleared { holder: Holder::Dram }])]));
    assert!(!digests.undo(&[EventBatch { payload: vec![9], ..batch(&[]) }]));
}

#[test]
fn sums_of_disjoint_sets_and_frames_come_back() {
    let (a, b) = (BTreeSet::from([1, 300]), BTreeSet::from([2, 556]));
    let mut sum = digests(&a);
    sum.join(&digests(&b));
    assert_eq!(sum, digests(&a.union(&b).copied().collect()));
    assert_eq!(BucketDigests::from_slice(&sum.to_vec()), Some(sum.clone()));
    assert_eq!(BucketDigests::from_slice(&sum.to_vec()[1..]), None);
}
