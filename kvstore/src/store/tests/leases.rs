//! Grants, top-ups and releases beside a model that counts slots.

use super::world::*;
use super::*;
use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};
use protocol::prompt::Refusal;

const SLOTS: u32 = 16;
const BATCH: u32 = 2;

#[derive(Clone, Debug)]
struct Leased {
    slots: u32,
    cap: u32,
    sealed: u32,
    /// Full blocks that its tokens can ever give.
    most: u32,
}

/// Slots are free, leased, or cached: those that an ended lease had filled.
#[derive(Clone, Debug, Default)]
struct Model {
    leases: BTreeMap<u32, Leased>,
    cached: u32,
    last: u32,
    granted: bool,
}

impl Model {
    fn leased(&self) -> u32 {
        self.leases.values().map(|lease| lease.slots).sum()
    }

    fn free(&self) -> u32 {
        SLOTS - self.leased() - self.cached
    }

    /// Takes slots, cached ones when no free one is left.
    fn take(&mut self, n: u32) {
        self.cached -= n.saturating_sub(self.free());
    }

    fn grant(&mut self, tokens: u32, more: u32) {
        self.last += 1;
        let cap = (tokens + more).div_ceil(16).min(SLOTS);
        let slots = (tokens.div_ceil(16) + BATCH).min(cap);
        let headroom = (self.leases.len() as u32).min(SLOTS / 8);
        self.granted = tokens < SLOTS * 16 && self.free() + self.cached >= slots + headroom;
        if self.granted {
            self.take(slots);
            let most = (tokens + more) / 16;
            self.leases.insert(self.last, Leased { slots, cap, sealed: 0, most });
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Grant {
        tokens: u32,
        more: u32,
    },
    /// Computes one block, if it can.
    Seal(u32),
    TopUp(u32, u32),
    Release(u32),
}

impl ReferenceStateMachine for Model {
    type State = Self;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Self> {
        Just(Self::default()).boxed()
    }

    fn transitions(state: &Self) -> BoxedStrategy<Step> {
        let grant = (1..300u32, 1..120u32).prop_map(|(tokens, more)| Step::Grant { tokens, more });
        let ids: Vec<u32> = state.leases.keys().copied().collect();
        if ids.is_empty() {
            return grant.boxed();
        }
        let id = || prop::sample::select(ids.clone());
        prop_oneof![
            4 => grant,
            8 => id().prop_map(Step::Seal),
            4 => (id(), 0..5u32).prop_map(|(id, n)| Step::TopUp(id, n)),
            3 => id().prop_map(Step::Release),
        ]
        .boxed()
    }

    fn preconditions(state: &Self, step: &Step) -> bool {
        match step {
            Step::Grant { .. } => true,
            Step::Seal(id) | Step::TopUp(id, _) | Step::Release(id) => {
                state.leases.contains_key(id)
            }
        }
    }

    fn apply(mut state: Self, step: &Step) -> Self {
        match step {
            Step::Grant { tokens, more } => state.grant(*tokens, *more),
            Step::Seal(id) => {
                let lease = state.leases.get_mut(id).unwrap();
                lease.sealed += u32::from(lease.sealed < lease.slots.min(lease.most));
            }
            Step::TopUp(id, n) => {
                let Leased { slots, cap, .. } = state.leases[id];
                let n = BATCH.max(*n).min(cap.saturating_sub(slots));
                let n = n.min(state.free() + state.cached);
                state.take(n);
                state.leases.get_mut(id).unwrap().slots += n;
            }
            Step::Release(id) => {
                let lease = state.leases.remove(id).unwrap();
                state.cached += lease.sealed;
            }
        }
        state
    }
}

struct Test {
    world: World,
    leases: BTreeMap<u32, LeaseId>,
    last: u32,
}

impl StateMachineTest for Test {
    type SystemUnderTest = Self;
    type Reference = Model;

    fn init_test(_: &Model) -> Self {
        let setup = Setup { slots: SLOTS, dram: 0, batch: BATCH, ..Setup::default() };
        Self { world: World::new(setup), leases: BTreeMap::new(), last: 0 }
    }

    fn apply(mut test: Self, model: &Model, step: Step) -> Self {
        let world = &mut test.world;
        match step {
            Step::Grant { tokens, more } => {
                test.last += 1;
                // Nobody shares anything.
                let tokens = prompt(test.last, tokens as usize);
                let ask = world.ask(&tokens, more);
                match world.prepare(&tokens, ask) {
                    Ok(grant) => {
                        assert!(model.granted, "granted without room");
                        world.submit(grant.lease);
                        test.leases.insert(test.last, grant.lease);
                    }
                    Err(Refusal::Busy { .. } | Refusal::TooLong { .. }) => {
                        assert!(!model.granted, "refused with room");
                    }
                    Err(other) => panic!("{other:?}"),
                }
            }
            Step::Seal(id) => {
                let seq = &world.seqs[&test.leases[&id]];
                let filled = seq.blocks.iter().filter(|block| **block == Blk::Filled).count();
                // What the model says is the number after this step.
                if filled < model.leases[&id].sealed as usize {
                    assert!(world.compute(test.leases[&id], false));
                }
            }
            Step::TopUp(id, blocks) => {
                let lease = test.leases[&id];
                world.event_of(EngineId(0), EngineEvent::NeedSlots { lease, blocks });
            }
            Step::Release(id) => drop(world.release(test.leases.remove(&id).unwrap())),
        }
        test
    }

    fn check_invariants(test: &Self, model: &Model) {
        let slots = test.world.store.stats().tiers[0].slots;
        assert_eq!((slots.leased, slots.cached), (model.leased(), model.cached));
        assert_eq!((slots.free, slots.draining), (model.free(), 0));
        for (id, lease) in &test.leases {
            assert_eq!(test.world.seqs[lease].slots.len(), model.leases[id].slots as usize);
        }
        if model.leases.is_empty() {
            test.world.store.audit_idle();
        }
    }
}

prop_state_machine! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn slots_are_where_the_model_says(sequential 1..60 => Test);
}
