//! Frames that make no sense, and members that say what is not so.

use crate::world::{DAY, World, id, node, value};
use proptest::prelude::*;
use protocol::id::NodeId;
use protocol::state::{Kept, Record, RecordId, Version};
use protocol::time::Span;
use protocol::wire::decode;
use protocol::wire::state::{Holding, Newest, Range, StateFrame, Summary};
use state::In;

fn version(counter: u64) -> Version {
    Version { counter, writer: node(1), write: 3 }
}

fn record(id: RecordId, counter: u64, value: &[u8]) -> Record {
    Record { id, version: version(counter), deleted: false, ttl: DAY, value: value.to_vec() }
}

fn counters(world: &World, h: usize) -> state::Counters {
    *world.hosts[h].machine.as_ref().unwrap().counters()
}

#[test]
fn strangers_are_not_heard() {
    let mut world = World::new(2, 1);
    let frame = StateFrame::Push(vec![record(id(1, 1), 5, b"x")]);
    world.input(0, In::Frame { from: NodeId([77; 32]), frame });
    world.pass(Span::secs(1));
    assert_eq!(counters(&world, 0).strangers, 1);
    assert!(world.on_disk(&id(1, 1)).is_empty());
}

#[test]
fn what_is_over_a_limit_is_not_kept() {
    let mut world = World::new(2, 2);
    let long = vec![1; protocol::state::VALUE_MAX + 1];
    let telling = Record { deleted: true, ..record(id(1, 2), 5, b"deleted, with a value") };
    let last = record(id(1, 3), u64::MAX, b"nothing could come after it");
    let over = Record { ttl: Span::ZERO, ..record(id(1, 4), 5, b"x") };
    for record in [record(id(1, 1), 5, &long), telling, last, over] {
        let frame = StateFrame::Put { op: 1, record: record.clone() };
        world.input(0, In::Frame { from: node(1), frame });
        world.input(0, In::Frame { from: node(1), frame: StateFrame::Push(vec![record]) });
    }
    let holding = Holding { id: id(1, 1), version: version(1) };
    let unordered = Range { bucket: 1, after: None, upto: None, held: vec![holding; 2] };
    let summary = Summary { bucket: 1, count: 1, digest: 1 };
    let frames = [
        StateFrame::Range(unordered),
        StateFrame::Want(vec![id(1, 1); 5000]),
        StateFrame::Offer(vec![holding; 5000]),
        StateFrame::Holds(vec![holding; 5000]),
        StateFrame::Digests(vec![summary; 300]),
    ];
    for frame in frames {
        world.input(0, In::Frame { from: node(1), frame });
    }
    world.pass(Span::secs(1));
    assert_eq!(counters(&world, 0).improper, 8 + 5);
    assert_eq!(world.hosts[0].disk.len(), 0);
}

/// A world in which a liar can guess the numbers of operations.
fn guessable(nodes: usize, seed: u64) -> World {
    World::tuned(nodes, seed, |config| config.incarnation.nonce = 0)
}

#[test]
fn an_answer_that_was_not_asked_for_or_does_not_fit_counts_nothing() {
    let mut world = guessable(4, 3);
    world.put(0, id(1, 1), b"true").unwrap();
    world.pass(Span::secs(40));
    let owners = world.owners(&id(1, 1));
    let reader = (0..4).find(|h| !owners.contains(h)).unwrap();
    let (liar, slow) = (owners[0], [owners[1], owners[2]]);
    for h in slow {
        world.cut.insert((h, reader));
    }
    let call = world.call(reader, |call| In::Get { call, id: id(1, 1) });
    let before = counters(&world, reader).improper;
    for op in 0..1000 {
        let newest = Some(Newest { version: version(99), deleted: false });
        // It was asked, and sends another record, or one that is not what it says that it has.
        let other = Record { ..record(id(1, 2), 99, b"lie") };
        let unlike = Record { ..record(id(1, 1), 98, b"lie") };
        for lie in [other, unlike] {
            let frame = StateFrame::Got { op, newest, record: Some(lie) };
            world.input(reader, In::Frame { from: node(liar), frame });
        }
        world.input(reader, In::Frame { from: node(liar), frame: StateFrame::Kept { op } });
        let frame = StateFrame::Newer { op, version: version(1 << 60) };
        world.input(reader, In::Frame { from: node(liar), frame });
    }
    assert_eq!(counters(&world, reader).improper, before + 2, "both reached the read");
    world.cut.clear();
    world.pass(Span::secs(3));
    let state::Answer::Got(found) = world.answers.remove(&call).unwrap() else { panic!() };
    assert_eq!(value(found), Some(b"true".to_vec()));
}

#[test]
fn only_who_was_asked_answers_a_read() {
    let mut world = guessable(5, 5);
    world.put(0, id(1, 1), b"true").unwrap();
    world.pass(Span::secs(40));
    let owners = world.owners(&id(1, 1));
    let [reader, liar] =
        <[usize; 2]>::try_from((0..5).filter(|h| !owners.contains(h)).collect::<Vec<_>>()).unwrap();
    let call = world.call(reader, |call| In::Get { call, id: id(1, 1) });
    let before = counters(&world, reader).improper;
    for op in 0..1000 {
        let newest = Some(Newest { version: version(99), deleted: false });
        let frame = StateFrame::Got { op, newest, record: Some(record(id(1, 1), 99, b"lie")) };
        world.input(reader, In::Frame { from: node(liar), frame });
    }
    assert_eq!(counters(&world, reader).improper, before + 1);
    world.pass(Span::secs(3));
    let state::Answer::Got(found) = world.answers.remove(&call).unwrap() else { panic!() };
    assert_eq!(value(found), Some(b"true".to_vec()));
}

