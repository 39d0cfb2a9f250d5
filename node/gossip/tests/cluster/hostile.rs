//! What a member gains by lying, flooding or a wrong clock.

use crate::frames::{Bench, frame_of, heartbeat_of, life, words};
use crate::world::{contact, keypair};
use gossip::{In, Out};
use protocol::event::{
    BUCKETS, BucketsWanted, Heartbeat, MemberState, Seq, SetDigest, Snapshot, Suspicion,
};
use protocol::machine::Machine;
use protocol::time::Span;
use protocol::trust::{CERT_SECONDS, UnixTime};
use protocol::wire::gossip::{Direct, Published};

/// A machine that greeted nodes 1 to 4 and heard a heartbeat of each.
fn bench() -> (Bench, Vec<Heartbeat>) {
    let mut bench = Bench::new();
    let mut beats = Vec::new();
    for n in 1..5 {
        let cert = bench.world.cert(n);
        bench.give(In::Known { cert, contact: contact(n) });
        bench.greet(n, life(1));
        let told = words(&bench.world, n, life(1), 3);
        let all: Vec<&Out> = told.iter().filter(|word| matches!(word, Out::Publish(_))).collect();
        bench.give(frame_of(all[1]));
        beats.push(heartbeat_of(all[1]));
    }
    (bench, beats)
}

fn suspicion(n: usize, beat: u64) -> Suspicion {
    Suspicion { subject: keypair(n).node(), incarnation: life(1), beat }
}

fn heard(out: &[Out]) -> usize {
    out.iter().filter(|o| matches!(o, Out::Direct { frame: Direct::Heard(_), .. })).count()
}

#[test]
fn a_lone_accuser_harms_nobody_and_is_contradicted() {
    let (mut bench, beats) = bench();
    let before = beats[1].beat - 1;
    let out = bench.direct(1, Direct::Suspects(vec![suspicion(2, before), suspicion(3, before)]));
    assert_eq!(heard(&out), 2, "{out:?}");
    let out = bench.direct(1, Direct::Suspects(vec![suspicion(2, u64::MAX)]));
    assert!(out.is_empty(), "{out:?}");
    // Again and again, of somebody half a limit silent.
    for _ in 0..9 {
        bench.now += Span::millis(140);
        bench.direct(1, Direct::Suspects(vec![suspicion(2, u64::MAX)]));
        bench.direct(3, Direct::Probe { nonce: 1 });
        bench.direct(4, Direct::Probe { nonce: 1 });
        bench.gossip.tick(bench.now, &mut Vec::new());
    }
    assert_eq!(bench.state(2), Some(MemberState::Alive));
    // Another who has not heard it either: suspect sooner, and alive at its first word.
    bench.direct(3, Direct::Suspects(vec![suspicion(2, u64::MAX)]));
    assert_eq!(bench.state(2), Some(MemberState::Suspect));
    bench.direct(2, Direct::Probe { nonce: 1 });
    assert_eq!(bench.state(2), Some(MemberState::Alive));
    let many = vec![suspicion(2, 0); 1000];
    let before = bench.gossip.counters().improper;
    bench.direct(1, Direct::Suspects(many));
    assert_eq!(bench.gossip.counters().improper, before + 1);
}

#[test]
fn who_is_suspected_answers_at_once_and_not_without_end() {
    let (mut bench, _) = bench();
    let mine = Suspicion { subject: keypair(0).node(), incarnation: life(3), beat: 0 };
    let published = |out: &[Out]| out.iter().filter(|o| matches!(o, Out::Publish(_))).count();
    let out = bench.direct(1, Direct::Suspects(vec![mine]));
    assert_eq!((published(&out), heard(&out)), (1, 1));
    let mut all = Vec::new();
    for _ in 0..400 {
        all.extend(bench.direct(1, Direct::Suspects(vec![mine])));
    }
    assert!(published(&all) <= 4, "400 ms: {}", published(&all));
    let old = Suspicion { incarnation: life(1), ..mine };
    assert!(bench.direct(1, Direct::Suspects(vec![old])).is_empty(), "that life is over");
}

#[test]
fn proofs_of_life_need_a_signature() {
    let (mut bench, beats) = bench();
    let mut forged = beats[1].clone();
    forged.beat += 10;
    bench.direct(1, Direct::Heard(Box::new(forged)));
    assert_eq!(bench.gossip.counters().forged, 1);
    let old = beats[1].clone();
    let duplicates = bench.gossip.counters().duplicates;
    bench.direct(1, Direct::Heard(Box::new(old)));
    assert_eq!(bench.gossip.counters().duplicates, duplicates + 1);
}

