//! Repair against a plain model: one origin, one observer, and frames that are delivered in any
//! order, lost or repeated, while the origin changes, restarts, and the observer's index loses
//! entries. At every moment the index is what the origin held after the batch it stands at; once
//! frames are delivered again, it is what the origin holds.

use crate::index::{Entry, Index, apply};
use crate::world::{contact, keypair};
use gossip::{Config, Gossip, In, Out};
use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};
use protocol::block::StorageId;
use protocol::event::{BlockEvent, EventRun, Holder};
use protocol::hash::PrefixHash;
use protocol::id::Incarnation;
use protocol::machine::Machine;
use protocol::sign::Keypair;
use protocol::time::{Span, Time};
use protocol::trust::{MemberCert, UnixTime, cluster_of};
use protocol::wire::{decode, encode};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug)]
enum Step {
    Change {
        name: u16,
        stored: bool,
        dram: bool,
    },
    Clear,
    Wait(u64),
    /// A frame under way arrives, is lost, or arrives and is still under way.
    Deliver(usize),
    Lose(usize),
    Repeat(usize),
    /// The observer's index loses an entry.
    Forgetful,
    /// The origin restarts, empty.
    Restart,
    /// The stream between them breaks and stands again.
    Break,
}

/// What the origin holds.
#[derive(Clone, Debug, Default)]
struct Truth(BTreeSet<Entry>);

fn event(name: u16, stored: bool, dram: bool) -> BlockEvent {
    let holder = if dram { Holder::Dram } else { Holder::Nvme };
    let (prefix, tokens, storage) = (PrefixHash(u128::from(name)), 64, StorageId(1));
    if stored {
        BlockEvent::Stored { prefix, tokens, storage, holder }
    } else {
        BlockEvent::Removed { prefix, tokens, storage, holder }
    }
}

impl ReferenceStateMachine for Truth {
    type State = Self;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Self> {
        Just(Self::default()).boxed()
    }

    fn transitions(_: &Self) -> BoxedStrategy<Step> {
        prop_oneof![
            12 => (0u16..600, prop::bool::weighted(0.7), any::<bool>())
                .prop_map(|(name, stored, dram)| Step::Change { name, stored, dram }),
            1 => Just(Step::Clear),
            6 => (20u64..400).prop_map(Step::Wait),
            10 => any::<usize>().prop_map(Step::Deliver),
            3 => any::<usize>().prop_map(Step::Lose),
            3 => any::<usize>().prop_map(Step::Repeat),
            2 => Just(Step::Forgetful),
            1 => Just(Step::Restart),
            1 => Just(Step::Break),
        ]
        .boxed()
    }

    fn apply(mut truth: Self, step: &Step) -> Self {
        match step {
            Step::Change { name, stored, dram } => {
                let BlockEvent::Stored { prefix, storage, holder, .. } = event(*name, true, *dram)
                else {
                    unreachable!()
                };
                let entry = (holder, storage, prefix);
                if *stored {
                    truth.0.insert(entry)
                } else {
                    truth.0.remove(&entry)
                };
            }
            Step::Clear => truth.0.retain(|entry| entry.0 != Holder::Dram),
            Step::Restart => truth.0.clear(),
            _ => {}
        }
        truth
    }
}

/// Observer (0) and origin (1), and what is under way between them.
struct Two {
    now: Time,
    sides: [Gossip; 2],
    indexes: [Index; 2],
    /// (to, encoded input).
    flight: Vec<(usize, In)>,
    /// What the origin held after each batch of each life.
    history: BTreeMap<(u64, u64), BTreeSet<Entry>>,
    life: u64,
    told: BTreeSet<Entry>,
}

fn machine(n: usize, counter: u64, now: Time) -> Gossip {
    let issuer = Keypair::from_seed(&[200; 32]);
    let cert = |n: usize| {
        let node = keypair(n).node();
        MemberCert::issue(&issuer, cluster_of(&issuer.node()), node, vec![], UnixTime(0))
    };
    let life = Incarnation { counter, nonce: counter };
    let config =
        Config::new(keypair(n), life, cert(n), issuer.node(), contact(n), counter * 10 + n as u64);
    let mut gossip = Gossip::new(config, now);
    gossip.handle(now, In::Known { cert: cert(1 - n), contact: contact(1 - n) }, &mut Vec::new());
    gossip
}

impl Two {
    fn give(&mut self, n: usize, input: In) {
        let mut out = Vec::new();
        self.sides[n].handle(self.now, input, &mut out);
        self.perform(n, out);
    }

