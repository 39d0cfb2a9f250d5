//! Sealed blocks: names, duplicates, and the way to DRAM.

use super::world::*;
use super::*;
use crate::messages::Prepare;
use protocol::block::ContentDigest;
use protocol::hash::Token;
use protocol::op::{EngineOp, Grant};
use protocol::time::Span;

const ENGINE: Name = Name::Engine(EngineId(0));

fn start(world: &mut World, tokens: &[Token], max_tokens: u32) -> Grant {
    let ask = world.ask(tokens, max_tokens);
    let grant = world.prepare(tokens, ask).unwrap();
    world.submit(grant.lease);
    grant
}

#[test]
fn sealed_blocks_are_written_through_and_signed_here() {
    let mut world = World::new(Setup::default());
    let tokens = prompt(1, 50);
    let grant = start(&mut world, &tokens, 1);
    assert!(world.compute(grant.lease, false));
    assert_eq!((world.run(ENGINE, &tokens), world.run(Name::Dram, &tokens)), (1, 0));
    world.perform_all();
    assert_eq!(world.run(Name::Dram, &tokens), 1);
    let keys = world.keys(&tokens);
    let read = world.read(keys, Span::secs(1));
    let signed = &world.reads[&read][0].place.as_ref().unwrap().1;
    assert_eq!(signed.producer, world.store.keypair.node());
    assert_eq!(signed.incarnation, Incarnation { counter: 1, nonce: 9 });
    assert!(world.reads[&read][1].place.is_none());
    world.settle();
}

#[test]
fn the_next_turn_finds_generated_blocks() {
    for block_tokens in [16, 32] {
        let mut world = World::new(Setup { block_tokens, ..Setup::default() });
        let history = world.serve(&prompt(1, 50), 60);
        assert_eq!(history.len() / world.size, 110 / world.size);
        let mut tokens = history.clone();
        tokens.extend(prompt(2, 30));
        let grant = start(&mut world, &tokens, 1);
        assert_eq!(grant.ready as usize, history.len() / world.size);
        world.finish(grant.lease);
        world.settle();
    }
}

#[test]
fn the_first_copy_of_a_block_stays() {
    let mut world = World::new(Setup::default());
    let tokens = prompt(1, 50);
    let [a, b] = [0, 1].map(|priority| {
        // The more important one does not wait for the other's prefill.
        let ask = Prepare { priority, ..world.ask(&tokens, 1) };
        let grant = world.prepare(&tokens, ask).unwrap();
        world.submit(grant.lease);
        grant
    });
    for _ in 0..3 {
        assert!(world.compute(a.lease, false) && world.compute(b.lease, false));
    }
    assert_eq!(world.counters().duplicates, 3);
    world.perform_all();
    assert_eq!(world.counters().offloaded, 3, "written through once");
    // The first to seal goes; the chain under the second stays whole.
    world.release(a.lease);
    let slots = world.store.stats().tiers[0].slots;
    assert_eq!((slots.leased, slots.cached), (7, 0), "three shared, three private, one open");
    world.release(b.lease);
    let slots = world.store.stats().tiers[0].slots;
    assert_eq!((slots.cached, slots.free), (3, 29), "the private copies are gone");
    world.settle();
}

#[test]
fn copies_answered_out_of_order_are_announced_in_order() {
    let mut world = World::new(Setup::default());
    let tokens = prompt(1, 70);
    let grant = start(&mut world, &tokens, 1);
    while world.compute(grant.lease, false) {}
    for (pick, in_dram) in [(3, 0), (1, 0), (0, 2), (0, 4)] {
        world.perform(pick, true);
        assert_eq!(world.run(Name::Dram, &tokens), in_dram);
    }
    world.settle();
}

#[test]
fn a_failed_copy_is_made_again_later() {
    let mut world = World::new(Setup::default());
    let tokens = prompt(1, 50);
    let grant = start(&mut world, &tokens, 16);
    while world.engine_ops.len() < 3 {
        assert!(world.compute(grant.lease, false));
    }
    world.perform(1, false);
    world.perform_all();
    assert_eq!(world.run(Name::Dram, &tokens), 1, "2 waits for 1");
    assert!(world.compute(grant.lease, false));
    world.perform_all();
    // 1 was missing below 2, which waited: 3 came on top of both.
    let history = world.release(grant.lease).unwrap();
    world.serve(&history, 40);
    assert_eq!(world.run(Name::Dram, &history), 4);
    world.settle();
    assert_eq!(world.counters().offload_failed, 1);
}