#[test]
fn a_write_is_not_made_again_for_ever() {
    let mut world = guessable(4, 4);
    let owners = world.owners(&id(1, 1));
    let writer = (0..4).find(|h| !owners.contains(h)).unwrap();
    world.pass(Span::secs(40));
    world.loss = 100;
    let call = world.begin_put(writer, id(1, 1), b"a");
    for counter in 1..100 {
        for op in 0..1000 {
            let frame = StateFrame::Newer { op, version: version(counter) };
            // Who was not asked moves nothing.
            world.input(writer, In::Frame { from: NodeId([77; 32]), frame: frame.clone() });
            world.input(writer, In::Frame { from: node(owners[0]), frame });
        }
    }
    assert_eq!(counters(&world, writer).bumps, u64::from(state::config::BUMPS_MAX));
    world.loss = 0;
    world.pass(Span::secs(3));
    assert!(matches!(world.answers.remove(&call), Some(state::Answer::Put(Ok(Kept::Safe)))));
}

#[test]
fn a_bucket_is_compared_once_in_a_frame() {
    let mut world = World::new(2, 6);
    world.put(0, id(1, 1), b"a").unwrap();
    world.pass(Span::secs(20));
    let before = counters(&world, 0);
    let summary = Summary { bucket: 1, count: 9, digest: 9 };
    let twice = StateFrame::Digests(vec![summary; 2]);
    world.input(0, In::Frame { from: node(1), frame: twice });
    assert_eq!(counters(&world, 0).improper, before.improper + 1);
    assert_eq!(counters(&world, 0).mismatches, before.mismatches);
    let once = StateFrame::Digests(vec![summary]);
    world.input(0, In::Frame { from: node(1), frame: once });
    assert_eq!(counters(&world, 0).mismatches, before.mismatches + 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Whatever decodes is handled without a panic, and in bounds.
    #[test]
    fn any_frame_is_survived(frames in proptest::collection::vec(frame(), 1..40)) {
        let mut world = World::new(3, 9);
        world.put(0, id(1, 1), b"a").unwrap();
        for (from, frame) in frames {
            world.input(0, In::Frame { from: node(from), frame });
        }
        world.pass(Span::secs(30));
        let stats = world.hosts[0].machine.as_ref().unwrap().stats();
        prop_assert_eq!((stats.ops, stats.pushes), (0, 0));
    }

    #[test]
    fn any_bytes_are_a_frame_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(frame) = decode::<StateFrame>(&bytes) {
            let mut world = World::new(2, 10);
            world.input(0, In::Frame { from: node(1), frame });
            world.pass(Span::secs(3));
        }
    }
}

fn some_id() -> impl Strategy<Value = RecordId> {
    (0u8..3, 0u8..3).prop_map(|(place, name)| id(place, name))
}

fn some_version() -> impl Strategy<Value = Version> {
    let counter = prop_oneof![0u64..4, Just(u64::MAX), Just(u64::MAX - 1)];
    (counter, 0usize..3, 0u64..3).prop_map(|(counter, n, write)| Version {
        counter,
        writer: node(n),
        write,
    })
}

fn some_record() -> impl Strategy<Value = Record> {
    let ttl = prop_oneof![Just(0), Just(1), any::<u64>(), Just(DAY.0)];
    (some_id(), some_version(), any::<bool>(), ttl, 0usize..20).prop_map(
        |(id, version, deleted, ttl, bytes)| {
            let value = vec![1; bytes];
            Record { id, version, deleted, ttl: Span(ttl), value }
        },
    )
}

fn holdings() -> impl Strategy<Value = Vec<Holding>> {
    let holding = (some_id(), some_version()).prop_map(|(id, version)| Holding { id, version });
    proptest::collection::vec(holding, 0..6)
}

fn frame() -> impl Strategy<Value = (usize, StateFrame)> {
    let op = 0u64..4;
    let ends = || proptest::option::of(some_id());
    let range = (0u8..3, ends(), ends(), holdings())
        .prop_map(|(bucket, after, upto, held)| Range { bucket, after, upto, held });
    let newest = proptest::option::of(
        (some_version(), any::<bool>()).prop_map(|(version, deleted)| Newest { version, deleted }),
    );
    let frame = prop_oneof![
        (op.clone(), some_record()).prop_map(|(op, record)| StateFrame::Put { op, record }),
        op.clone().prop_map(|op| StateFrame::Kept { op }),
        (op.clone(), some_version()).prop_map(|(op, version)| StateFrame::Newer { op, version }),
        op.clone().prop_map(|op| StateFrame::NotKept { op }),
        (op.clone(), some_id(), any::<bool>()).prop_map(|(op, id, value)| StateFrame::Get {
            op,
            id,
            than: None,
            value
        }),
        (op, newest, proptest::option::of(some_record()))
            .prop_map(|(op, newest, record)| StateFrame::Got { op, newest, record }),
        (any::<u8>(), any::<u32>(), any::<u128>()).prop_map(|(bucket, count, digest)| {
            StateFrame::Digests(vec![Summary { bucket, count, digest }])
        }),
        range.prop_map(StateFrame::Range),
        proptest::collection::vec(some_id(), 0..6).prop_map(StateFrame::Want),
        proptest::collection::vec(some_record(), 0..6).prop_map(StateFrame::Push),
        holdings().prop_map(StateFrame::Offer),
        holdings().prop_map(StateFrame::Holds),
    ];
    (0usize..3, frame)
}
