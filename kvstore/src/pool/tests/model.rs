//! The pool beside a model that knows only what it was told: how often each taken slot is leased
//! and held, and whether it is named.

use super::*;
use proptest::sample::Index;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};
use std::collections::BTreeMap;

const SLOTS: u32 = 6;

#[derive(Clone, Copy, Debug, Default)]
struct Uses {
    leases: u32,
    holds: u32,
    named: bool,
}

impl Uses {
    fn over(self) -> bool {
        self.leases == 0 && self.holds == 0 && !self.named
    }
}

/// Slots in use, by the number of their taking.
#[derive(Clone, Debug, Default)]
struct Model {
    taken: BTreeMap<u32, Uses>,
    last: u32,
}

#[derive(Clone, Debug)]
enum Step {
    Take,
    /// Takes a certain free slot.
    TakeFree(Index),
    /// Tries to take a slot that is in use.
    TakeUsed(u32),
    Lease(u32),
    Unlease(u32),
    Hold(u32),
    Unhold(u32),
    Name(u32, bool),
    Reset,
}

impl ReferenceStateMachine for Model {
    type State = Self;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Self> {
        Just(Self::default()).boxed()
    }

    fn transitions(state: &Self) -> BoxedStrategy<Step> {
        let take = prop_oneof![Just(Step::Take), any::<Index>().prop_map(Step::TakeFree)];
        let ids: Vec<u32> = state.taken.keys().copied().collect();
        if ids.is_empty() {
            return take.boxed();
        }
        let id = || prop::sample::select(ids.clone());
        prop_oneof![
            6 => take,
            1 => id().prop_map(Step::TakeUsed),
            3 => id().prop_map(Step::Lease),
            6 => id().prop_map(Step::Unlease),
            3 => id().prop_map(Step::Hold),
            4 => id().prop_map(Step::Unhold),
            4 => (id(), any::<bool>()).prop_map(|(id, named)| Step::Name(id, named)),
            1 => Just(Step::Reset),
        ]
        .boxed()
    }

    fn preconditions(state: &Self, step: &Step) -> bool {
        let uses = |id| state.taken.get(id);
        match step {
            Step::Take | Step::Reset => true,
            Step::TakeFree(_) => state.taken.len() < SLOTS as usize,
            Step::TakeUsed(id) | Step::Name(id, false) => uses(id).is_some(),
            Step::Lease(id) | Step::Name(id, true) => uses(id).is_some_and(|u| !u.over()),
            Step::Unlease(id) => uses(id).is_some_and(|u| u.leases > 0),
            Step::Hold(id) => uses(id).is_some_and(|u| u.leases > 0 || u.named),
            Step::Unhold(id) => uses(id).is_some_and(|u| u.holds > 0),
        }
    }

    fn apply(mut state: Self, step: &Step) -> Self {
        match step {
            Step::Take | Step::TakeFree(_) => {
                if state.taken.len() < SLOTS as usize {
                    state.last += 1;
                    state.taken.insert(state.last, Uses { leases: 1, ..Uses::default() });
                }
            }
            Step::TakeUsed(_) => {}
            Step::Reset => state.taken.clear(),
            Step::Lease(id) => state.taken.entry(*id).or_default().leases += 1,
            Step::Unlease(id) => state.taken.entry(*id).or_default().leases -= 1,
            Step::Hold(id) => state.taken.entry(*id).or_default().holds += 1,
            Step::Unhold(id) => state.taken.entry(*id).or_default().holds -= 1,
            Step::Name(id, named) => state.taken.entry(*id).or_default().named = *named,
        }
        state.taken.retain(|_, uses| !uses.over());
        state
    }
}

struct Test {
    pool: Pool,
    /// Where each taking went.
    slots: BTreeMap<u32, SlotRef>,
    generations: [u32; SLOTS as usize],
    last: u32,
}

impl Test {
    fn took(&mut self, slot: Option<SlotRef>) {
        let Some(slot) = slot else {
            return;
        };
        let before = &mut self.generations[slot.slot.0 as usize];
        assert!(slot.generation.0 > *before, "an old generation");
        *before = slot.generation.0;
        assert!(self.slots.values().all(|other| other.slot != slot.slot), "taken twice");
        self.last += 1;
        self.slots.insert(self.last, slot);
    }
}

impl StateMachineTest for Test {
    type SystemUnderTest = Self;
    type Reference = Model;

    fn init_test(_: &Model) -> Self {
        let (pool, slots) = (Pool::new(SLOTS), BTreeMap::new());
        Self { pool, slots, generations: [0; SLOTS as usize], last: 0 }
    }

    fn apply(mut test: Self, model: &Model, step: Step) -> Self {
        match step {
            Step::Take => {
                let slot = test.pool.take();
                test.took(slot);
            }
            Step::TakeFree(pick) => {
                let used = |slot: &u32| test.slots.values().any(|taken| taken.slot.0 == *slot);
                let free: Vec<u32> = (0..SLOTS).filter(|slot| !used(slot)).collect();
                let slot = test.pool.take_at(SlotId(*pick.get(&free)));
                assert!(slot.is_some());
                test.took(slot);
            }
            Step::TakeUsed(id) => assert_eq!(test.pool.take_at(test.slots[&id].slot), None),
            Step::Lease(id) => test.pool.lease(test.slots[&id].slot),
            Step::Unlease(id) => test.pool.unlease(test.slots[&id].slot),
            Step::Hold(id) => test.pool.hold(test.slots[&id].slot),
            Step::Unhold(id) => test.pool.unhold(test.slots[&id].slot),
            Step::Name(id, named) => test.pool.name(test.slots[&id].slot, named),
            Step::Reset => test.pool.reset(),
        }
        assert_eq!(test.last, model.last, "taken when the model could not, or the other way");
        test.slots.retain(|id, _| model.taken.contains_key(id));
        test
    }

    fn check_invariants(test: &Self, model: &Model) {
        test.pool.audit();
        for (id, uses) in &model.taken {
            let slot = test.slots[id];
            assert_eq!(test.pool.uses(slot.slot), (uses.leases, uses.holds, uses.named));
            assert_eq!(test.pool.current(slot.slot), slot);
            let idle = uses.leases == 0 && uses.holds == 0;
            assert_eq!(test.pool.is_idle(slot.slot), idle);
        }
        let counts = test.pool.counts();
        assert_eq!(counts.total(), SLOTS);
        assert_eq!(counts.free as usize, SLOTS as usize - model.taken.len());
        let cached = model.taken.values().filter(|uses| uses.leases == 0 && uses.named).count();
        assert_eq!(counts.cached as usize, cached);
    }
}

prop_state_machine! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn the_pool_is_its_model(sequential 1..80 => Test);
}