#[test]
fn without_room_in_dram_a_block_is_not_written_through() {
    let mut world = World::new(Setup { dram: 3, ..Setup::default() });
    world.serve(&prompt(1, 40), 1);
    let keys = world.keys(&prompt(1, 40));
    let read = world.read(keys, Span::secs(5)); // lends one, at most half
    world.serve(&prompt(2, 60), 1);
    assert_eq!(world.run(Name::Dram, &prompt(1, 40)), 1, "the lent block stays");
    assert_eq!(world.run(Name::Dram, &prompt(2, 60)), 2);
    assert_eq!(world.counters().offload_skipped, 1);
    world.give(In::ReadDone(read));
    world.serve(&prompt(2, 90), 1);
    assert_eq!(world.run(Name::Dram, &prompt(2, 60)), 3, "made up for");
    world.settle();
}

#[test]
fn a_block_whose_bytes_have_changed_is_dropped() {
    let mut world = World::new(Setup { dram: 2, ..Setup::default() });
    let tokens = prompt(1, 40);
    world.serve(&tokens, 1); // written through: its digest is known
    world.serve(&prompt(2, 40), 1); // DRAM forgets it
    let mut longer = tokens.clone();
    longer.extend(prompt(3, 20));
    let grant = start(&mut world, &longer, 1);
    assert!(world.compute(grant.lease, false));
    let (engine, export) = world.engine_ops.remove(0);
    let EngineOp::Export { op, .. } = export else { panic!("{export:?}") };
    let digest = Some(ContentDigest::of(b"a bit has flipped"));
    world.event_of(engine, EngineEvent::Exported { op, digest });
    assert_eq!(world.counters().offload_corrupt, 1);
    assert_eq!((world.run(ENGINE, &tokens), world.run(Name::Dram, &tokens)), (0, 0));
    world.finish(grant.lease);
    world.settle();
}

#[test]
fn tokens_that_do_not_have_the_given_name_are_not_shared() {
    let mut world = World::new(Setup::default());
    let tokens = prompt(1, 60);
    let grant = start(&mut world, &tokens, 1);
    assert!(world.compute(grant.lease, false));
    let seal = |index| EngineEvent::Sealed { lease: grant.lease, index, tokens: prompt(9, 16) };
    world.event_of(EngineId(0), seal(1));
    assert_eq!(world.counters().misnamed, 1);
    world.event_of(EngineId(0), seal(0)); // sealed already
    world.event_of(EngineId(0), seal(99)); // not leased
    let short = EngineEvent::Sealed { lease: grant.lease, index: 2, tokens: prompt(1, 5) };
    world.event_of(EngineId(0), short);
    assert_eq!(world.counters().stale, 3);
    assert_eq!(world.store.stats().tiers[0].blocks, 1);
    world.perform_all();
    world.release(grant.lease);
    world.settle();
}

#[test]
fn decode_slots_come_in_batches_up_to_what_can_be_needed() {
    let mut world = World::new(Setup { slots: 16, batch: 3, ..Setup::default() });
    let tokens = prompt(1, 40);
    let grant = start(&mut world, &tokens, 100);
    assert_eq!(grant.slots.len(), 6, "three for the prompt, three for the answer");
    let lease = grant.lease;
    let have = |world: &mut World, blocks| {
        world.event_of(EngineId(0), EngineEvent::NeedSlots { lease, blocks });
        world.seqs[&lease].slots.len()
    };
    assert_eq!(have(&mut world, 1), 9);
    assert_eq!(have(&mut world, 1), 9, "140 tokens fit");
    assert_eq!(world.seqs[&lease].empty_grants, 1);

    let other = start(&mut world, &prompt(2, 20), 500);
    let lease = other.lease;
    assert_eq!(other.slots.len(), 5);
    let have = |world: &mut World, blocks| {
        world.event_of(EngineId(0), EngineEvent::NeedSlots { lease, blocks });
        (world.seqs[&lease].slots.len(), world.seqs[&lease].empty_grants)
    };
    assert_eq!(have(&mut world, 1), (7, 0), "two were left");
    assert_eq!(have(&mut world, 1), (7, 1), "no room");
    world.finish(grant.lease);
    assert_eq!(have(&mut world, 5), (12, 1), "cached blocks make room");
    world.settle();
}
