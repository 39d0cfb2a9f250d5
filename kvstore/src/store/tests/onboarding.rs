//! What a request finds, what is brought up for it, and what is refused.

use super::world::*;
use super::*;
use protocol::op::{Arriving, ArrivingFrom, EngineOp, Fetched, Grant, OpId};
use protocol::prompt::Refusal;
use protocol::time::Span;
use std::sync::Arc;

fn fetching(world: &mut World, n: usize) -> (Grant, OpId) {
    let tokens = prompt(1, n);
    let mut ask = world.ask(&tokens, 1);
    ask.sources.push(world.source(n));
    let grant = world.prepare(&tokens, ask).unwrap();
    world.submit(grant.lease);
    (grant, *world.fetches.keys().next().unwrap())
}

fn from(grant: &Grant) -> Vec<(u32, ArrivingFrom)> {
    grant.arriving.iter().map(|Arriving { index, from, .. }| (*index, *from)).collect()
}

#[test]
fn sequences_share_a_prefix_read_only() {
    let mut world = World::new(Setup::default());
    world.serve(&shared(64, 1, 100), 1);
    let [a, b] = [2, 3].map(|family| {
        let tokens = shared(64, family, 100);
        let ask = world.ask(&tokens, 1);
        world.prepare(&tokens, ask).unwrap()
    });
    assert_eq!((a.ready, b.ready), (4, 4));
    assert_eq!(a.slots[..4], b.slots[..4]);
    assert!(a.slots[4..].iter().all(|slot| !b.slots.contains(slot)));
    let first = a.slots[0].slot;
    assert_eq!(world.store.engines[&EngineId(0)].tier.uses(first).0, 2);
    world.finish(a.lease);
    world.finish(b.lease);
    world.settle();
    assert_eq!(world.counters().engine_tokens, 128);
}

#[test]
fn one_prompt_token_is_always_computed() {
    for (length, ready) in [(63, 3), (64, 3), (65, 4)] {
        let mut world = World::new(Setup::default());
        world.serve(&prompt(1, 100), 1);
        let tokens = prompt(1, length);
        let ask = world.ask(&tokens, 1);
        assert_eq!(world.prepare(&tokens, ask).unwrap().ready, ready, "{length} tokens");
    }
}

#[test]
fn what_the_engine_lost_comes_up_from_dram() {
    let mut world = World::new(Setup { engines: 2, ..Setup::default() });
    let tokens = prompt(1, 100);
    world.serve(&tokens, 1);
    world.lose_engine();
    assert_eq!(world.run(Name::Engine(EngineId(0)), &tokens), 0);
    assert_eq!(world.run(Name::Dram, &tokens), 6);
    for engine in [0, 1].map(EngineId) {
        let mut ask = world.ask(&tokens, 1);
        ask.engine = engine;
        let grant = world.prepare(&tokens, ask).unwrap();
        assert_eq!(grant.ready, 0);
        assert_eq!(from(&grant), (0..6).map(|i| (i, ArrivingFrom::Dram)).collect::<Vec<_>>());
        world.submit(grant.lease);
        world.perform(5, true); // out of order: the tree still grows from the root
        assert_eq!(world.run(Name::Engine(engine), &tokens), 0);
        world.perform_all();
        assert_eq!(world.run(Name::Engine(engine), &tokens), 6);
        world.finish(grant.lease);
    }
    world.settle();
    assert_eq!(world.counters().dram_tokens, 192);
    assert_eq!(world.counters().offloaded, 6, "imported blocks are in DRAM already");
}

#[test]
fn operations_wait_for_their_sequence() {
    let mut world = World::new(Setup::default());
    let tokens = prompt(1, 100);
    world.serve(&tokens, 1);
    world.lose_engine();
    let prepare = world.ask(&tokens, 1);
    let grant = world.prepare(&tokens, prepare).unwrap();
    assert!(world.engine_ops.is_empty());
    world.submit(grant.lease);
    assert_eq!(world.engine_ops.len(), 6);
    world.perform_all();
    world.release(grant.lease);
    // A sequence that never reaches its engine leaves nothing behind.
    world.lose_engine();
    let prepare = world.ask(&tokens, 1);
    let grant = world.prepare(&tokens, prepare).unwrap();
    world.release(grant.lease);
    assert!(world.engine_ops.is_empty());
    world.settle();
}

