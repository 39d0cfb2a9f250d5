use super::*;
use crate::Params;
use crate::machine::In;
use crate::machine::tests::{Entry, Source, digest, held, learn, prompts, run, truth};
use crate::testing::*;
use proptest::prelude::*;
use protocol::event::SetDigest;
use std::collections::BTreeSet;

/// Turns changes into such as an origin tells: what was absent comes, what was there goes.
fn real(set: &BTreeSet<Entry>, change: &EventRun) -> Vec<EventRun> {
    let mut after = Source { set: set.clone(), ..Source::default() };
    after.apply(change);
    let one = |entry: &Entry, stored: bool| {
        let (holder, storage, first, hashes) = (entry.0, entry.1, entry.2, vec![entry.3]);
        if stored {
            EventRun::Stored { storage, holder, first, hashes }
        } else {
            EventRun::Removed { storage, holder, first, hashes }
        }
    };
    let gone = set.difference(&after.set).map(|entry| one(entry, false));
    let new = after.set.difference(set).map(|entry| one(entry, true));
    gone.chain(new).collect()
}

/// A donor that heard everything, and a router that lost some of it.
struct Pair {
    source: Source,
    donor: World,
    sick: World,
    batches: Vec<EventBatch>,
}

impl Pair {
    fn new() -> Self {
        let world = || World::new(2, Params::default());
        let (source, batches) = (Source::default(), Vec::new());
        Self { source, donor: world(), sick: world(), batches }
    }

    /// Both hear of a change; of what is `lost` the sick one hears nothing. What it then asks.
    fn tell(&mut self, change: &EventRun, lost: bool) -> Vec<Out> {
        let runs = real(&self.source.set, change);
        let batch = self.source.batch(1, &runs);
        self.batches.push(batch.clone());
        assert!(learn(&mut self.donor, &batch).is_empty());
        let payload = wire::encode(&Vec::<EventRun>::new()).unwrap();
        let heard = if lost { EventBatch { payload, ..batch } } else { batch };
        learn(&mut self.sick, &heard)
    }

    fn after(&self, seq: Seq) -> Vec<EventBatch> {
        self.batches.iter().filter(|batch| batch.seq > seq).cloned().collect()
    }

    /// What the sick one would ask for now.
    fn wanted(&self) -> BucketsWanted {
        let origin = &self.sick.router.origins[&node(1)];
        BucketsWanted {
            origin: node(1),
            incarnation: FIRST,
            seq: origin.seq,
            digests: origin.buckets().to_vec(),
        }
    }

    fn cut(&mut self, wanted: &BucketsWanted) -> Option<Box<Buckets>> {
        let (wanted, later) = (Box::new(wanted.clone()), self.after(wanted.seq));
        match self.donor.handle(In::CutBuckets { to: node(9), wanted, later }).pop() {
            Some(Out::BucketsCut { to, buckets }) if to == node(9) => buckets,
            other => panic!("{other:?}"),
        }
    }

    fn mend(&mut self, buckets: Box<Buckets>) -> Vec<Out> {
        let later = self.after(buckets.watermark);
        self.sick.handle(In::LearnBuckets { buckets, later })
    }

