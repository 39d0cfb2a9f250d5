//! One machine and what it makes of frames: true ones in any order, false ones, too many.

use crate::index::Index;
use crate::world::{World, contact, keypair};
use gossip::config::MEMBERS_MAX;
use gossip::{Config, Gossip, In, Out, Refused};
use proptest::prelude::*;
use protocol::block::StorageId;
use protocol::event::{BlockEvent, Contact, EventBatch, Heartbeat, Holder, MemberState, Seq};
use protocol::hash::PrefixHash;
use protocol::id::{ClusterId, Incarnation, NodeId};
use protocol::machine::Machine;
use protocol::sign::Keypair;
use protocol::time::{Span, Time};
use protocol::trust::{CERT_SECONDS, LABEL_ISSUER, MemberCert, UnixTime};
use protocol::wire::gossip::{Direct, Published};
use protocol::wire::handshake::{Hello, Mismatch, VERSION, VERSION_MIN};

pub(crate) fn config(world: &World, n: usize, incarnation: Incarnation) -> Config {
    Config::new(keypair(n), incarnation, world.cert(n), world.issuer.node(), contact(n), n as u64)
}

pub(crate) fn life(counter: u64) -> Incarnation {
    Incarnation { counter, nonce: counter * 31 }
}

/// One machine (node 0) that knows node 1, and what came out of it.
pub(crate) struct Bench {
    pub(crate) world: World,
    pub(crate) gossip: Gossip,
    pub(crate) now: Time,
    pub(crate) index: Index,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let world = World::new(0);
        let gossip = Gossip::new(config(&world, 0, life(3)), Time(1));
        let mut bench = Self { world, gossip, now: Time(1), index: Index::default() };
        let cert = bench.world.cert(1);
        bench.give(In::Known { cert, contact: contact(1) });
        bench
    }

    pub(crate) fn give(&mut self, input: In) -> Vec<Out> {
        let mut out = Vec::new();
        self.now += Span::millis(1);
        self.gossip.handle(self.now, input, &mut out);
        for effect in &out {
            match effect {
                Out::Learn(batch) => assert_eq!(self.index.learn(batch), None),
                Out::LearnSnapshot(snapshot) => {
                    assert_eq!(self.index.learn_snapshot((**snapshot).clone()), None);
                }
                Out::Forget { node, incarnation } => self.index.forget(node, *incarnation),
                _ => {}
            }
        }
        out
    }

    pub(crate) fn direct(&mut self, from: usize, frame: Direct) -> Vec<Out> {
        self.give(In::Direct { from: keypair(from).node(), frame })
    }

    pub(crate) fn published(&mut self, frame: Published) -> Vec<Out> {
        self.give(In::Published { from: keypair(1).node(), frame })
    }

    pub(crate) fn hello(&self, n: usize, incarnation: Incarnation) -> Hello {
        Hello {
            version: VERSION,
            version_min: VERSION_MIN,
            hash_version: protocol::hash::HASH_VERSION,
            cluster: self.world.cluster(),
            node: keypair(n).node(),
            incarnation,
            cert: self.world.cert(n),
            contact: contact(n),
        }
    }

    pub(crate) fn greet(&mut self, n: usize, incarnation: Incarnation) -> Vec<Out> {
        self.give(In::Connected(keypair(n).node()));
        let hello = self.hello(n, incarnation);
        self.direct(n, Direct::Hello(Box::new(hello)))
    }

    pub(crate) fn state(&self, n: usize) -> Option<MemberState> {
        let node = keypair(n).node();
        self.gossip.members().find(|view| view.node == node).map(|view| view.state)
    }
}

/// What one life of node `n` says: batches of one entry each, and a heartbeat after each.
pub(crate) fn words(world: &World, n: usize, incarnation: Incarnation, count: u32) -> Vec<Out> {
    let mut gossip = Gossip::new(config(world, n, incarnation), Time(1));
    let mut out = Vec::new();
    let mut now = Time(1);
    for name in 1..=count {
        let event = BlockEvent::Stored {
            prefix: PrefixHash(u128::from(name) + (u128::from(incarnation.counter) << 32)),
            tokens: 64 * name,
            storage: StorageId(1),
            holder: Holder::Dram,
        };
        gossip.handle(now, In::Event(event), &mut out);
        now += Span::millis(500);
        gossip.tick(now, &mut out);
    }
    out.retain(|word| matches!(word, Out::Learn(_) | Out::Publish(_)));
    assert!(out.len() >= 2 * count as usize - 1);
    out
}

