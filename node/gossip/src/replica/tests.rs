use super::*;
use crate::own::OwnLog;
use proptest::prelude::*;
use protocol::block::StorageId;
use protocol::event::{BlockEvent, Contact, Holder};
use protocol::hash::PrefixHash;
use protocol::id::Incarnation;
use protocol::sign::Keypair;

const KEEP: Keep = Keep { count: 1000, bytes: 1 << 20 };
const LIFE: Incarnation = Incarnation { counter: 1, nonce: 7 };

/// `n` batches of one entry each, and the origin's snapshot after each.
fn history(n: u64) -> (Vec<EventBatch>, Vec<Snapshot>) {
    let mut own = OwnLog::new(Keypair::from_seed(&[3; 32]), LIFE, KEEP);
    let mut cuts = vec![own.cut()];
    let mut batches = Vec::new();
    for name in 1..=n {
        own.event(&BlockEvent::Stored {
            prefix: PrefixHash(name.into()),
            tokens: 64,
            storage: StorageId(1),
            holder: Holder::Dram,
        });
        batches.extend(own.flush());
        cuts.push(own.cut());
    }
    (batches, cuts)
}

fn heartbeat(cut: &Snapshot) -> Heartbeat {
    Heartbeat {
        node: cut.origin,
        incarnation: cut.incarnation,
        beat: 1,
        head: cut.watermark,
        digest: cut.digest,
        contact: Contact::default(),
        engines: vec![],
        owed_bytes: 0,
        draining: false,
        blocks: [0; 3],
        signature: Keypair::from_seed(&[3; 32]).sign(b""),
    }
}

fn seqs(offered: &Offered) -> Vec<u64> {
    offered.ready.iter().map(|batch| batch.seq.0).collect()
}

fn done(installed: Installed) -> (Seq, Vec<u64>) {
    let Installed::Done(snapshot, offered) = installed else { panic!("{installed:?}") };
    (snapshot.watermark, seqs(&offered))
}

proptest! {
    #[test]
    fn any_order_with_repeats_gives_each_batch_once_in_order(
        order in prop::collection::vec(0..12usize, 0..60),
    ) {
        let (batches, cuts) = history(12);
        let mut replica = Replica::new(KEEP);
        let mut ready = Vec::new();
        for index in order.into_iter().chain(0..12) {
            ready.extend(seqs(&replica.offer(batches[index].clone())));
        }
        prop_assert!(ready.iter().copied().eq(1..=12));
        prop_assert_eq!((replica.applied, replica.link), (Seq(12), cuts[12].link));
        prop_assert!(!replica.has_gap() && replica.pending_bytes == 0);
    }

    #[test]
    fn a_snapshot_at_any_place_and_batches_in_any_order_meet(
        at in 0..=12usize,
        before in prop::collection::vec(0..12usize, 0..20),
    ) {
        let (batches, cuts) = history(12);
        let mut replica = Replica::new(KEEP);
        let mut place = 0;
        let mut learned = |seqs: Vec<u64>| for seq in seqs {
            assert_eq!(seq, place + 1, "in order, no gap, none twice");
            place = seq;
        };
        for index in before {
            learned(seqs(&replica.offer(batches[index].clone())));
        }
        let reached = replica.applied;
        match replica.install(cuts[at].clone(), true) {
            Installed::Done(snapshot, offered) => {
                prop_assert!(snapshot.watermark > reached, "never back");
                place = snapshot.watermark.0;
                let mut learned = |seqs: Vec<u64>| for seq in seqs {
                    assert_eq!(seq, place + 1);
                    place = seq;
                };
                learned(seqs(&offered));
                batches.iter().for_each(|batch| learned(seqs(&replica.offer(batch.clone()))));
            }
            other => {
                prop_assert_eq!(other, Installed::Known);
                batches.iter().for_each(|batch| learned(seqs(&replica.offer(batch.clone()))));
            }
        }
        prop_assert_eq!((replica.applied, replica.link), (Seq(12), cuts[12].link));
    }
}

#[test]
fn the_first_hole_is_what_is_missing() {
    let (batches, _) = history(9);
    let mut replica = Replica::new(KEEP);
    for seq in [1, 5, 6, 9] {
        replica.offer(batches[seq - 1].clone());
    }
    assert_eq!((replica.hole(), replica.behind()), (Some((Seq(2), Seq(4))), 8));
    assert!(replica.has(Seq(5)) && !replica.has(Seq(7)));
}