#[test]
fn nobody_uses_up_the_probes_of_others() {
    let (mut bench, _) = bench();
    let mut sent = 0;
    for nonce in 0..1000 {
        let out = bench.direct(1, Direct::ProbeFor { subject: keypair(2).node(), nonce });
        sent += out.len();
    }
    assert!(sent <= 64, "{sent}");
    let out = bench.direct(3, Direct::ProbeFor { subject: keypair(2).node(), nonce: 1 });
    assert_eq!(out.len(), 1);
    // Whose answer does not come from whom it was asked does not count.
    let Some(Out::Direct { frame: Direct::Probe { nonce }, .. }) = out.first() else { panic!() };
    assert!(bench.direct(4, Direct::Ack { nonce: *nonce }).is_empty());
    assert!(!bench.direct(2, Direct::Ack { nonce: *nonce }).is_empty());
}

#[test]
fn buckets_that_nobody_asked_for_and_requests_of_no_form_are_refused() {
    let (mut bench, _) = bench();
    let id = keypair(2).node();
    let part = protocol::event::Buckets {
        origin: id,
        incarnation: life(1),
        watermark: Seq(1),
        link: [0; 32],
        digest: SetDigest::default(),
        buckets: vec![1],
        part: 0,
        parts: 1,
        runs: Vec::new(),
    };
    assert!(bench.direct(1, Direct::Buckets(Box::new(part))).is_empty());
    assert_eq!(bench.gossip.counters().buckets_refused, 1);
    let wanted = |digests| {
        let (origin, incarnation) = (keypair(0).node(), life(3));
        Direct::WantBuckets(Box::new(BucketsWanted { origin, incarnation, seq: Seq(0), digests }))
    };
    let improper = bench.gossip.counters().improper;
    for length in [0, BUCKETS - 1, BUCKETS + 1] {
        assert!(bench.direct(1, wanted(vec![0; length])).is_empty());
    }
    assert_eq!(bench.gossip.counters().improper, improper + 3);
    let answers = (0..50).map(|_| bench.direct(1, wanted(vec![0; BUCKETS])).len()).sum::<usize>();
    assert_eq!(answers, 1, "no more than two a second for one peer");
}

#[test]
fn a_donor_of_a_large_set_sends_at_its_rate() {
    let (mut bench, _) = bench();
    let asked = bench.direct(2, Direct::WantSnapshot { origin: None });
    assert!(asked.iter().any(|o| matches!(o, Out::Direct { frame: Direct::Snapshots(_), .. })));
    // Node 3's set is known to have a batch, so the index is asked for it: a million entries.
    for word in words(&bench.world, 3, life(1), 2) {
        bench.give(frame_of(&word));
    }
    bench.now += Span::secs(1);
    let asked = bench.direct(2, Direct::WantSnapshot { origin: Some(keypair(3).node()) });
    let cut = asked.iter().find(|o| matches!(o, Out::CutSnapshot { .. }));
    assert!(cut.is_some(), "{asked:?}");
    let hashes = (0..1u128 << 20).map(protocol::hash::PrefixHash).collect();
    let (storage, holder) = (protocol::block::StorageId(1), protocol::event::Holder::Dram);
    let snapshot = Snapshot {
        origin: keypair(3).node(),
        incarnation: life(1),
        watermark: Seq(2),
        link: [0; 32],
        digest: SetDigest { count: 1 << 20, mix: 0 },
        runs: vec![protocol::event::EventRun::Stored { storage, holder, first: 64, hashes }],
    };
    let to = keypair(2).node();
    let mut out = bench.give(In::SnapshotCut { to, snapshots: vec![snapshot] });
    let frames = |out: &[Out]| {
        let set = |o: &&Out| matches!(o, Out::Direct { frame: Direct::Snapshots(_), .. });
        out.iter().filter(set).count()
    };
    let mut each = vec![frames(&out)];
    for _ in 0..100 {
        out.clear();
        bench.now += Span::millis(10);
        bench.gossip.tick(bench.now, &mut out);
        each.push(frames(&out));
    }
    // 32 MiB/s, frames of 1.1 MB: 16 frames take half a second, never more than four at once.
    assert_eq!(each.iter().sum::<usize>(), 16);
    assert!(each.iter().all(|n| *n <= 4), "{each:?}");
    assert!(each.iter().skip(40).sum::<usize>() > 0, "{each:?}");
}

#[test]
fn a_clock_that_jumps_and_comes_back_costs_no_member() {
    let (mut bench, _) = bench();
    let base = 1_000_000;
    bench.give(In::WallClock(UnixTime(base)));
    for step in 0..20 {
        bench.now += Span::secs(20);
        let jump = if step < 15 { CERT_SECONDS * 3 } else { 0 };
        let out = bench.give(In::WallClock(UnixTime(base + 20 * (step + 1) + jump)));
        assert!(!out.iter().any(|o| matches!(o, Out::Disallow(_) | Out::Forget { .. })));
    }
    let published = Published::Admitted(Box::new(bench.world.cert(9)));
    bench.published(published);
    assert!(bench.state(9).is_none(), "what ran out is still refused");
}
