//! The NVMe tier's tree beside a model: a set of chains in which the least recently used leaf goes
//! first, and in which whatever leaves is forgotten on disk before its slot is used again.

use super::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};

const SLOTS: u32 = 8;

#[derive(Clone, Debug)]
struct Block {
    parent: Option<u32>,
    holds: u32,
    used: u64,
}

#[derive(Clone, Debug, Default)]
struct Model {
    blocks: BTreeMap<u32, Block>,
    last: u32,
    uses: u64,
    /// Blocks that the last step removed.
    gone: Vec<u32>,
}

impl Model {
    fn is_leaf(&self, n: u32) -> bool {
        self.blocks.values().all(|block| block.parent != Some(n))
    }

    fn victim(&self) -> Option<u32> {
        let free = self.blocks.iter().filter(|(n, b)| b.holds == 0 && self.is_leaf(**n));
        free.min_by_key(|(_, block)| block.used).map(|(n, _)| *n)
    }

    fn full(&self) -> bool {
        self.blocks.len() == SLOTS as usize
    }

    /// A block and all that was built on it, children first.
    fn family(&self, n: u32) -> Vec<u32> {
        let children = self.blocks.iter().filter(|(_, b)| b.parent == Some(n));
        let mut family: Vec<u32> = children.flat_map(|(child, _)| self.family(*child)).collect();
        family.push(n);
        family
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Writes a block, evicting if needed.
    Put(Option<u32>),
    /// Finds a block in a certain free slot.
    Find(Option<u32>, prop::sample::Index),
    /// Reads a block: held until it is answered.
    Hold(u32),
    Unhold(u32),
    Touch(u32),
    /// A block is corrupt.
    Forget(u32),
    /// The disk is quarantined.
    Reset,
}

impl ReferenceStateMachine for Model {
    type State = Self;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Self> {
        Just(Self::default()).boxed()
    }

    fn transitions(state: &Self) -> BoxedStrategy<Step> {
        let ids: Vec<u32> = state.blocks.keys().copied().collect();
        let parent = match ids.is_empty() {
            true => Just(None).boxed(),
            false => prop::option::weighted(0.8, prop::sample::select(ids.clone())).boxed(),
        };
        let found = (parent.clone(), any::<prop::sample::Index>());
        let grow = prop_oneof![
            3 => parent.prop_map(Step::Put),
            1 => found.prop_map(|(parent, slot)| Step::Find(parent, slot)),
        ];
        if ids.is_empty() {
            return grow.boxed();
        }
        let id = || prop::sample::select(ids.clone());
        prop_oneof![
            10 => grow,
            3 => id().prop_map(Step::Hold),
            4 => id().prop_map(Step::Unhold),
            4 => id().prop_map(Step::Touch),
            1 => id().prop_map(Step::Forget),
            1 => prop::bool::weighted(0.1).prop_map(|reset| match reset {
                true => Step::Reset,
                false => Step::Put(None),
            }),
        ]
        .boxed()
    }

    fn preconditions(state: &Self, step: &Step) -> bool {
        let known = |n: &Option<u32>| n.is_none_or(|n| state.blocks.contains_key(&n));
        match step {
            // Who writes holds the parent first; held in use, the tier may be too full.
            Step::Put(parent) => known(parent),
            Step::Find(parent, _) => known(parent) && !state.full(),
            Step::Hold(n) | Step::Touch(n) => state.blocks.contains_key(n),
            Step::Unhold(n) => state.blocks.get(n).is_some_and(|block| block.holds > 0),
            Step::Forget(n) => state.family(*n).iter().all(|n| state.blocks[n].holds == 0),
            Step::Reset => state.blocks.values().all(|block| block.holds == 0),
        }
    }

