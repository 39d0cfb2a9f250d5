use super::*;
use crate::testing::*;
use proptest::prelude::*;
use protocol::block::StorageId;
use protocol::event::Holder;
use protocol::hash::PrefixHash;
use protocol::id::EngineId;
use std::collections::BTreeSet;

pub(crate) type Entry = (Holder, StorageId, u32, PrefixHash);

/// An origin that keeps its own set, as gossip does.
#[derive(Clone, Default, Debug)]
pub(crate) struct Source {
    pub(crate) set: BTreeSet<Entry>,
    pub(crate) seq: u64,
    pub(crate) link: [u8; 32],
}

fn entries(run: &EventRun) -> Vec<Entry> {
    let (EventRun::Stored { storage, holder, first, hashes }
    | EventRun::Removed { storage, holder, first, hashes }) = run
    else {
        return Vec::new();
    };
    (0..).zip(hashes).map(|(n, hash)| (*holder, *storage, first + n * 64, *hash)).collect()
}

pub(crate) fn digest(n: u8, set: &BTreeSet<Entry>) -> SetDigest {
    let mut digest = SetDigest::default();
    for (holder, storage, _, hash) in set {
        digest.add(&node(n), *holder, *storage, *hash);
    }
    digest
}

impl Source {
    pub(crate) fn apply(&mut self, run: &EventRun) {
        match run {
            EventRun::Stored { .. } => self.set.extend(entries(run)),
            EventRun::Removed { .. } => {
                for (holder, storage, _, hash) in entries(run) {
                    self.set.retain(|e| (e.0, e.1, e.3) != (holder, storage, hash));
                }
            }
            EventRun::Cleared { holder } => self.set.retain(|entry| entry.0 != *holder),
            EventRun::Computing { .. } => {}
        }
    }

    /// The next batch of node `n`, with the true digest.
    pub(crate) fn batch(&mut self, n: u8, runs: &[EventRun]) -> EventBatch {
        runs.iter().for_each(|run| self.apply(run));
        self.seq += 1;
        let mut batch = batch(n, self.seq, runs, digest(n, &self.set));
        batch.previous = self.link;
        self.link = batch.link();
        batch
    }
}

pub(crate) fn learn(world: &mut World, batch: &EventBatch) -> Vec<Out> {
    world.handle(In::Learn(Box::new(batch.clone())))
}

/// What the index says that node `n` holds of these prompts' granules.
pub(crate) fn held(
    world: &World,
    n: u8,
    prompts: &[Vec<PrefixHash>],
) -> BTreeSet<(Holder, PrefixHash)> {
    let names: BTreeSet<PrefixHash> =
        prompts.iter().flat_map(|p| crate::index::granules(p)).collect();
    let lanes = |hash: &PrefixHash| {
        let hash = *hash;
        world.index.holders(hash).into_iter().map(move |lane| (lane, hash))
    };
    names
        .iter()
        .flat_map(lanes)
        .filter(|(lane, _)| lane.node == node(n))
        .map(|(lane, hash)| (lane.holder, hash))
        .collect()
}

pub(crate) fn truth(set: &BTreeSet<Entry>) -> BTreeSet<(Holder, PrefixHash)> {
    set.iter().map(|(holder, _, _, hash)| (*holder, *hash)).collect()
}

pub(crate) fn cut(world: &mut World, origin: Option<NodeId>) -> Vec<Snapshot> {
    let origins = origin.into_iter().collect();
    match world.handle(In::CutSnapshot { to: node(99), origins }).pop() {
        Some(Out::SnapshotCut { to, snapshots }) if to == node(99) => snapshots,
        other => panic!("{other:?}"),
    }
}

fn unpacked(snapshot: &Snapshot) -> BTreeSet<Entry> {
    let all: Vec<Entry> = snapshot.runs.iter().flat_map(entries).collect();
    let set: BTreeSet<Entry> = all.iter().copied().collect();
    assert_eq!(all.len(), set.len(), "an entry is told once");
    set
}

pub(crate) fn prompts() -> Vec<Vec<PrefixHash>> {
    (1..5).map(|id| prompt(id, 512, 2_048)).collect()
}

