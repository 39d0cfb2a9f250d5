//! Blocks brought up before anybody asks.

use super::world::*;
use super::*;
use crate::messages::PrefetchId;

fn stored(n: usize) -> World {
    let setup = Setup { nvme: 64, ..Setup::default() };
    let mut world = World::new(setup);
    world.serve(&prompt(1, n), 1);
    world.restart(setup)
}

fn prefetch(world: &mut World, id: u64, n: usize) {
    let (id, keys) = (PrefetchId(id), world.keys(&prompt(1, n)));
    world.give(In::Prefetch(Prefetch { id, keys, within: Span::secs(5) }));
}

fn counts(world: &World) -> [u64; 5] {
    let c = world.counters();
    [c.prefetch_asked, c.prefetch_used, c.prefetch_late, c.prefetch_wasted, c.prefetch_failed]
}

#[test]
fn a_guess_that_comes_true_makes_the_prompt_ready_in_dram() {
    let mut world = stored(100);
    prefetch(&mut world, 1, 100);
    assert_eq!(world.disk.pending.len(), 4, "an eighth of DRAM at once");
    world.perform_all();
    assert_eq!(world.run(Name::Dram, &prompt(1, 100)), 6);
    world.serve(&prompt(1, 100), 1);
    assert_eq!(world.counters().dram_tokens, 96);
    assert_eq!(counts(&world), [6, 6, 0, 0, 0]);
    assert!(world.store.deadline().is_some());
    world.settle();
}

#[test]
fn a_guess_that_does_not_is_wasted_and_stays_as_cache() {
    let mut world = stored(100);
    prefetch(&mut world, 1, 50);
    world.perform_all();
    world.advance(Span::secs(5));
    assert_eq!(counts(&world), [3, 0, 0, 3, 0]);
    assert_eq!(world.run(Name::Dram, &prompt(1, 100)), 3);
    world.settle();
}

#[test]
fn a_request_that_is_quicker_takes_over_the_read_and_keeps_its_own_deadline() {
    let mut world = stored(40);
    prefetch(&mut world, 1, 40);
    let tokens = prompt(1, 40);
    let ask = world.ask(&tokens, 1);
    let grant = world.prepare(&tokens, ask).unwrap();
    assert_eq!((grant.arriving.len(), world.counters().nvme_reads), (2, 2));
    let patience = world.store.limits.disk_read;
    assert!(grant.arriving.iter().all(|arriving| arriving.deadline == world.now + patience));
    world.finish(grant.lease);
    assert_eq!((counts(&world), world.counters().nvme_tokens), ([2, 0, 2, 0, 0], 32));
    world.settle();
}

#[test]
fn a_cancelled_guess_asks_for_no_more() {
    let mut world = stored(200);
    prefetch(&mut world, 1, 200);
    world.perform_disk(0, 2); // the root cannot be read: what follows it has no parent
    world.give(In::PrefetchEnd(PrefetchId(1)));
    world.perform_all();
    assert_eq!(world.run(Name::Dram, &prompt(1, 200)), 0);
    let [asked, used, late, wasted, failed] = counts(&world);
    assert_eq!((asked, used, late), (4, 0, 0), "what followed the root was on its way");
    assert_eq!((wasted, failed), (0, 4));
    world.settle();
}

#[test]
fn guesses_are_bounded_and_numbers_are_not_used_twice() {
    let limits = Limits { prefetches: 2, ..Limits::default() };
    let setup = Setup { nvme: 64, limits, ..Setup::default() };
    let mut world = World::new(setup);
    for id in [1, 1, 2, 3] {
        prefetch(&mut world, id, 100); // nothing is there
    }
    assert_eq!((world.counters().prefetch_refused, counts(&world)[0]), (2, 0));
    world.settle();
}
