//! The index against a plain model: after any batches, clears, restarts, forgettings, losses,
//! snapshots and repairs, the holders of every prefix are those of the model.

use super::tests::{Source, cut, digest, held, learn, prompts, run, truth};
use super::{In, Out};
use crate::Params;
use crate::testing::*;
use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};
use protocol::event::{BucketsWanted, EventBatch, EventRun, Seq};
use protocol::id::Incarnation;
use protocol::wire;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Step {
    /// An origin's next batch; what is lost the second router applies as empty.
    Tell { n: u8, runs: Vec<EventRun>, lost: bool },
    /// The origin begins another life, empty.
    Restart(u8),
    /// Gossip says that the present life is over.
    Forget(u8),
    /// A batch comes again: of this life, or the last one of the life before.
    Again { n: u8, former: bool },
    /// The second router takes over the first one's set.
    Snapshot(u8),
    /// … or only the buckets that differ.
    Repair(u8),
}

#[derive(Clone, Debug)]
struct Told {
    life: u64,
    source: Source,
    last: Option<EventBatch>,
    former: Option<EventBatch>,
    /// The second router's set may be wrong.
    sick: bool,
    /// Nobody may know anything of it.
    forgotten: bool,
}

#[derive(Clone, Debug)]
struct Model(BTreeMap<u8, Told>);

impl Told {
    fn next(&mut self, n: u8, runs: &[EventRun]) -> EventBatch {
        let mut batch = self.source.batch(n, runs);
        batch.incarnation = Incarnation { counter: self.life, nonce: 11 };
        self.last = Some(batch.clone());
        self.forgotten = false;
        batch
    }
}

impl ReferenceStateMachine for Model {
    type State = Self;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Self> {
        let new = Told {
            life: 1,
            source: Source::default(),
            last: None,
            former: None,
            sick: false,
            forgotten: true,
        };
        Just(Self((1..4).map(|n| (n, new.clone())).collect())).boxed()
    }

    fn transitions(_: &Self) -> BoxedStrategy<Step> {
        let runs = prop::collection::vec(run(), 1..4);
        prop_oneof![
            12 => (1u8..4, runs, prop::bool::weighted(0.2))
                .prop_map(|(n, runs, lost)| Step::Tell { n, runs, lost }),
            1 => (1u8..4).prop_map(Step::Restart),
            1 => (1u8..4).prop_map(Step::Forget),
            2 => (1u8..4, any::<bool>()).prop_map(|(n, former)| Step::Again { n, former }),
            2 => (1u8..4).prop_map(Step::Snapshot),
            3 => (1u8..4).prop_map(Step::Repair),
        ]
        .boxed()
    }

    fn apply(mut model: Self, step: &Step) -> Self {
        match step {
            Step::Tell { n, runs, lost } => {
                let told = model.0.get_mut(n).unwrap();
                told.next(*n, runs);
                told.sick |= lost;
            }
            Step::Restart(n) => {
                let told = model.0.get_mut(n).unwrap();
                let former = told.last.take().or(told.former.take());
                *told = Told {
                    life: told.life + 1,
                    source: Source::default(),
                    last: None,
                    former,
                    sick: false,
                    forgotten: true,
                };
            }
            Step::Forget(n) => model.0.get_mut(n).unwrap().forgotten = true,
            Step::Snapshot(n) | Step::Repair(n) => {
                let told = model.0.get_mut(n).unwrap();
                told.sick &= told.forgotten;
            }
            Step::Again { .. } => {}
        }
        model
    }

    /// A forgotten life that goes on would be a snapshot first, in gossip; here it ends.
    fn preconditions(model: &Self, step: &Step) -> bool {
        match step {
            Step::Tell { n, .. } | Step::Again { n, .. } => {
                let told = &model.0[n];
                !(told.forgotten && told.last.is_some())
            }
            _ => true,
        }
    }
}

/// The first router hears everything, the second loses some and is mended from the first.
struct Routers {
    first: World,
    second: World,
    told: BTreeMap<u8, Told>,
}