pub(crate) fn run() -> impl Strategy<Value = EventRun> {
    let span = (0usize..4, 0u32..20, 1u32..12, 0u8..3);
    let holder = |n| match n {
        0 => ENGINE,
        1 => Holder::Dram,
        _ => Holder::Nvme,
    };
    prop_oneof![
        6 => span.clone().prop_map(move |(p, from, n, h)| {
            stored(holder(h), &prompts()[p], from * 64, (from + n) * 64)
        }),
        4 => span.prop_map(move |(p, from, n, h)| {
            removed(holder(h), &prompts()[p], from * 64, (from + n) * 64)
        }),
        1 => (0u8..3).prop_map(move |h| EventRun::Cleared { holder: holder(h) }),
    ]
}

fn batches() -> impl Strategy<Value = Vec<(u8, Vec<EventRun>)>> {
    prop::collection::vec((1u8..4, prop::collection::vec(run(), 1..4)), 1..25)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The index equals the origins' sets after any batches, and agrees with their digests; a
    /// newcomer that starts from cut snapshots equals an old observer.
    #[test]
    fn index_follows_the_origins(history in batches(), later in batches()) {
        let mut world = World::new(4, Params::default());
        let mut sources: BTreeMap<u8, Source> = BTreeMap::new();
        for (n, runs) in &history {
            let batch = sources.entry(*n).or_default().batch(*n, runs);
            prop_assert!(learn(&mut world, &batch).is_empty(), "digests agree");
            prop_assert!(learn(&mut world, &batch).is_empty(), "twice is once");
        }
        let mut newcomer = World::new(4, Params::default());
        let snapshots = cut(&mut world, None);
        prop_assert_eq!(snapshots.len(), sources.len());
        for snapshot in snapshots {
            let n = snapshot.origin.0[0];
            let source = &sources[&n];
            prop_assert_eq!(unpacked(&snapshot), source.set.clone());
            prop_assert_eq!((snapshot.watermark, snapshot.link), (Seq(source.seq), source.link));
            let snapshot = protocol::wire::decode(&protocol::wire::encode(&snapshot).unwrap()).unwrap();
            let out = newcomer.handle(In::LearnSnapshot(Box::new(snapshot)));
            prop_assert!(out.is_empty(), "digests agree");
        }
        for (n, runs) in &later {
            let batch = sources.entry(*n).or_default().batch(*n, runs);
            prop_assert!(learn(&mut world, &batch).is_empty());
            prop_assert!(learn(&mut newcomer, &batch).is_empty());
        }
        for (n, source) in &sources {
            prop_assert_eq!(held(&world, *n, &prompts()), truth(&source.set));
            prop_assert_eq!(held(&newcomer, *n, &prompts()), truth(&source.set));
            prop_assert_eq!(world.router.origin(&node(*n)).unwrap().2, digest(*n, &source.set));
        }
        prop_assert_eq!(world.router.stats().entries, newcomer.router.stats().entries);
    }

    /// Own events show at once and stay while the batches lag behind by any number; a snapshot of
    /// the own set is exact at the last batch.
    #[test]
    fn own_events_lead_and_own_batches_confirm(runs in prop::collection::vec(run(), 1..40), lag in 0usize..10) {
        let mut world = World::new(1, Params::default());
        let (mut live, mut said) = (Source::default(), Source::default());
        let mut queue = std::collections::VecDeque::new();
        let mut clears = 0;
        for run in runs {
            for event in events(&run) {
                world.handle(In::Own(event));
            }
            live.apply(&run);
            prop_assert_eq!(held(&world, 0, &prompts()), truth(&live.set));
            clears += usize::from(matches!(run, EventRun::Cleared { .. }));
            queue.push_back(run);
            while queue.len() > lag {
                let run = queue.pop_front().unwrap();
                clears -= usize::from(matches!(run, EventRun::Cleared { .. }));
                learn(&mut world, &said.batch(0, &[run]));
                prop_assert_eq!(held(&world, 0, &prompts()), truth(&live.set));
                let snapshots = cut(&mut world, Some(node(0)));
                if clears > 0 {
                    prop_assert!(snapshots.is_empty(), "a tier was cleared and nobody told yet");
                } else {
                    prop_assert_eq!(unpacked(&snapshots[0]), said.set.clone());
                }
            }
        }
    }
}

