//! How things end: reads, leases, engines, sessions, blocks.

use super::world::*;
use super::*;
use protocol::block::{BlockClass, Claim, SlotId};
use protocol::event::Holder;
use protocol::id::{SessionId, TenantId};
use protocol::op::{OpId, ReadId};
use protocol::prompt::{RangeClaim, Refusal};
use protocol::time::Span;

fn claim(world: &mut World, session: &str, ttl: Option<u64>, max_age: Option<u64>) -> RangeClaim {
    let claim = Claim {
        session: SessionId::new(session),
        tenant: TenantId("not the request's".into()),
        class: BlockClass::System,
        priority: 0,
        ttl: ttl.map(Span::secs),
        max_age: max_age.map(Span::secs),
    };
    RangeClaim { start: 0, end: 2 * world.size as u32, claim }
}

fn serve_claimed(world: &mut World, family: u32, n: usize, claim: RangeClaim) {
    let tokens = prompt(family, n);
    let mut ask = world.ask(&tokens, 1);
    ask.claims.push(claim);
    let grant = world.prepare(&tokens, ask).unwrap();
    world.finish(grant.lease);
}

#[test]
fn a_peers_read_ends_when_it_says_so_or_its_time_is_over() {
    let mut world = World::new(Setup { dram: 6, ..Setup::default() });
    world.serve(&prompt(1, 100), 1);
    let keys = world.keys(&prompt(1, 100));
    let first = world.read(keys[..2].to_vec(), Span::millis(300));
    let second = world.read(keys.clone(), Span::secs(3600));
    let lent = |world: &World, read: ReadId| {
        world.reads[&read].iter().filter(|block| block.place.is_some()).count()
    };
    assert_eq!((lent(&world, first), lent(&world, second)), (2, 1), "half of DRAM at most");
    assert_eq!(world.store.deadline(), Some(world.now + Span::millis(300)));
    world.serve(&prompt(2, 100), 1);
    assert_eq!(world.run(Name::Dram, &prompt(1, 100)), 2, "what is lent is not evicted");
    world.give(In::ReadDone(second));
    world.advance(Span::millis(300));
    assert_eq!((world.store.stats().reads, world.counters().read_expired), (0, 1));
    world.give(In::ReadDone(first)); // late, ignored
    assert_eq!(world.store.deadline(), None);
    world.serve(&prompt(3, 100), 1);
    assert_eq!(world.run(Name::Dram, &prompt(1, 100)), 0);
    world.settle();
}

#[test]
fn a_reused_read_id_lends_nothing() {
    let mut world = World::new(Setup::default());
    world.serve(&prompt(1, 50), 1);
    let keys = world.keys(&prompt(1, 50));
    let read = world.read(keys.clone(), Span::secs(1));
    let reader = world.peer();
    world.give(In::Read { read, reader, keys, within: Span::secs(1) });
    assert!(world.reads[&read].iter().all(|block| block.place.is_none()));
    world.give(In::ReadDone(read));
    world.settle();
}

#[test]
fn a_slot_that_is_copied_from_stays_until_the_copy_ends() {
    let mut world = World::new(Setup { slots: 4, batch: 0, ..Setup::default() });
    let tokens = prompt(1, 30);
    let ask = world.ask(&tokens, 1);
    let grant = world.prepare(&tokens, ask).unwrap();
    world.submit(grant.lease);
    assert!(world.compute(grant.lease, false));
    world.release(grant.lease);
    let slots = world.store.stats().tiers[0].slots;
    assert_eq!((slots.cached, slots.free), (1, 3));
    // A prompt that needs all four slots must wait for the copy, and then gets a new generation.
    let other = prompt(2, 60);
    let ask = world.ask(&other, 1);
    assert!(matches!(world.prepare(&other, ask.clone()), Err(Refusal::Busy { .. })));
    world.perform_all();
    let second = world.prepare(&other, ask).unwrap();
    let again = second.slots.iter().find(|slot| slot.slot == grant.slots[0].slot).unwrap();
    assert!(again.generation > grant.slots[0].generation);
    world.settle();
}

#[test]
fn a_slot_that_is_copied_into_drains() {
    let mut world = World::new(Setup::default());
    let tokens = prompt(1, 50);
    world.serve(&tokens, 1);
    world.lose_engine();
    let ask = world.ask(&tokens, 1);
    let grant = world.prepare(&tokens, ask).unwrap();
    world.submit(grant.lease);
    world.release(grant.lease);
    let slots = world.store.stats().tiers[0].slots;
    assert_eq!((slots.draining, slots.free), (3, 29));
    let dram = &world.store.dram;
    let held = (0..32).filter(|slot| dram.uses(SlotId(*slot)).1 > 0).count();
    assert_eq!(held, 3, "the sources are held too");
    world.perform_all();
    assert_eq!(world.store.stats().tiers[0].slots.free, 32);
    world.settle();
}