impl Routers {
    fn both(&mut self, input: &In) {
        self.first.handle(input.clone());
        self.second.handle(input.clone());
    }

    fn repair(&mut self, n: u8) {
        let Some(origin) = self.second.router.origins.get(&node(n)) else { return };
        let wanted = Box::new(BucketsWanted {
            origin: node(n),
            incarnation: origin.incarnation,
            seq: origin.seq,
            digests: origin.buckets().to_vec(),
        });
        let out = self.first.handle(In::CutBuckets { to: node(9), wanted, later: Vec::new() });
        let [Out::BucketsCut { buckets: Some(buckets), .. }] = out.as_slice() else {
            panic!("{out:?}")
        };
        let mend = In::LearnBuckets { buckets: buckets.clone(), later: Vec::new() };
        assert!(self.second.handle(mend).is_empty(), "it agrees after a repair");
    }
}

struct Index;

impl StateMachineTest for Index {
    type SystemUnderTest = Routers;
    type Reference = Model;

    fn init_test(model: &Model) -> Routers {
        let world = || World::new(1, Params::default());
        Routers { first: world(), second: world(), told: model.0.clone() }
    }

    fn apply(mut routers: Routers, _: &Model, step: Step) -> Routers {
        match step {
            Step::Tell { n, runs, lost } => {
                let batch = routers.told.get_mut(&n).unwrap().next(n, &runs);
                assert!(learn(&mut routers.first, &batch).is_empty());
                let payload = wire::encode(&Vec::<EventRun>::new()).unwrap();
                let heard = if lost { EventBatch { payload, ..batch } } else { batch };
                learn(&mut routers.second, &heard);
            }
            Step::Restart(n) => {
                let told = routers.told.get_mut(&n).unwrap();
                let incarnation = Incarnation { counter: told.life, nonce: 11 };
                let former = told.last.take().or(told.former.take());
                *told = Told {
                    life: told.life + 1,
                    source: Source::default(),
                    last: None,
                    former,
                    sick: false,
                    forgotten: true,
                };
                routers.both(&In::Forget { node: node(n), incarnation });
            }
            Step::Forget(n) => {
                let told = routers.told.get_mut(&n).unwrap();
                told.forgotten = true;
                let incarnation = Incarnation { counter: told.life, nonce: 11 };
                routers.both(&In::Forget { node: node(n), incarnation });
            }
            Step::Again { n, former } => {
                let told = &routers.told[&n];
                let batch = if former { &told.former } else { &told.last };
                // Before the new life has said anything, nothing tells an old word from a new one.
                let Some(batch) = batch.clone().filter(|_| told.last.is_some()) else {
                    return routers;
                };
                routers.both(&In::Learn(Box::new(batch)));
            }
            Step::Snapshot(n) => {
                for snapshot in cut(&mut routers.first, Some(node(n))) {
                    assert!(
                        routers.second.handle(In::LearnSnapshot(Box::new(snapshot))).is_empty()
                    );
                }
            }
            Step::Repair(n) => routers.repair(n),
        }
        routers
    }

    fn check_invariants(routers: &Routers, model: &Model) {
        let (mut pairs, mut sick) = (0, false);
        for (n, told) in &model.0 {
            let truth = if told.forgotten { Default::default() } else { truth(&told.source.set) };
            pairs += if told.forgotten { 0 } else { told.source.set.len() as u64 };
            sick |= told.sick;
            assert_eq!(held(&routers.first, *n, &prompts()), truth);
            if !told.sick {
                assert_eq!(held(&routers.second, *n, &prompts()), truth);
            }
            if !told.forgotten && told.last.is_some() {
                let (life, seq, found) = routers.first.router.origin(&node(*n)).unwrap();
                assert_eq!((life.counter, seq), (told.life, Seq(told.source.seq)));
                assert_eq!(found, digest(*n, &told.source.set));
            }
        }
        assert_eq!(routers.first.router.stats().pairs, pairs, "no count below or above the truth");
        assert!(sick || routers.second.router.stats().pairs == pairs);
    }
}

prop_state_machine! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn the_index_is_what_the_origins_said(sequential 1..40 => Index);
}