fn events(run: &EventRun) -> Vec<BlockEvent> {
    let is_stored = matches!(run, EventRun::Stored { .. });
    if let EventRun::Cleared { holder } = run {
        return vec![BlockEvent::Cleared { holder: *holder }];
    }
    let event = |(holder, storage, tokens, prefix)| {
        if is_stored {
            BlockEvent::Stored { prefix, tokens, storage, holder }
        } else {
            BlockEvent::Removed { prefix, tokens, storage, holder }
        }
    };
    entries(run).into_iter().map(event).collect()
}

#[test]
fn blocks_between_granules_are_not_indexed() {
    let mut world = World::new(1, Params::default());
    for tokens in [0, 16, 48, 80, 64 * 70_000] {
        let event = BlockEvent::Stored {
            prefix: PrefixHash(u128::from(tokens) + 1),
            tokens,
            storage: STORAGE,
            holder: ENGINE,
        };
        world.handle(In::Own(event));
    }
    assert_eq!(world.router.stats().entries, 0);
}

#[test]
fn a_clear_empties_one_tier() {
    let mut world = World::new(2, Params::default());
    let names = prompt(1, 0, 1_024);
    world.cache(1, &names, 1_024);
    world.learn(1, &[EventRun::Cleared { holder: ENGINE }]);
    let holders: BTreeSet<Holder> =
        held(&world, 1, &[names]).into_iter().map(|(holder, _)| holder).collect();
    assert_eq!(holders, BTreeSet::from([Holder::Dram]));
}

#[test]
fn lives_are_kept_apart() {
    let mut world = World::new(2, Params::default());
    let (a, b) = (prompt(1, 0, 640), prompt(2, 0, 640));
    let mut first = batch(1, 1, &[stored(ENGINE, &a, 0, 640)], SetDigest::default());
    learn(&mut world, &first);
    let second = Incarnation { counter: 2, nonce: 1 };
    let mut fresh = batch(1, 1, &[stored(ENGINE, &b, 0, 640)], SetDigest::default());
    fresh.incarnation = second;
    learn(&mut world, &fresh);
    assert!(held(&world, 1, std::slice::from_ref(&a)).is_empty(), "a new life ends the old one");
    first.seq = Seq(2);
    learn(&mut world, &first);
    let twin = Incarnation { counter: 2, nonce: 9 };
    learn(&mut world, &EventBatch { incarnation: twin, ..first.clone() });
    assert!(held(&world, 1, &[a]).is_empty(), "older lives and twins are ignored");
    assert_eq!(world.router.stats().stale, 2);
    world.handle(In::Forget { node: node(1), incarnation: FIRST });
    assert_eq!(
        held(&world, 1, std::slice::from_ref(&b)).len(),
        10,
        "an older life's end is not this one's"
    );
    world.handle(In::Forget { node: node(1), incarnation: second });
    assert!(held(&world, 1, &[b]).is_empty());
    assert_eq!(world.loads.node(&node(1)), None);
    assert_eq!(world.router.stats().pairs, 0);
}

#[test]
fn a_lost_batch_is_seen_by_its_digest_and_mended_by_a_snapshot() {
    let mut world = World::new(2, Params::default());
    let mut source = Source::default();
    let names = prompt(1, 0, 1_920);
    let step =
        |source: &mut Source, from| source.batch(1, &[stored(ENGINE, &names, from, from + 640)]);
    learn(&mut world, &step(&mut source, 0));
    step(&mut source, 640);
    let out = learn(&mut world, &step(&mut source, 1_280));
    let Some(Out::DigestMismatch { origin, seq, said, found, .. }) = out.first() else {
        panic!("{out:?}")
    };
    assert_eq!((*origin, *seq, said.count, found.count), (node(1), Seq(3), 30, 20));
    let again = source.batch(1, &[]);
    assert!(learn(&mut world, &again).is_empty(), "told once");
    assert!(cut(&mut world, None).is_empty(), "what is known to be wrong is not handed out");
    world.now += TELL_AGAIN;
    let again = source.batch(1, &[]);
    assert_eq!(learn(&mut world, &again).len(), 1, "told again while it lasts");

    let mut donor = World::new(2, Params::default());
    let mut replay = Source::default();
    learn(&mut donor, &replay.batch(1, &[stored(ENGINE, &names, 0, 1_920)]));
    let snapshot = cut(&mut donor, Some(node(1))).remove(0);
    assert!(world.handle(In::LearnSnapshot(Box::new(snapshot))).is_empty());
    assert_eq!(held(&world, 1, std::slice::from_ref(&names)).len(), 30);
    assert_eq!(cut(&mut world, None).len(), 1);
}