#[test]
fn what_waits_is_bounded_and_the_next_is_kept() {
    let (batches, _) = history(PENDING_COUNT as u64 + 20);
    let mut replica = Replica::new(KEEP);
    let dropped: u64 = batches.iter().skip(1).map(|b| replica.offer(b.clone()).dropped).sum();
    assert_eq!(dropped, 19);
    assert_eq!(replica.pending.len(), PENDING_COUNT);
    assert_eq!(replica.offer(batches[0].clone()).ready.len(), PENDING_COUNT + 1);
    assert!(replica.has_gap(), "the dropped ones are still known to be missing");
}

#[test]
fn a_broken_chain_needs_a_set_and_heals_with_the_origins_own() {
    let (batches, cuts) = history(6);
    let mut replica = Replica::new(KEEP);
    replica.offer(batches[0].clone());
    let mut odd = batches[1].clone();
    odd.previous = [9; 32];
    assert!(replica.offer(odd).broke);
    assert!(replica.needs_set() && replica.has_gap());
    replica.offer(batches[4].clone());
    replica.offer(batches[5].clone());
    assert_eq!(done(replica.install(cuts[4].clone(), true)), (Seq(4), vec![5, 6]));
    assert!(!replica.has_gap());
}

#[test]
fn a_donors_invented_place_is_found_out() {
    let (batches, cuts) = history(6);
    let lie = |edit: fn(&mut Snapshot)| {
        let mut snapshot = cuts[3].clone();
        edit(&mut snapshot);
        let mut replica = Replica::new(KEEP);
        done(replica.install(snapshot, false));
        replica
    };
    // A wrong link: the next batch does not continue it.
    let mut replica = lie(|s| s.link = [1; 32]);
    assert!(replica.offer(batches[3].clone()).broke && replica.needs_set());
    // A wrong set: the heartbeat at that place says otherwise.
    let mut replica = lie(|s| s.digest.mix ^= 1);
    assert!(replica.heartbeat(&heartbeat(&cuts[3])) && replica.needs_set());
    // A place far ahead: heartbeats stay below it. One late heartbeat proves nothing.
    let mut replica = lie(|s| s.watermark = Seq(1000));
    assert!(!replica.heartbeat(&heartbeat(&cuts[3])) && !replica.needs_set());
    assert!(!replica.heartbeat(&heartbeat(&cuts[4])));
    assert!(replica.heartbeat(&heartbeat(&cuts[5])) && replica.needs_set());
    // The origin's own set mends it although it is "older".
    assert_eq!(done(replica.install(cuts[5].clone(), true)), (Seq(5), vec![]));
    assert_eq!(seqs(&replica.offer(batches[5].clone())), [6]);
}

#[test]
fn a_set_that_lags_is_taken_only_with_what_came_after_it() {
    let (batches, cuts) = history(6);
    let mut replica = Replica::new(KEEP);
    batches.iter().for_each(|batch| {
        replica.offer(batch.clone());
    });
    assert_eq!(replica.install(cuts[4].clone(), false), Installed::Known);
    replica.distrust();
    let mut forged = cuts[4].clone();
    forged.link = [1; 32];
    assert_eq!(replica.install(forged, false), Installed::Refused);
    assert_eq!(done(replica.install(cuts[4].clone(), false)), (Seq(4), vec![5, 6]));
    assert!(!replica.has_gap() && replica.applied == Seq(6));
    replica.distrust();
    assert_eq!(done(replica.install(cuts[6].clone(), false)), (Seq(6), vec![]));
}

#[test]
fn parts_are_put_together_and_counted() {
    let (_, cuts) = history(3);
    let whole = cuts[3].clone();
    let part = |name: u128| Snapshot {
        runs: vec![EventRun::Stored {
            storage: StorageId(1),
            holder: Holder::Dram,
            first: 64,
            hashes: vec![PrefixHash(name)],
        }],
        ..whole.clone()
    };
    let mut replica = Replica::new(KEEP);
    assert_eq!(replica.install(part(1), false), Installed::Part);
    assert_eq!(replica.install(part(2), false), Installed::Part);
    assert_eq!(done(replica.install(part(3), false)), (Seq(3), vec![]));
    // More entries than the digest counts are no set.
    let mut replica = Replica::new(KEEP);
    let mut fat = whole.clone();
    fat.digest.count = 2;
    assert_eq!(replica.install(fat, false), Installed::Refused);
    let mut huge = whole;
    huge.digest.count = SNAPSHOT_ENTRIES + 1;
    assert_eq!(replica.install(huge, false), Installed::Refused);
}