    fn is_right(&self) -> bool {
        let found = self.sick.router.origin(&node(1)).unwrap().2;
        held(&self.sick, 1, &prompts()) == truth(&self.source.set)
            && found == digest(1, &self.source.set)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A repair that is overtaken by news on both ways gives exactly the origin's set, and carries
    /// no bucket that was right.
    #[test]
    fn a_repair_in_flight_meets_news(
        before in prop::collection::vec((run(), any::<bool>()), 1..12),
        asking in prop::collection::vec(run(), 0..4),
        answering in prop::collection::vec(run(), 0..4),
    ) {
        let mut pair = Pair::new();
        for (change, lost) in &before {
            pair.tell(change, *lost);
        }
        let wanted = pair.wanted();
        let ours = pair.donor.router.origins[&node(1)].buckets();
        let differing = ours.differing(&BucketDigests::from_slice(&wanted.digests).unwrap());
        asking.iter().for_each(|change| { pair.tell(change, false); });
        let buckets = pair.cut(&wanted).unwrap();
        prop_assert_eq!(&buckets.buckets, &differing);
        answering.iter().for_each(|change| { pair.tell(change, false); });
        prop_assert!(pair.mend(buckets).is_empty(), "the digest agrees");
        prop_assert!(pair.is_right());
        prop_assert_eq!(pair.sick.router.stats().pairs, pair.donor.router.stats().pairs);
    }
}

fn lost_one() -> (Pair, Box<Buckets>) {
    let mut pair = Pair::new();
    pair.tell(&stored(ENGINE, &prompts()[0], 0, 1_280), false);
    let out = pair.tell(&stored(Holder::Dram, &prompts()[0], 0, 64), true);
    let [Out::DigestMismatch { seq: Seq(2), said, found, buckets, .. }] = out.as_slice() else {
        panic!("{out:?}")
    };
    assert_eq!((said.count, found.count), (21, 20));
    assert_eq!(buckets.to_vec(), pair.wanted().digests);
    let wanted = pair.wanted();
    let buckets = pair.cut(&wanted).unwrap();
    (pair, buckets)
}

#[test]
fn one_lost_entry_costs_one_bucket() {
    let (mut pair, buckets) = lost_one();
    assert_eq!(buckets.buckets.len(), 1);
    assert!(content(&buckets.runs, &Picked::new(&buckets.buckets)).len() < 6);
    assert!(pair.mend(buckets).is_empty());
    assert!(pair.is_right());
    assert_eq!(pair.sick.router.stats().mended, 1);
}

#[test]
fn a_liars_buckets_are_noticed_at_once() {
    let (mut pair, mut buckets) = lost_one();
    buckets.runs.push(EventRun::Stored {
        storage: STORAGE,
        holder: Holder::Nvme,
        first: 64,
        hashes: vec![PrefixHash(u128::from(buckets.buckets[0]) | 1 << 100)],
    });
    let out = pair.mend(buckets.clone());
    assert!(matches!(out.as_slice(), [Out::DigestMismatch { .. }]), "no five seconds later");
    // What lies outside the buckets named is not taken.
    let other = buckets.buckets[0].wrapping_add(1);
    buckets.runs.pop();
    buckets.runs.push(EventRun::Stored {
        storage: STORAGE,
        holder: Holder::Nvme,
        first: 64,
        hashes: vec![PrefixHash(u128::from(other) | 1 << 100)],
    });
    assert!(pair.mend(buckets).is_empty());
    assert!(pair.is_right());
}

#[test]
fn who_cannot_help_says_so() {
    let (mut pair, _) = lost_one();
    let wanted = pair.wanted();
    assert!(pair.cut(&BucketsWanted { digests: vec![0; 255], ..wanted.clone() }).is_none());
    assert!(pair.cut(&BucketsWanted { origin: node(7), ..wanted.clone() }).is_none());
    assert!(pair.cut(&BucketsWanted { seq: Seq(9), ..wanted.clone() }).is_none(), "behind");
    std::mem::swap(&mut pair.donor, &mut pair.sick);
    assert!(pair.cut(&wanted).is_none(), "knows itself to be wrong");
}

#[test]
fn buckets_of_another_life_or_place_are_not_taken() {
    let (mut pair, buckets) = lost_one();
    let before = held(&pair.sick, 1, &prompts());
    let incarnation = protocol::id::Incarnation { counter: 9, nonce: 9 };
    for wrong in [
        Buckets { incarnation, ..(*buckets).clone() },
        Buckets { watermark: Seq(7), ..(*buckets).clone() },
        Buckets { origin: node(0), ..(*buckets).clone() },
    ] {
        pair.sick.handle(In::LearnBuckets { buckets: Box::new(wrong), later: Vec::new() });
    }
    assert_eq!(held(&pair.sick, 1, &prompts()), before);
    assert_eq!(pair.sick.router.stats().stale, 3);
}

#[test]
fn a_cleared_tier_is_mended_whole() {
    let mut pair = Pair::new();
    pair.tell(&stored(ENGINE, &prompts()[1], 0, 1_280), false);
    pair.tell(&stored(Holder::Dram, &prompts()[2], 0, 1_280), true);
    let wanted = pair.wanted();
    let batch = {
        let clear = EventRun::Cleared { holder: ENGINE };
        pair.source.batch(1, &[clear])
    };
    pair.batches.push(batch.clone());
    learn(&mut pair.donor, &batch);
    learn(&mut pair.sick, &batch);
    let buckets = pair.cut(&wanted).unwrap();
    assert_eq!(buckets.buckets.len(), BUCKETS);
    assert!(pair.mend(buckets).is_empty());
    assert!(pair.is_right());
}

#[test]
fn bad_luck_is_off_by_default_and_harmless_when_on() {
    let settle = |buggify: Option<u64>| {
        let config = crate::Config { buggify, ..crate::Config::new(node(0), FIRST) };
        let (mut router, ..) = Router::new(config);
        let mut source = Source::default();
        let mut out = Vec::new();
        for n in 0..2_000u32 {
            let run = stored(ENGINE, &prompts()[(n % 4) as usize], 0, 64 * (1 + n % 30));
            let batch = source.batch(1, &[run]);
            protocol::machine::Machine::handle(
                &mut router,
                ms(1),
                In::Learn(Box::new(batch)),
                &mut out,
            );
        }
        (out.len(), router.origin(&node(1)).map(|origin| origin.2), digest(1, &source.set))
    };
    let (told, found, said): (usize, Option<SetDigest>, SetDigest) = settle(None);
    assert_eq!((told, found), (0, Some(said)));
    let (told, found, said) = settle(Some(5));
    assert!((2..50).contains(&told), "{told}");
    assert_eq!(found, Some(said));
}