#[test]
fn foreign_bytes_are_refused_whole() {
    let mut world = World::new(2, Params::default());
    let names = prompt(1, 0, 640);
    let good = batch(1, 1, &[stored(ENGINE, &names, 0, 640)], SetDigest::default());
    for cut in 0..good.payload.len() {
        let payload = good.payload[..cut].to_vec();
        learn(&mut world, &EventBatch { payload, ..good.clone() });
    }
    let huge = EventBatch { payload: vec![0xff; 1 << 16], ..good.clone() };
    learn(&mut world, &huge);
    assert_eq!(world.router.stats().entries, 0);
    assert_eq!(world.router.stats().malformed, good.payload.len() as u64 + 1);
    learn(&mut world, &good);
    assert_eq!(world.router.stats().entries, 10);
}

#[test]
fn the_number_of_nodes_is_bounded() {
    let config = Config { max_nodes: 3, ..Config::new(node(0), FIRST) };
    let (mut router, index, loads) = Router::new(config);
    let names = prompt(1, 0, 64);
    let mut outbox = Vec::new();
    for n in 1..9 {
        let batch = batch(n, 1, &[stored(ENGINE, &names, 0, 64)], SetDigest::default());
        router.handle(ms(0), In::Member(Box::new(view(n))), &mut outbox);
        router.handle(ms(0), In::Learn(Box::new(batch)), &mut outbox);
    }
    assert_eq!(loads.nodes().len(), 3);
    assert_eq!(index.holders(crate::index::granules(&names)[0]).len(), 3);
}

#[test]
fn a_full_index_does_not_ask_for_repair() {
    let config = Config { max_entries: 5, ..Config::new(node(0), FIRST) };
    let (mut router, _, _) = Router::new(config);
    let mut source = Source::default();
    let batch = source.batch(1, &[stored(ENGINE, &prompt(1, 0, 640), 0, 640)]);
    let mut outbox = Vec::new();
    router.handle(ms(0), In::Learn(Box::new(batch)), &mut outbox);
    assert!(outbox.is_empty(), "{outbox:?}");
    let stats = router.stats();
    assert_eq!((stats.entries, stats.partial), (5, 1));
}

/// Nodes come, store, restart and go for long: lanes, sets and entries stay bounded.
#[test]
fn node_churn_leaves_nothing_behind() {
    let mut world = World::new(1, Params::default());
    for round in 0u64..400 {
        let n = 1 + (round % 4) as u8;
        let incarnation = Incarnation { counter: round / 4 + 1, nonce: 0 };
        world.member(MemberView { incarnation, ..view(n) });
        let names = prompt(round + 1, 512, 8_192);
        let runs = [stored(ENGINE, &names, 0, 8_192), stored(Holder::Dram, &names, 0, 8_192)];
        let mut batch = batch(n, 1, &runs, SetDigest::default());
        batch.incarnation = incarnation;
        learn(&mut world, &batch);
        let stats = world.router.stats();
        assert!(stats.entries <= 4 * 128 && stats.lanes <= 8 && stats.sets <= 16, "{stats:?}");
    }
    for n in 1..5 {
        let incarnation = Incarnation { counter: 1_000, nonce: 0 };
        world.handle(In::Forget { node: node(n), incarnation });
    }
    let stats = world.router.stats();
    assert_eq!((stats.entries, stats.pairs, stats.lanes), (0, 0, 0));
}

#[test]
fn an_engine_with_an_announced_prefill_is_not_an_entry() {
    let mut world = World::new(2, Params::default());
    let names = crate::index::granules(&prompt(1, 0, 640));
    let run = EventRun::Computing {
        storage: STORAGE,
        engine: EngineId(0),
        eta: Span::millis(10),
        first: 64,
        hashes: names,
    };
    let mut source = Source::default();
    assert!(learn(&mut world, &source.batch(1, &[run])).is_empty());
    assert_eq!(world.router.stats().entries, 0);
}
