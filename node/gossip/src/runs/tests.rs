use super::*;
use proptest::prelude::*;
use protocol::id::EngineId;
use std::collections::BTreeSet;

const HOLDERS: [Holder; 3] = [Holder::Dram, Holder::Nvme, Holder::Engine(EngineId(0))];

#[derive(Clone, Debug)]
enum Change {
    One { stored: bool, holder: usize, storage: u64, granules: u32, name: u8 },
    Clear(usize),
}

type Set = BTreeSet<(Holder, StorageId, PrefixHash)>;

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let one = (any::<bool>(), 0..3usize, 0..2u64, 1..5u32, 0..6u8).prop_map(
        |(stored, holder, storage, granules, name)| Change::One {
            stored,
            holder,
            storage,
            granules,
            name,
        },
    );
    prop::collection::vec(prop_oneof![12 => one, 1 => (0..3usize).prop_map(Change::Clear)], 0..80)
}

fn apply(set: &mut Set, runs: Vec<EventRun>) {
    for run in runs {
        match run {
            EventRun::Stored { storage, holder, hashes, .. } => {
                set.extend(hashes.into_iter().map(|hash| (holder, storage, hash)));
            }
            EventRun::Removed { storage, holder, hashes, .. } => {
                for hash in hashes {
                    set.remove(&(holder, storage, hash));
                }
            }
            EventRun::Cleared { holder } => set.retain(|key| key.0 != holder),
            EventRun::Computing { .. } => unreachable!("never made here"),
        }
    }
}

proptest! {
    #[test]
    fn runs_give_the_set_that_the_changes_gave(changes in changes()) {
        let (mut direct, mut runs) = (Set::new(), Runs::default());
        for change in changes {
            match change {
                Change::One { stored, holder, storage, granules, name } => {
                    // A name belongs to one length.
                    let hash = PrefixHash(u128::from(name) * 100 + u128::from(granules));
                    let place = (HOLDERS[holder], StorageId(storage));
                    let key = (place.0, place.1, hash);
                    if stored { direct.insert(key); } else { direct.remove(&key); }
                    runs.push(stored, place, granules * INDEX_GRANULE, hash);
                }
                Change::Clear(holder) => {
                    direct.retain(|key| key.0 != HOLDERS[holder]);
                    runs.clear(HOLDERS[holder]);
                }
            }
        }
        let mut from_runs = Set::new();
        apply(&mut from_runs, runs.take());
        prop_assert_eq!(from_runs, direct);
        prop_assert!(runs.is_empty() && runs.hashes() == 0);
    }
}

#[test]
fn a_chain_written_through_two_tiers_is_two_runs() {
    let mut runs = Runs::default();
    for n in 1..=100u32 {
        for holder in [Holder::Engine(EngineId(0)), Holder::Dram] {
            runs.push(true, (holder, StorageId(1)), n * 64, PrefixHash(n.into()));
        }
    }
    let made = runs.take();
    assert_eq!(made.len(), 2);
    for run in made {
        let EventRun::Stored { first, hashes, .. } = run else { panic!("{run:?}") };
        assert_eq!(first, 64);
        assert!(hashes.iter().map(|h| h.0).eq(1..=100));
    }
}

#[test]
fn a_chain_evicted_from_its_leaf_is_one_run() {
    let mut runs = Runs::default();
    for n in (3..=50u32).rev() {
        runs.push(false, (Holder::Dram, StorageId(1)), n * 64, PrefixHash(n.into()));
    }
    let made = runs.take();
    let [EventRun::Removed { first: 192, hashes, .. }] = made.as_slice() else {
        panic!("{made:?}")
    };
    assert!(hashes.iter().map(|h| h.0).eq(3..=50));
}