    fn perform(&mut self, n: usize, out: Vec<Out>) {
        let me = keypair(n).node();
        for effect in out {
            let told = match effect {
                Out::Direct { frame, .. } => {
                    let frame = decode(&encode(&frame).unwrap()).unwrap();
                    self.flight.push((1 - n, In::Direct { from: me, frame }));
                    None
                }
                Out::Publish(frame) => {
                    self.flight.push((1 - n, In::Published { from: me, frame }));
                    None
                }
                Out::Learn(batch) => {
                    if n == 1 && batch.origin == me {
                        let runs: Vec<EventRun> = decode(&batch.payload).unwrap();
                        apply(&me, &mut self.told, runs);
                        let place = (batch.incarnation.counter, batch.seq.0);
                        self.history.insert(place, self.told.clone());
                    }
                    self.indexes[n].learn(&batch)
                }
                Out::LearnSnapshot(snapshot) => self.indexes[n].learn_snapshot(*snapshot),
                Out::LearnBuckets { buckets, later } => {
                    self.indexes[n].learn_buckets(*buckets, &later)
                }
                Out::CutSnapshot { to, origins } => {
                    let snapshots = self.indexes[n].cut(&origins);
                    Some(In::SnapshotCut { to, snapshots })
                }
                Out::CutBuckets { to, wanted, later } => {
                    let buckets = self.indexes[n].cut_buckets(&wanted, &later).map(Box::new);
                    Some(In::BucketsCut { to, buckets })
                }
                Out::Forget { node, incarnation } => {
                    self.indexes[n].forget(&node, incarnation);
                    None
                }
                Out::Twin { .. } | Out::JumpPast(_) => panic!("{effect:?}"),
                _ => None,
            };
            told.into_iter().for_each(|input| self.give(n, input));
        }
    }

    fn wait(&mut self, span: Span) {
        let end = self.now + span;
        while self.now < end {
            self.now = (self.now + Span::millis(20)).min(end);
            for n in 0..2 {
                if self.sides[n].deadline().is_some_and(|at| at <= self.now) {
                    let mut out = Vec::new();
                    self.sides[n].tick(self.now, &mut out);
                    self.perform(n, out);
                }
            }
        }
    }

    /// Frame number `k` of those under way.
    fn pick(&mut self, k: usize, keep: bool) -> Option<(usize, In)> {
        let at = k.checked_rem(self.flight.len())?;
        Some(if keep { self.flight[at].clone() } else { self.flight.remove(at) })
    }

    fn join(&mut self) {
        for n in 0..2 {
            self.give(n, In::Disconnected(keypair(1 - n).node()));
            self.give(n, In::Connected(keypair(1 - n).node()));
        }
    }

    fn restart(&mut self) {
        self.life += 1;
        self.sides[1] = machine(1, self.life, self.now);
        self.indexes[1] = Index::default();
        self.told.clear();
        self.join();
    }

    /// Frames arrive again, in order.
    fn settle(&mut self) {
        self.flight.clear();
        self.join();
        for _ in 0..600 {
            let flight = std::mem::take(&mut self.flight);
            flight.into_iter().for_each(|(to, input)| self.give(to, input));
            self.wait(Span::millis(20));
        }
    }

    fn check(&self) {
        let id = keypair(1).node();
        let Some(origin) = self.indexes[0].origins.get(&id) else { return };
        if self.indexes[0].is_exact(&id) && origin.seq.0 > 0 {
            let then = self.history.get(&(origin.incarnation.counter, origin.seq.0));
            assert_eq!(then, Some(&origin.entries));
        }
    }
}

struct Repair;

impl StateMachineTest for Repair {
    type SystemUnderTest = Two;
    type Reference = Truth;

    fn init_test(_: &Truth) -> Two {
        let now = Time(1);
        let mut two = Two {
            now,
            sides: [machine(0, 1, now), machine(1, 1, now)],
            indexes: [Index::default(), Index::default()],
            flight: Vec::new(),
            history: BTreeMap::new(),
            life: 1,
            told: BTreeSet::new(),
        };
        two.join();
        two
    }