fn batch_of(word: &Out) -> EventBatch {
    let Out::Learn(batch) = word else { panic!("{word:?}") };
    (**batch).clone()
}

pub(crate) fn heartbeat_of(word: &Out) -> Heartbeat {
    let Out::Publish(Published::Heartbeat(beat)) = word else { panic!("{word:?}") };
    (**beat).clone()
}

pub(crate) fn frame_of(word: &Out) -> In {
    let from = keypair(9).node();
    match word {
        Out::Learn(_) => {
            In::Direct { from: keypair(1).node(), frame: Direct::Batches(vec![batch_of(word)]) }
        }
        Out::Publish(frame) => In::Published { from, frame: frame.clone() },
        other => panic!("{other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Commutative, associative, idempotent; the newer life dominates whatever comes last.
    #[test]
    fn words_of_two_lives_in_any_order_with_repeats_end_the_same(
        order in prop::collection::vec(0..1000usize, 0..40),
        last in Just((0..16usize).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let mut bench = Bench::new();
        let mut told = words(&bench.world, 1, life(4), 4);
        told.extend(words(&bench.world, 1, life(5), 4));
        let picks: Vec<usize> =
            order.into_iter().chain(last).map(|pick| pick % told.len()).collect();
        for pick in picks.into_iter().chain(0..told.len()) {
            bench.give(frame_of(&told[pick]));
        }
        let place = bench.gossip.applied().find(|(node, ..)| *node == keypair(1).node());
        prop_assert_eq!(place, Some((keypair(1).node(), life(5), Seq(4))));
        let entries = bench.index.entries(&keypair(1).node());
        prop_assert_eq!(entries.len(), 4);
        prop_assert!(entries.iter().all(|entry| entry.2.0 >> 32 == 5));
        prop_assert_eq!(bench.gossip.behind(), 0);
    }
}

#[test]
fn forged_words_change_nothing() {
    let mut bench = Bench::new();
    let told = words(&bench.world, 1, life(4), 2);
    let genuine = told.iter().find(|w| matches!(w, Out::Learn(_))).map(batch_of).unwrap();
    let beat = told.iter().find(|w| matches!(w, Out::Publish(_))).map(heartbeat_of).unwrap();
    let stranger = Keypair::from_seed(&[99; 32]);
    let mut batches = vec![genuine.clone(), genuine.clone(), genuine.clone(), genuine.clone()];
    batches[0].payload.push(0);
    batches[1].incarnation = life(8);
    batches[2].digest.count += 1;
    batches[3] = batches[3].clone().sign(&stranger);
    let mut beats = vec![beat.clone(), beat.clone(), beat.clone()];
    beats[0].head = Seq(1000);
    beats[1].incarnation = life(8);
    beats[2].contact.cluster = vec!["evil:1".into()];
    for batch in batches {
        bench.direct(1, Direct::Batches(vec![batch]));
    }
    for beat in beats {
        bench.published(Published::Heartbeat(Box::new(beat)));
    }
    assert_eq!(bench.gossip.counters().forged, 7);
    assert!(bench.index.origins.is_empty());
    assert_eq!(bench.state(1), Some(MemberState::Suspect), "not heard");
    // The true ones count although they come through others.
    bench.direct(1, Direct::Batches(vec![genuine]));
    bench.published(Published::Heartbeat(Box::new(beat)));
    assert_eq!(bench.index.entries(&keypair(1).node()).len(), 1);
    assert_eq!(bench.state(1), Some(MemberState::Alive));
}

#[test]
fn a_stranger_is_not_listened_to() {
    let mut bench = Bench::new();
    for word in words(&bench.world, 7, life(1), 2) {
        bench.give(frame_of(&word));
    }
    assert!(bench.index.origins.is_empty());
    assert!(bench.gossip.members().all(|view| view.node != keypair(7).node()));
    // A certificate that is not the issuer's makes no member, whoever brings it.
    bench.greet(1, life(1));
    let node = keypair(7).node();
    let own = MemberCert::issue(&keypair(7), bench.world.cluster(), node, vec![], UnixTime(0));
    let other_cluster =
        MemberCert::issue(&bench.world.issuer, ClusterId([9; 16]), node, vec![], UnixTime(0));
    let mut edited = bench.world.cert(7);
    edited.labels.push(LABEL_ISSUER.into());
    for cert in [own.clone(), other_cluster, edited] {
        bench.direct(1, Direct::Members(vec![cert.clone()]));
        bench.published(Published::Admitted(Box::new(cert)));
    }
    assert_eq!(bench.gossip.counters().certs_refused, 6);
    let mut hello = bench.hello(7, life(1));
    hello.cert = own;
    let out = bench.direct(7, Direct::Hello(Box::new(hello)));
    assert!(out.contains(&Out::Refused { node, reason: Refused::NotMember }));
    assert!(out.contains(&Out::Close(node)));
    assert_eq!(bench.state(7), None);
}

#[test]
fn hello_names_the_field_that_differs() {
    let mut bench = Bench::new();
    let node = keypair(1).node();
    let mut refusal = |edit: fn(&mut Hello)| {
        let mut hello = bench.hello(1, life(1));
        edit(&mut hello);
        let out = bench.direct(1, Direct::Hello(Box::new(hello)));
        assert!(out.contains(&Out::Close(node)), "{out:?}");
        let reason = out.iter().find_map(|effect| match effect {
            Out::Refused { reason, .. } => Some(*reason),
            _ => None,
        });
        reason.unwrap()
    };
    let hash = refusal(|hello| hello.hash_version = 77);
    assert_eq!(hash, Refused::Mismatch(Mismatch::HashVersion { ours: 1, theirs: 77 }));
    assert!(hash.to_string().contains("hash_version"));
    let version = refusal(|hello| (hello.version, hello.version_min) = (9, 8));
    assert!(version.to_string().contains("version"));
    assert_eq!(
        refusal(|hello| hello.cluster = ClusterId([7; 16])),
        Refused::Mismatch(Mismatch::Cluster)
    );
    assert_eq!(refusal(|hello| hello.node = NodeId([1; 32])), Refused::NotItself);
    assert_eq!(refusal(|hello| hello.contact.site = "x".repeat(1000)), Refused::NotMember);
    assert_eq!(bench.state(1), Some(MemberState::Suspect));
}

#[test]
fn nothing_but_hello_counts_before_hello() {
    let mut bench = Bench::new();
    bench.give(In::Connected(keypair(1).node()));
    let snapshots = Direct::Snapshots(bench.index.cut(&[]));
    let goodbye = Direct::Goodbye { incarnation: Incarnation::default() };
    for frame in [Direct::WantSnapshot { origin: None }, snapshots, goodbye] {
        assert!(bench.direct(1, frame).is_empty());
    }
    assert_eq!(bench.gossip.counters().improper, 3);
    assert_eq!(bench.state(1), Some(MemberState::Suspect));
}

#[test]
fn a_snapshot_nobody_asked_for_is_refused() {
    let mut bench = Bench::new();
    let cert = bench.world.cert(2);
    bench.give(In::Known { cert, contact: contact(2) });
    let out = bench.greet(1, life(1));
    let asked = Direct::WantSnapshot { origin: None };
    assert!(out.contains(&Out::Direct { to: keypair(1).node(), frame: asked }));
    bench.greet(2, life(1));
    let mut other = Gossip::new(config(&bench.world, 1, life(1)), Time(1));
    let mut said = Vec::new();
    let event = BlockEvent::Stored {
        prefix: PrefixHash(1),
        tokens: 64,
        storage: StorageId(1),
        holder: Holder::Dram,
    };
    other.handle(Time(1), In::Event(event), &mut said);
    other.tick(Time(1) + Span::secs(1), &mut said);
    let mut index = Index::default();
    said.iter().for_each(|word| {
        if let Out::Learn(batch) = word {
            assert_eq!(index.learn(batch), None);
        }
    });
    bench.direct(2, Direct::Snapshots(index.cut(&[])));
    assert_eq!(bench.gossip.counters().snapshots_refused, 1);
    assert!(bench.index.origins.is_empty());
    bench.direct(1, Direct::Snapshots(index.cut(&[])));
    assert_eq!(bench.index.entries(&keypair(1).node()).len(), 1);
}

#[test]
fn a_donor_that_is_lost_before_it_answers_is_replaced() {
    let mut bench = Bench::new();
    let cert = bench.world.cert(2);
    bench.give(In::Known { cert, contact: contact(2) });
    bench.greet(1, life(1));
    bench.greet(2, life(1));
    bench.give(In::Disconnected(keypair(1).node()));
    let mut out = Vec::new();
    bench.now += Span::millis(150);
    bench.gossip.tick(bench.now, &mut out);
    let asked = Direct::WantSnapshot { origin: None };
    assert!(out.contains(&Out::Direct { to: keypair(2).node(), frame: asked }));
    assert!(!bench.gossip.has_index());
}

#[test]
fn a_hello_that_got_lost_is_said_again() {
    let mut bench = Bench::new();
    let to = keypair(1).node();
    let hello = |out: &[Out]| {
        let said =
            |o: &&Out| matches!(o, Out::Direct { to: t, frame: Direct::Hello(_) } if *t == to);
        out.iter().filter(said).count()
    };
    let out = bench.give(In::Connected(to));
    assert_eq!(hello(&out), 1);
    let mut out = Vec::new();
    for _ in 0..45 {
        bench.now += Span::millis(100);
        bench.gossip.tick(bench.now, &mut out);
    }
    assert_eq!(hello(&out), 2);
    // The other side had lost ours: it says hello although it is known here, and is answered.
    let theirs = Box::new(bench.hello(1, life(1)));
    assert_eq!(hello(&bench.direct(1, Direct::Hello(theirs.clone()))), 0);
    bench.now += Span::secs(2);
    assert_eq!(hello(&bench.direct(1, Direct::Hello(theirs.clone()))), 1);
    assert_eq!(hello(&bench.direct(1, Direct::Hello(theirs))), 0, "no ping-pong");
}

#[test]
fn twins_are_told_and_a_past_life_is_not_one() {
    let ours = life(3);
    let theirs = Incarnation { counter: 3, nonce: 1234 };
    let mut bench = Bench::new();
    let told = words(&bench.world, 0, theirs, 2);
    let twin = Out::Twin { ours, theirs };
    let beat = told.iter().find(|w| matches!(w, Out::Publish(_))).unwrap();
    assert!(bench.give(frame_of(beat)).contains(&twin));
    let mut bench = Bench::new();
    let batch = told.iter().find(|w| matches!(w, Out::Learn(_))).unwrap();
    assert!(bench.give(frame_of(batch)).contains(&twin));

    // Late words of an earlier life, all at once: no twin, no jump. Of a later one: one jump.
    let mut bench = Bench::new();
    for word in words(&bench.world, 0, life(2), 6) {
        assert!(bench.give(frame_of(&word)).is_empty());
    }
    let mut jumps = Vec::new();
    for word in words(&bench.world, 0, life(8), 6) {
        jumps.extend(bench.give(frame_of(&word)));
    }
    assert_eq!(jumps, [Out::JumpPast(8)]);

    // Another life that goes on beating is a twin, whatever its counter.
    for counter in [2, 8] {
        let mut bench = Bench::new();
        let mut out = Vec::new();
        for word in words(&bench.world, 0, life(counter), 6) {
            bench.now += Span::millis(300);
            out.extend(bench.give(frame_of(&word)));
        }
        let twins: Vec<&Out> = out.iter().filter(|o| matches!(o, Out::Twin { .. })).collect();
        assert_eq!(twins, [&Out::Twin { ours, theirs: life(counter) }]);
    }
    // A stranger cannot make a node stop.
    let mut bench = Bench::new();
    let mut forged = batch_of(batch);
    forged = forged.sign(&keypair(1));
    assert!(bench.direct(1, Direct::Batches(vec![forged])).is_empty());
}

#[test]
fn certificates_spread_renew_and_run_out() {
    let mut bench = Bench::new();
    bench.give(In::WallClock(UnixTime(100)));
    bench.greet(1, life(1));
    let cert = bench.world.cert(2);
    let out = bench.give(In::Admitted(cert.clone()));
    assert!(out.contains(&Out::Allow(cert.clone())));
    assert!(out.contains(&Out::Publish(Published::Admitted(Box::new(cert.clone())))));
    let told = Out::Direct { to: keypair(1).node(), frame: Direct::Members(vec![cert.clone()]) };
    assert!(out.contains(&told));
    assert!(bench.give(In::Admitted(cert.clone())).is_empty(), "told once");
    let node = keypair(2).node();
    let renewed = MemberCert::issue(
        &bench.world.issuer,
        bench.world.cluster(),
        node,
        vec![],
        UnixTime(CERT_SECONDS / 2),
    );
    let out = bench.direct(1, Direct::Members(vec![renewed.clone()]));
    assert!(out.contains(&Out::Allow(renewed)));
    assert!(bench.direct(1, Direct::Members(vec![cert])).is_empty(), "older one: no way back");
    let late = UnixTime(CERT_SECONDS + 1);
    assert!(bench.give(In::WallClock(late)).is_empty(), "a jump is not believed at once");
    bench.now += Span::secs(700);
    let out = bench.give(In::WallClock(late));
    assert!(out.contains(&Out::Disallow(keypair(1).node())) && !out.contains(&Out::Disallow(node)));
    assert!(out.contains(&Out::Close(keypair(1).node())));
    assert_eq!((bench.state(1), bench.state(2)), (None, Some(MemberState::Suspect)));
}

#[test]
fn members_are_bounded_and_the_long_dead_make_room() {
    let mut bench = Bench::new();
    let cluster = bench.world.cluster();
    let certs: Vec<MemberCert> = (0..MEMBERS_MAX as u64 + 50)
        .map(|n| {
            let mut seed = [7; 32];
            seed[..8].copy_from_slice(&n.to_le_bytes());
            let node = Keypair::from_seed(&seed).node();
            MemberCert::issue(&bench.world.issuer, cluster, node, vec![], UnixTime(0))
        })
        .collect();
    let (first, rest) = certs.split_at(MEMBERS_MAX + 20);
    for cert in first {
        bench.give(In::Known { cert: cert.clone(), contact: Contact::default() });
    }
    assert_eq!(bench.gossip.members().count(), MEMBERS_MAX + 1, "with this node");
    assert_eq!(bench.gossip.counters().certs_refused, 21);
    // Let the silent ones die; node 1 is heard.
    bench.greet(1, life(1));
    for _ in 0..50 {
        bench.now += Span::millis(100);
        bench.direct(1, Direct::Probe { nonce: 1 });
        bench.gossip.tick(bench.now, &mut Vec::new());
    }
    for cert in rest {
        let out = bench.give(In::Known { cert: cert.clone(), contact: Contact::default() });
        assert!(out.contains(&Out::Allow(cert.clone())));
        assert!(out.iter().any(|effect| matches!(effect, Out::Disallow(_))));
    }
    assert_eq!(bench.gossip.members().count(), MEMBERS_MAX + 1);
    assert_eq!(bench.state(1), Some(MemberState::Alive), "the living stay");
}

#[test]
fn the_own_load_is_told_at_once_and_draining_is_published() {
    let mut bench = Bench::new();
    let report =
        |draining| In::Report { engines: vec![], owed_bytes: 5, blocks: [1, 2, 3], draining };
    let out = bench.give(report(false));
    let [Out::Member(view)] = out.as_slice() else { panic!("{out:?}") };
    assert_eq!((view.state, view.owed_bytes, view.blocks), (MemberState::Alive, 5, [1, 2, 3]));
    let out = bench.give(report(true));
    let beat = out.iter().find(|effect| matches!(effect, Out::Publish(_))).map(heartbeat_of);
    let beat = beat.unwrap();
    assert!(beat.draining && beat.signature.verify(&beat.node, &beat.signed_bytes()));
}