#[test]
fn fetched_blocks_are_kept_imported_and_lent_with_their_producers_digest() {
    let mut world = World::new(Setup::default());
    let (grant, op) = fetching(&mut world, 100);
    let peer = world.peer();
    assert_eq!(from(&grant), (0..6).map(|i| (i, ArrivingFrom::Peer(peer))).collect::<Vec<_>>());
    let fetch = world.fetches[&op].0.clone();
    assert_eq!((fetch.from, fetch.block_bytes), (peer, BLOCK_BYTES));
    assert_eq!(fetch.deadline, world.now + Span::secs(1));
    for index in [3, 0, 1, 5, 4] {
        world.decide(op, index, 0);
    }
    assert_eq!(world.engine_ops.len(), 5, "each is imported as it comes");
    assert_eq!(world.run(Name::Dram, &prompt(1, 100)), 2, "and announced in order");
    world.decide(op, 2, 0);
    world.end_fetch(op);
    assert_eq!(world.run(Name::Dram, &prompt(1, 100)), 6);
    world.finish(grant.lease);
    let keys = world.keys(&prompt(1, 100));
    let read = world.read(keys, Span::secs(1));
    for block in &world.reads[&read] {
        assert_eq!(block.place.as_ref().unwrap().1.producer, peer);
    }
    world.settle();
    assert_eq!((world.counters().peer_tokens, world.counters().offloaded), (96, 0));
}

#[test]
fn blocks_that_do_not_come_are_computed() {
    let mut world = World::new(Setup::default());
    let (grant, op) = fetching(&mut world, 100);
    for (index, kind) in [(0, 0), (1, 1), (2, 2), (3, 0)] {
        world.decide(op, index, kind);
    }
    world.end_fetch(op);
    let missed = world.log.iter().filter_map(|out| match out {
        Out::Engine(_, EngineOp::Missed { index, .. }) => Some(*index),
        _ => None,
    });
    assert_eq!(missed.collect::<Vec<_>>(), [1, 2, 4, 5]);
    assert_eq!(world.run(Name::Dram, &prompt(1, 100)), 1);
    world.finish(grant.lease);
    // The engine computed 1 and 2, so that 3, which had come from the peer, found its place.
    assert_eq!(world.run(Name::Dram, &prompt(1, 100)), 6);
    world.settle();
    let c = world.counters();
    let outcomes = (c.fetch_verified, c.fetch_absent, c.fetch_corrupt, c.fetch_failed);
    assert_eq!(outcomes, (2, 1, 1, 2));
    assert_eq!((c.peer_tokens, c.uncached_tokens, c.offloaded), (32, 68, 4));
}

#[test]
fn a_digest_for_another_block_is_corrupt() {
    let mut world = World::new(Setup::default());
    let (grant, op) = fetching(&mut world, 40);
    let keys = world.keys(&prompt(1, 40));
    let digest = protocol::block::ContentDigest::of(b"x");
    let life = Incarnation::default();
    let other = protocol::block::SignedDigest::sign(&world.store.keypair, life, keys[1], digest);
    let result = Fetched::Verified(Box::new(other));
    world.fetches.get_mut(&op).unwrap().1[0] = true;
    world.give(In::Fetched { op, index: 0, result: result.clone() });
    world.give(In::Fetched { op, index: 0, result });
    assert_eq!((world.counters().fetch_corrupt, world.counters().stale), (1, 1));
    world.end_fetch(op);
    world.finish(grant.lease);
    world.settle();
}

#[test]
fn a_late_block_is_kept_but_not_imported() {
    let mut world = World::new(Setup::default());
    let (grant, op) = fetching(&mut world, 40);
    assert!(world.compute(grant.lease, true), "its deadline has passed");
    world.decide(op, 0, 0);
    assert!(world.engine_ops.iter().all(|(_, op)| !matches!(op, EngineOp::Import { .. })));
    assert_eq!(world.run(Name::Dram, &prompt(1, 40)), 1);
    world.end_fetch(op);
    world.finish(grant.lease);
    world.settle();
    assert_eq!(world.counters().peer_tokens, 0);
}

#[test]
fn a_block_that_changed_in_dram_is_computed_and_leaves_with_its_children() {
    let mut world = World::new(Setup::default());
    let tokens = prompt(1, 60);
    world.serve(&tokens, 1);
    world.lose_engine();
    assert_eq!(world.run(Name::Dram, &tokens), 3);
    let ask = world.ask(&tokens, 1);
    let grant = world.prepare(&tokens, ask).unwrap();
    world.submit(grant.lease);
    assert_eq!(grant.arriving.len(), 3);
    world.perform(1, false);
    assert_eq!(world.run(Name::Dram, &tokens), 1, "the block and those behind it are gone");
    world.finish(grant.lease);
    world.settle();
    assert_eq!((world.counters().dram_corrupt, world.run(Name::Dram, &tokens)), (1, 3));
}