    fn apply(mut two: Two, _: &Truth, step: Step) -> Two {
        match step {
            Step::Change { name, stored, dram } => {
                two.give(1, In::Event(event(name, stored, dram)));
            }
            Step::Clear => two.give(1, In::Event(BlockEvent::Cleared { holder: Holder::Dram })),
            Step::Wait(ms) => two.wait(Span::millis(ms)),
            Step::Deliver(k) => {
                if let Some((to, input)) = two.pick(k, false) {
                    two.give(to, input);
                }
            }
            Step::Lose(k) => drop(two.pick(k, false)),
            Step::Repeat(k) => {
                if let Some((to, input)) = two.pick(k, true) {
                    two.give(to, input);
                }
            }
            Step::Forgetful => {
                if let Some(told) = two.indexes[0].lose(&keypair(1).node()) {
                    two.give(0, told);
                }
            }
            Step::Restart => two.restart(),
            Step::Break => two.join(),
        }
        two
    }

    fn check_invariants(two: &Two, _: &Truth) {
        two.check();
    }

    fn teardown(mut two: Two, truth: Truth) {
        two.settle();
        two.check();
        let entries = two.indexes[0].entries(&keypair(1).node());
        assert_eq!(entries, truth.0, "after all was delivered");
        assert_eq!(two.sides[0].behind(), 0);
    }
}

prop_state_machine! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn the_index_follows_its_origin_whatever_becomes_of_frames(sequential 1..60 => Repair);
}

/// Two that know each other, the origin holding some things, and one entry lost at the observer:
/// the answer to what it asked is under way, with `before` of the origin's later changes told
/// before the answer was cut, `after` after it, none of them delivered.
fn answered(before: u16, after: u16) -> (Two, Vec<(usize, In)>) {
    let mut two = Repair::init_test(&Truth::default());
    two.settle();
    (0..300).for_each(|name| two.give(1, In::Event(event(name, true, true))));
    two.settle();
    let told = two.indexes[0].lose(&keypair(1).node()).unwrap();
    two.give(0, told);
    two.wait(Span::millis(120));
    let (wanted, _) = two.split(|input| format!("{input:?}").contains("WantBuckets"));
    assert_eq!(wanted.len(), 1);
    let change = |two: &mut Two, from: u16, count: u16| {
        (from..from + count).for_each(|name| two.give(1, In::Event(event(name, true, false))));
        two.wait(Span::millis(60));
    };
    change(&mut two, 400, before);
    wanted.into_iter().for_each(|(to, input)| two.give(to, input));
    change(&mut two, 500, after);
    let (answers, _) = two.split(|input| format!("{input:?}").contains("Buckets {"));
    assert!(!answers.is_empty());
    (two, answers)
}

impl Two {
    /// Takes out of the frames under way those that fit, and keeps the rest there.
    fn split(&mut self, fits: impl Fn(&In) -> bool) -> (Vec<(usize, In)>, usize) {
        let all = std::mem::take(&mut self.flight);
        let (taken, rest) = all.into_iter().partition(|(_, input)| fits(input));
        self.flight = rest;
        (taken, self.flight.len())
    }

    fn deliver_all(&mut self) {
        for (to, input) in std::mem::take(&mut self.flight) {
            self.give(to, input);
        }
    }

    fn is_right(&self) -> bool {
        self.indexes[0].entries(&keypair(1).node()) == self.told
    }
}

#[test]
fn an_answer_that_news_has_overtaken_is_brought_up_to_date() {
    let (mut two, answers) = answered(3, 4);
    two.deliver_all();
    assert!(!two.is_right() && two.indexes[0].mended == 0);
    answers.into_iter().for_each(|(to, input)| two.give(to, input));
    assert_eq!(two.indexes[0].mended, 1);
    assert!(two.is_right());
}

#[test]
fn an_answer_that_overtakes_news_waits_for_it() {
    let (mut two, answers) = answered(3, 0);
    answers.into_iter().for_each(|(to, input)| two.give(to, input));
    assert_eq!(two.indexes[0].mended, 0, "it speaks of a place that is not reached here");
    two.deliver_all();
    two.wait(Span::millis(150));
    assert_eq!(two.indexes[0].mended, 1);
    assert!(two.is_right());
}

#[test]
fn an_answer_of_a_place_that_its_origin_did_not_sign_is_refused() {
    for edit in [0, 1, 2] {
        let (mut two, answers) = answered(0, 0);
        for (to, mut input) in answers {
            if let In::Direct { frame: protocol::wire::gossip::Direct::Buckets(part), .. } =
                &mut input
            {
                match edit {
                    0 => part.digest.mix ^= 1,
                    1 => part.link[0] ^= 1,
                    _ => part.buckets = vec![],
                }
            }
            two.give(to, input);
        }
        assert_eq!(two.indexes[0].mended, 0);
        assert!(two.sides[0].counters().buckets_refused > 0);
        two.settle();
        assert!(two.is_right(), "asked again, or the whole set");
    }
}