#[test]
fn a_dead_engine_leaves_dram_behind() {
    let mut world = World::new(Setup::default());
    let tokens = prompt(1, 100);
    world.serve(&tokens, 1);
    let ask = world.ask(&prompt(2, 40), 1);
    let lease = world.prepare(&prompt(2, 40), ask).unwrap().lease;
    world.submit(lease);
    assert!(world.compute(lease, false));
    world.log.clear();
    world.die(EngineId(0));
    let holder = Holder::Engine(EngineId(0));
    assert!(world.log.contains(&Out::Event(BlockEvent::Cleared { holder })));
    assert_eq!(world.run(Name::Dram, &tokens), 6);
    world.give(In::Released(lease)); // late
    world.event_of(EngineId(0), EngineEvent::Exported { op: OpId(7), digest: None }); // late
    assert_eq!(world.counters().stale, 2);
    let ask = world.ask(&tokens, 1);
    assert_eq!(world.prepare(&tokens, ask), Err(Refusal::Gone));
    world.give(In::EngineUp(EngineId(0)));
    world.serve(&tokens, 1);
    world.settle();
    assert_eq!(world.counters().dram_tokens, 96);
}

#[test]
fn a_pinned_prefix_survives_pressure_until_its_time() {
    let mut world = World::new(Setup { slots: 10, dram: 10, ..Setup::default() });
    let pin = claim(&mut world, "a", Some(100), None);
    serve_claimed(&mut world, 1, 50, pin);
    for family in 2..6 {
        world.serve(&prompt(family, 100), 1);
        world.advance(Span::secs(1));
    }
    let kept = |world: &World| {
        [Name::Engine(EngineId(0)), Name::Dram].map(|tier| world.run(tier, &prompt(1, 50)))
    };
    assert_eq!(kept(&world), [2, 2]);
    // A prompt that needs every slot is served all the same.
    world.serve(&prompt(7, 155), 1);
    assert_eq!(kept(&world)[0], 0);
    assert_eq!(world.store.stats().tiers[0].pins_broken, 2);
    world.advance(Span::secs(600));
    world.serve(&prompt(8, 155), 1);
    world.serve(&prompt(9, 155), 1);
    assert_eq!(kept(&world), [0, 0]);
    world.settle();
}

#[test]
fn the_end_of_a_session_ends_its_claims_and_not_its_blocks() {
    let mut world = World::new(Setup { slots: 12, dram: 0, ..Setup::default() });
    let pin = claim(&mut world, "agent", Some(100), None);
    serve_claimed(&mut world, 1, 40, pin);
    let session = SessionId::new("agent").unwrap();
    let tenant = TenantId("not the request's".into());
    world.give(In::SessionFinal { tenant, session: session.clone() });
    assert_eq!(world.store.stats().tiers[0].pinned, 2, "another tenant's session");
    world.give(In::SessionFinal { tenant: TenantId::local(), session });
    assert_eq!(world.store.stats().tiers[0].pinned, 0);
    assert_eq!(world.run(Name::Engine(EngineId(0)), &prompt(1, 40)), 2);
    world.settle();
}

#[test]
fn at_its_legal_age_a_block_leaves_every_tier() {
    let mut world = World::new(Setup { engines: 2, ..Setup::default() });
    let start = world.now;
    let bound = claim(&mut world, "a", None, Some(30));
    serve_claimed(&mut world, 1, 50, bound);
    world.advance(Span::secs(10));
    // Another engine's copy, made later by a request without claims, ends at the same time.
    let tokens = prompt(1, 50);
    let mut ask = world.ask(&tokens, 1);
    ask.engine = EngineId(1);
    let grant = world.prepare(&tokens, ask).unwrap();
    world.finish(grant.lease);
    assert_eq!(world.run(Name::Engine(EngineId(1)), &tokens), 3);
    assert_eq!(world.store.deadline(), Some(start + Span::secs(30)));
    world.advance(Span::secs(20));
    assert!(world.index.is_empty());
    world.settle();
}

#[test]
fn what_arrives_after_its_parents_legal_end_is_dropped() {
    let mut world = World::new(Setup::default());
    let tokens = prompt(1, 50);
    let mut ask = world.ask(&tokens, 1);
    let mut bound = claim(&mut world, "a", None, Some(1));
    bound.end = 16;
    ask.claims.push(bound);
    ask.sources.push(world.source(50));
    let grant = world.prepare(&tokens, ask).unwrap();
    let op = *world.fetches.keys().next().unwrap();
    world.decide(op, 0, 0);
    assert_eq!(world.run(Name::Dram, &tokens), 1);
    world.release(grant.lease);
    world.advance(Span::secs(1));
    assert!(world.index.is_empty());
    for index in [2, 1] {
        world.decide(op, index, 0);
    }
    world.end_fetch(op);
    assert_eq!(world.store.stats().tiers[1].slots.free, 32);
    world.settle();
}