#[test]
fn a_second_request_joins_the_fetch_and_the_last_to_leave_cancels_it() {
    let mut world = World::new(Setup::default());
    let (first, op) = fetching(&mut world, 100);
    let (second, _) = fetching(&mut world, 100);
    assert_eq!((world.fetches.len(), second.arriving.len()), (1, 6));
    world.decide(op, 0, 0);
    assert_eq!(world.engine_ops.len(), 2, "one copy for each");
    world.release(first.lease);
    assert!(world.cancelled.is_empty());
    world.release(second.lease);
    assert_eq!(world.cancelled, [op]);
    // What comes all the same is kept.
    world.decide(op, 1, 0);
    world.decide(op, 3, 0);
    world.end_fetch(op);
    world.perform_all();
    assert_eq!(world.run(Name::Dram, &prompt(1, 100)), 2);
    world.settle();
    assert_eq!(world.store.stats().tiers[1].blocks, 2, "block 3 had no parent and was dropped");
}

#[test]
fn a_fetch_takes_no_more_than_there_is_room_and_stops_at_a_gap() {
    let mut world = World::new(Setup { dram: 4, ..Setup::default() });
    let (grant, op) = fetching(&mut world, 100);
    assert_eq!(grant.arriving.len(), 4);
    world.end_fetch(op);
    world.finish(grant.lease);
    world.settle();

    let mut world = World::new(Setup::default());
    let (tokens, own) = (prompt(2, 100), world.store.keypair.node());
    let mut ask = world.ask(&tokens, 1);
    let spans = [(0, 31, world.peer()), (31, 64, world.peer()), (0, 16, own)];
    for (start, end, node) in spans {
        ask.sources.push(protocol::plan::Source { node, start, end, deadline: Span::secs(1) });
    }
    let grant = world.prepare(&tokens, ask).unwrap();
    assert_eq!(grant.arriving.len(), 1, "block 1 lies across two sources");
    world.settle();
}

#[test]
fn a_fetch_continues_what_the_engine_has() {
    let mut world = World::new(Setup { dram: 8, ..Setup::default() });
    world.serve(&prompt(1, 40), 1);
    world.serve(&prompt(2, 130), 1); // DRAM forgets the first prompt, the engine does not
    assert_eq!(world.run(Name::Dram, &prompt(1, 40)), 0);
    let (grant, op) = fetching(&mut world, 100);
    assert_eq!((grant.ready, grant.arriving.len()), (2, 4));
    (0..4).for_each(|index| world.decide(op, index, 0));
    world.end_fetch(op);
    world.finish(grant.lease);
    assert_eq!(world.run(Name::Dram, &prompt(1, 100)), 6, "the engine's part was written through");
    world.settle();
}

#[test]
fn refusals_say_why() {
    let mut world = World::new(Setup { slots: 8, batch: 0, ..Setup::default() });
    let tokens = prompt(1, 100);
    let ask = world.ask(&tokens, 1);
    let running = world.prepare(&tokens, ask.clone()).unwrap();
    assert!(matches!(world.prepare(&tokens, ask), Err(Refusal::Failed(_))), "lease in use");

    let other = prompt(2, 40);
    let ask = world.ask(&other, 1);
    let retry_after = Limits::default().retry_after;
    assert_eq!(world.prepare(&other, ask.clone()), Err(Refusal::Busy { retry_after }));
    world.release(running.lease);
    let granted = world.prepare(&other, ask).unwrap();
    world.release(granted.lease);

    let long = prompt(3, 128);
    let ask = world.ask(&long, 1);
    let too_long = Refusal::TooLong { tokens: 128, limit: 127 };
    assert_eq!(world.prepare(&long, ask), Err(too_long));
    let mut ask = world.ask(&tokens, 1);
    Arc::make_mut(&mut ask.prefix).pop();
    assert!(matches!(world.prepare(&tokens, ask), Err(Refusal::Failed(_))));
    let mut ask = world.ask(&tokens, 1);
    ask.engine = EngineId(5);
    assert_eq!(world.prepare(&tokens, ask), Err(Refusal::Gone));
    world.settle();
    assert_eq!((world.counters().refused_busy, world.counters().refused_other), (1, 4));
}
