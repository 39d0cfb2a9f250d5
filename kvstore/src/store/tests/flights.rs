//! Requests that wait for the prefill of another one.

use super::world::*;
use super::*;
use crate::messages::Prepare;
use protocol::hash::Token;
use protocol::op::EngineOp;
use protocol::prompt::Refusal;

fn roomy() -> World {
    World::new(Setup { slots: 64, ..Setup::default() })
}

/// A request; its lease, and whether it waits.
fn arrive(world: &mut World, tokens: &[Token]) -> (LeaseId, bool) {
    let ask = world.ask(tokens, 1);
    arrive_as(world, tokens, ask)
}

fn arrive_as(world: &mut World, tokens: &[Token], ask: Prepare) -> (LeaseId, bool) {
    let lease = ask.lease;
    let answer = world.try_prepare(tokens, ask);
    assert!(answer.as_ref().is_none_or(Result::is_ok), "{answer:?}");
    (lease, answer.is_none())
}

/// Blocks that were ready when a request got its slots.
fn ready(world: &World, lease: LeaseId) -> Option<u32> {
    world.log.iter().find_map(|out| match out {
        Out::Granted(grant) if grant.lease == lease => Some(grant.ready),
        _ => None,
    })
}

#[test]
fn of_equal_prompts_at_once_one_is_computed() {
    let mut world = roomy();
    let tokens = prompt(1, 100);
    let (first, waits) = arrive(&mut world, &tokens);
    assert!(!waits);
    let others: Vec<LeaseId> = (0..4)
        .map(|_| {
            let (lease, waits) = arrive(&mut world, &tokens);
            assert!(waits);
            lease
        })
        .collect();
    assert_eq!(world.store.stats().prefill_waiting, 4);
    world.submit(first);
    for _ in 0..5 {
        world.compute(first, false);
        assert_eq!(world.waiting(), others, "the common part is not whole");
    }
    world.compute(first, false);
    assert!(world.waiting().is_empty());
    for lease in &others {
        assert_eq!(ready(&world, *lease), Some(6));
        world.finish(*lease);
    }
    world.finish(first);
    let c = world.counters();
    assert_eq!((c.sealed, c.duplicates), (6, 0));
    assert_eq!((c.engine_tokens, c.uncached_tokens), (4 * 96, 100 + 4 * 4));
    assert_eq!((c.prefill_waits, c.prefill_waits_late), (4, 0));
    world.settle();
}

#[test]
fn only_what_is_shared_is_waited_for() {
    let mut world = roomy();
    let (first, _) = arrive(&mut world, &shared(48, 1, 100));
    let (other, waits) = arrive(&mut world, &shared(48, 2, 90));
    assert!(waits);
    world.submit(first);
    for blocks in 1..=3 {
        assert_eq!(ready(&world, other), None, "{blocks}");
        world.compute(first, false);
    }
    assert_eq!(ready(&world, other), Some(3));
    world.settle();
}

#[test]
fn when_the_leader_goes_the_next_one_leads() {
    let mut world = roomy();
    let tokens = prompt(1, 100);
    let [(first, _), (second, _), (third, _)] = [(); 3].map(|()| arrive(&mut world, &tokens));
    world.submit(first);
    world.compute(first, false);
    world.compute(first, false);
    world.release(first);
    assert_eq!((ready(&world, second), world.waiting()), (Some(2), vec![third]));
    world.finish(second);
    assert_eq!(ready(&world, third), Some(6));
    world.finish(third);
    assert_eq!(world.counters().sealed, 6);
    world.settle();
}

#[test]
fn those_who_wait_hear_that_the_engine_died() {
    let mut world = roomy();
    let tokens = prompt(1, 100);
    arrive(&mut world, &tokens);
    let (other, _) = arrive(&mut world, &tokens);
    world.die(EngineId(0));
    assert!(world.log.contains(&Out::Refused(other, Refusal::Gone)));
    world.settle();
}

#[test]
fn nobody_waits_for_one_that_stands_still() {
    let mut world = roomy();
    let tokens = prompt(1, 100);
    let (first, _) = arrive(&mut world, &tokens);
    let (other, _) = arrive(&mut world, &tokens);
    let wait = world.store.limits.prefill_wait;
    assert_eq!(world.store.deadline(), Some(world.now + wait));
    world.submit(first);
    for blocks in 1..4 {
        world.compute(first, false);
        world.advance(wait);
        assert_eq!(ready(&world, other), None, "{blocks} blocks: it goes on");
    }
    world.advance(wait);
    assert_eq!(ready(&world, other), Some(3), "with what is there");
    assert_eq!(world.counters().prefill_waits_late, 1);
    world.settle();
}

#[test]
fn who_leaves_while_it_waits_leaves_nothing() {
    let mut world = roomy();
    let tokens = prompt(1, 100);
    let (first, _) = arrive(&mut world, &tokens);
    let (other, _) = arrive(&mut world, &tokens);
    world.release(other);
    assert_eq!((world.store.stats().prefill_waiting, world.counters().stale), (0, 0));
    world.finish(first);
    assert_eq!(ready(&world, other), None);
    world.settle();
}

#[test]
fn who_gains_little_or_has_another_way_does_not_wait() {
    // A short part in common with a long prompt: a chunk of that may take longer.
    let mut world = World::new(Setup { slots: 200, ..Setup::default() });
    arrive(&mut world, &shared(32, 1, 2000));
    assert_eq!(arrive(&mut world, &shared(32, 2, 90)), (LeaseId(2), false));

    // Less priority.
    let mut world = roomy();
    let tokens = prompt(1, 100);
    arrive(&mut world, &tokens);
    let ask = Prepare { priority: 1, ..world.ask(&tokens, 1) };
    assert!(!arrive_as(&mut world, &tokens, ask).1);

    // A peer has it.
    let mut world = roomy();
    arrive(&mut world, &tokens);
    let ask = Prepare { sources: vec![world.source(96)], ..world.ask(&tokens, 1) };
    assert!(!arrive_as(&mut world, &tokens, ask).1);

    // Another engine.
    let mut world = World::new(Setup { slots: 64, engines: 2, ..Setup::default() });
    arrive(&mut world, &tokens);
    let ask = Prepare { engine: EngineId(1), ..world.ask(&tokens, 1) };
    assert!(!arrive_as(&mut world, &tokens, ask).1);

    // It is here already, and nobody computes it.
    let mut world = roomy();
    world.serve(&tokens, 1);
    arrive(&mut world, &tokens);
    assert!(!arrive(&mut world, &tokens).1);

    // The leader only decodes.
    let mut world = roomy();
    let (first, _) = arrive(&mut world, &tokens);
    world.submit(first);
    while world.compute(first, false) {}
    assert!(!arrive(&mut world, &tokens).1);
    assert!(!world.log.iter().any(|out| matches!(out, Out::Engine(_, EngineOp::Missed { .. }))));
}
