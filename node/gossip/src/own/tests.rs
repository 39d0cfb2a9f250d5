use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

const KEEP: Keep = Keep { count: 1000, bytes: 1 << 20 };
const LIFE: Incarnation = Incarnation { counter: 1, nonce: 7 };

fn log() -> OwnLog {
    OwnLog::new(Keypair::from_seed(&[3; 32]), LIFE, KEEP)
}

fn stored(name: u128, tokens: u32) -> BlockEvent {
    BlockEvent::Stored {
        prefix: PrefixHash(name),
        tokens,
        storage: StorageId(1),
        holder: Holder::Dram,
    }
}

fn removed(name: u128, tokens: u32) -> BlockEvent {
    BlockEvent::Removed {
        prefix: PrefixHash(name),
        tokens,
        storage: StorageId(1),
        holder: Holder::Dram,
    }
}

fn runs(batch: &EventBatch) -> Vec<EventRun> {
    protocol::wire::decode(&batch.payload).unwrap()
}

fn set_of(runs: &[EventRun], set: &mut BTreeSet<(Holder, StorageId, PrefixHash)>) {
    for run in runs {
        match run {
            EventRun::Stored { storage, holder, hashes, .. } => {
                set.extend(hashes.iter().map(|hash| (*holder, *storage, *hash)));
            }
            EventRun::Removed { storage, holder, hashes, .. } => {
                hashes.iter().for_each(|hash| {
                    set.remove(&(*holder, *storage, *hash));
                });
            }
            EventRun::Cleared { holder } => set.retain(|key| key.0 != *holder),
            EventRun::Computing { .. } => unreachable!("never made here"),
        }
    }
}

fn digest_of(node: &NodeId, set: &BTreeSet<(Holder, StorageId, PrefixHash)>) -> SetDigest {
    let mut digest = SetDigest::default();
    for (holder, storage, prefix) in set {
        digest.add(node, *holder, *storage, *prefix);
    }
    digest
}

#[test]
fn only_index_granules_and_real_changes_are_told() {
    let mut own = log();
    for (event, told) in [
        (stored(1, 16), false),
        (stored(2, 0), false),
        (stored(3, 64), true),
        (stored(3, 64), false),
        (removed(9, 64), false),
        (stored(4, 128), true),
        (removed(3, 64), true),
        (removed(3, 64), false),
        (BlockEvent::Cleared { holder: Holder::Nvme }, false),
        (BlockEvent::Cleared { holder: Holder::Dram }, true),
    ] {
        assert_eq!(own.event(&event), told, "{event:?}");
    }
    let batches = own.flush();
    assert_eq!(batches.len(), 1);
    assert_eq!(batches[0].digest, SetDigest::default(), "all gone again");
    assert!(own.flush().is_empty());
}

#[test]
fn batches_are_a_signed_chain_from_one() {
    let mut own = log();
    let mut last = [0; 32];
    for n in 1..=5u32 {
        own.event(&stored(n.into(), n * 64));
        let [batch] = <[EventBatch; 1]>::try_from(own.flush()).unwrap();
        assert_eq!((batch.seq, batch.incarnation), (Seq(n.into()), LIFE));
        assert_eq!(batch.previous, last);
        assert!(batch.is_genuine());
        assert_eq!(own.head(), (batch.seq, batch.digest));
        last = batch.link();
    }
}

#[test]
fn many_changes_make_several_batches_each_with_its_own_digest() {
    let mut own = log();
    for n in 1..=(BATCH_HASHES as u32 * 2 + 10) {
        own.event(&stored(n.into(), 64));
    }
    let batches = own.flush();
    assert_eq!(batches.len(), 3);
    let mut set = BTreeSet::new();
    for batch in &batches {
        set_of(&runs(batch), &mut set);
        assert_eq!(batch.digest, digest_of(&batch.origin, &set), "seq {:?}", batch.seq);
        assert!(protocol::wire::encode(batch).unwrap().len() < 1 << 20);
    }
}

#[test]
fn a_new_life_tells_everything_again_from_one() {
    let mut own = log();
    (1..=20u32).for_each(|n| {
        own.event(&stored(n.into(), n * 64));
    });
    let before = own.flush()[0].digest;
    own.event(&stored(21, 21 * 64));
    own.reborn(Incarnation { counter: 5, nonce: 1 });
    let [batch] = <[EventBatch; 1]>::try_from(own.flush()).unwrap();
    assert_eq!((batch.seq, batch.previous, batch.incarnation.counter), (Seq(1), [0; 32], 5));
    assert_eq!(batch.digest.count, before.count + 1);
    assert_eq!(runs(&batch).len(), 1, "told in the order of arrival, so still one chain");
}

proptest! {
    #[test]
    fn digest_and_cut_are_of_the_set_that_the_batches_give(
        events in prop::collection::vec((any::<bool>(), 0..12u128, 1..4u32, 0..20u8), 0..120),
    ) {
        let mut own = log();
        let mut told = BTreeSet::new();
        for (store, name, granules, dice) in events {
            let name = name * 10 + u128::from(granules);
            let event = match (dice, store) {
                (0, _) => BlockEvent::Cleared { holder: Holder::Dram },
                (_, true) => stored(name, granules * 64),
                (_, false) => removed(name, granules * 64),
            };
            own.event(&event);
            if dice > 16 {
                for batch in own.flush() {
                    set_of(&runs(&batch), &mut told);
                    prop_assert_eq!(batch.digest, digest_of(&batch.origin, &told));
                }
            }
        }
        own.flush().iter().for_each(|batch| set_of(&runs(batch), &mut told));
        let cut = own.cut();
        let mut whole = BTreeSet::new();
        set_of(&cut.runs, &mut whole);
        prop_assert_eq!(&whole, &told);
        prop_assert_eq!(cut.digest, digest_of(&cut.origin, &told));
        prop_assert_eq!((cut.watermark, cut.digest), own.head());
    }
}