    fn apply(mut state: Self, step: &Step) -> Self {
        state.gone.clear();
        match step {
            Step::Put(parent) | Step::Find(parent, _) => {
                if let Some(parent) = parent.and_then(|n| state.blocks.get_mut(&n)) {
                    parent.holds += 1;
                }
                if state.full() {
                    state.gone.extend(state.victim());
                }
                state.gone.iter().for_each(|n| {
                    state.blocks.remove(n);
                });
                if let Some(parent) = parent.and_then(|n| state.blocks.get_mut(&n)) {
                    parent.holds -= 1;
                }
                if !state.full() {
                    state.last += 1;
                    state.uses += 2; // stored, let go
                    let (parent, used) = (*parent, state.uses);
                    state.blocks.insert(state.last, Block { parent, holds: 0, used });
                }
            }
            Step::Hold(n) => state.blocks.get_mut(n).into_iter().for_each(|b| b.holds += 1),
            Step::Unhold(n) => state.blocks.get_mut(n).into_iter().for_each(|b| b.holds -= 1),
            Step::Touch(n) => {
                state.uses += 1;
                let used = state.uses;
                state.blocks.get_mut(n).into_iter().for_each(|b| b.used = used);
            }
            Step::Forget(n) => {
                state.gone = state.family(*n);
                state.gone.iter().for_each(|n| {
                    state.blocks.remove(n);
                });
            }
            Step::Reset => state.blocks.clear(),
        }
        state
    }
}

struct Test {
    tier: Tier,
    /// What the disk's index says.
    disk: BTreeMap<SlotId, BlockKey>,
    last: u32,
}

impl Test {
    fn put(&mut self, parent: Option<u32>, at: Option<SlotId>, out: &mut Vec<Out>) {
        let held = parent.and_then(|n| self.tier.find(&key(n)));
        held.into_iter().for_each(|slot| self.tier.hold(slot));
        let slot = match at {
            Some(slot) => self.tier.take_at(slot),
            None => self.tier.take(out),
        };
        self.disk_hears(out);
        held.into_iter().for_each(|slot| self.tier.unhold(slot));
        let Some(SlotRef { slot, .. }) = slot else {
            return;
        };
        self.last += 1;
        let (n, stamp) = (self.last, Stamp::default());
        assert!(self.disk.insert(slot, key(n)).is_none(), "reused before it was forgotten");
        let (key, parent) = (key(n), parent.map(key));
        let block = NewBlock { key, parent, tokens: n * 16, signed: None, stamp };
        assert_eq!(self.tier.register(slot, block, out), Registered::New);
        self.tier.unlease(slot);
    }

    fn disk_hears(&mut self, out: &[Out]) {
        for out in out {
            if let Out::Disk(DiskOp::Forget { slot, key }) = out {
                assert_eq!(self.disk.remove(slot), Some(*key));
            }
        }
    }
}

impl StateMachineTest for Test {
    type SystemUnderTest = Self;
    type Reference = Model;

    fn init_test(_: &Model) -> Self {
        Self { tier: Tier::new(Name::Nvme, SLOTS), disk: BTreeMap::new(), last: 0 }
    }

    fn apply(mut test: Self, model: &Model, step: Step) -> Self {
        let mut out = Vec::new();
        let slot = |test: &Self, n: u32| test.tier.find(&key(n)).unwrap();
        match step {
            Step::Put(parent) => test.put(parent, None, &mut out),
            Step::Find(parent, pick) => {
                let free = |slot: &SlotId| !test.disk.contains_key(slot);
                let free: Vec<SlotId> = (0..SLOTS).map(SlotId).filter(free).collect();
                test.put(parent, Some(*pick.get(&free)), &mut out);
            }
            Step::Hold(n) => test.tier.hold(slot(&test, n)),
            Step::Unhold(n) => test.tier.unhold(slot(&test, n)),
            Step::Touch(n) => test.tier.mark_read(slot(&test, n)),
            Step::Forget(n) => {
                let slot = slot(&test, n);
                test.tier.forget(slot, &mut out);
                test.disk_hears(&out);
            }
            Step::Reset => {
                test.tier.reset(&mut out);
                test.disk.clear();
            }
        }
        // Children go before their parents, brothers in any order.
        let gone: BTreeSet<u32> = removed(&out).into_iter().collect();
        assert_eq!(gone, model.gone.iter().copied().collect());
        test
    }

    fn check_invariants(test: &Self, model: &Model) {
        test.tier.audit();
        assert_eq!(test.tier.stats().blocks as usize, model.blocks.len());
        let on_disk: BTreeSet<BlockKey> = test.disk.values().copied().collect();
        assert_eq!(on_disk, model.blocks.keys().copied().map(key).collect());
        let room = test.tier.room();
        match (model.full(), model.victim()) {
            (false, _) => assert_eq!(room, Room::Free),
            (true, None) => assert_eq!(room, Room::None),
            (true, Some(n)) => {
                assert!(matches!(room, Room::Evicts { key: victim, .. } if victim == key(n)));
            }
        }
    }
}

prop_state_machine! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn the_tree_on_disk_is_its_model(sequential 1..100 => Test);
}
