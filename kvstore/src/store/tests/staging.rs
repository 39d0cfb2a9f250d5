//! Peers' reads of blocks that are only on NVMe.

use super::world::*;
use super::*;
use protocol::op::ReadId;

fn stored(setup: Setup, n: usize) -> World {
    let mut world = World::new(setup);
    world.serve(&prompt(1, n), 1);
    world.restart(setup)
}

fn setup() -> Setup {
    Setup { nvme: 64, dram: 32, ..Setup::default() }
}

fn lent(world: &World, read: ReadId) -> Option<Vec<bool>> {
    let blocks = world.reads.get(&read)?;
    Some(blocks.iter().map(|block| block.place.is_some()).collect())
}

#[test]
fn blocks_come_up_for_a_peer_and_are_lent_with_their_digest() {
    let mut world = stored(setup(), 100);
    let keys = world.keys(&prompt(1, 100));
    let read = world.read(keys[..4].to_vec(), Span::secs(2));
    assert_eq!((lent(&world, read), world.disk.pending.len()), (None, 4));
    for pick in [3, 0, 0] {
        world.perform_disk(pick, 0);
        assert_eq!(lent(&world, read), None, "waits for all");
    }
    world.perform_disk(0, 0);
    assert_eq!(lent(&world, read), Some(vec![true; 4]));
    world.give(In::ReadDone(read));
    assert_eq!(world.run(Name::Dram, &prompt(1, 100)), 4, "and stay as cache");
    world.settle();
    assert_eq!(world.counters().read_staged, 4);
}

#[test]
fn a_block_whose_parent_stays_on_disk_is_lent_and_then_dropped() {
    let mut world = stored(setup(), 100);
    let keys = world.keys(&prompt(1, 100));
    let read = world.read(keys[3..5].to_vec(), Span::secs(2));
    world.perform_disk(0, 0);
    world.perform_disk(0, 0);
    assert_eq!(lent(&world, read), Some(vec![true; 2]));
    let again = world.read(keys[3..4].to_vec(), Span::secs(1));
    assert_eq!(lent(&world, again), Some(vec![true]), "at once");
    world.give(In::ReadDone(read));
    world.give(In::ReadDone(again));
    assert_eq!(world.store.stats().tiers[1].slots.free, 32);
    assert_eq!(world.run(Name::Nvme, &prompt(1, 100)), 6);
    world.settle();
}

#[test]
fn when_half_of_its_time_is_over_a_read_gets_what_there_is() {
    let mut world = stored(setup(), 100);
    let keys = world.keys(&prompt(1, 100));
    let read = world.read(keys[..3].to_vec(), Span::secs(2));
    world.perform_disk(0, 0);
    assert_eq!(world.store.deadline(), Some(world.now + Span::secs(1)));
    world.advance(Span::secs(1));
    assert_eq!(lent(&world, read), Some(vec![true, false, false]));
    world.perform_disk(0, 0); // too late for this read
    assert_eq!(world.store.stats().reads, 1);
    world.advance(Span::secs(1));
    assert_eq!((world.store.stats().reads, world.counters().read_partial), (0, 1));
    world.settle();
}

#[test]
fn what_fails_is_absent_and_a_read_that_gets_nothing_is_over() {
    let mut world = stored(setup(), 100);
    let keys = world.keys(&prompt(1, 100));
    let read = world.read(keys[..2].to_vec(), Span::secs(2));
    world.perform_disk(1, 2);
    world.perform_disk(0, 3);
    assert_eq!(lent(&world, read), Some(vec![false, false]));
    assert_eq!((world.store.stats().reads, world.store.deadline()), (0, None));
    world.settle();
}

#[test]
fn a_waiting_read_stops_no_other_and_uses_its_share_of_dram_only() {
    let mut world = stored(setup(), 300);
    let keys = world.keys(&prompt(1, 300));
    let waiting = world.read(keys[..12].to_vec(), Span::secs(2));
    assert_eq!(world.disk.pending.len(), 4, "an eighth of DRAM");
    let second = world.read(keys[12..].to_vec(), Span::secs(2));
    assert_eq!(lent(&world, second).unwrap(), vec![false; 6], "the share is used up");
    let shared = world.read(keys[..2].to_vec(), Span::secs(2)); // joins, needs no more room
    assert_eq!(lent(&world, shared), None);
    world.serve(&prompt(2, 50), 1);
    assert!(lent(&world, waiting).unwrap().iter().filter(|lent| **lent).count() == 4);
    assert_eq!(lent(&world, shared), Some(vec![true; 2]));
    let here = world.keys(&prompt(2, 50));
    let read = world.read(here, Span::secs(2));
    assert_eq!(lent(&world, read), Some(vec![true; 3]));
    for read in [waiting, shared, read] {
        world.give(In::ReadDone(read));
    }
    world.read(keys[4..8].to_vec(), Span::secs(2));
    assert_eq!(world.disk.pending.len(), 4, "the share is free again");
    world.settle();
}

#[test]
fn a_peer_that_goes_away_while_it_waits_leaves_nothing_behind() {
    let mut world = stored(setup(), 100);
    let keys = world.keys(&prompt(1, 100));
    let read = world.read(keys[3..5].to_vec(), Span::secs(2));
    world.perform_disk(0, 0);
    world.give(In::ReadDone(read));
    assert_eq!(lent(&world, read), Some(vec![false; 2]), "answered all the same");
    world.perform_all();
    assert_eq!(world.store.stats().tiers[1].slots.free, 32);
    world.settle();
}

#[test]
fn a_request_can_use_what_comes_up_for_a_peer() {
    let mut world = stored(setup(), 100);
    let tokens = prompt(1, 100);
    let keys = world.keys(&tokens);
    let read = world.read(keys[..4].to_vec(), Span::secs(2));
    let ask = world.ask(&tokens, 1);
    let grant = world.prepare(&tokens, ask).unwrap();
    assert_eq!((grant.arriving.len(), world.counters().nvme_reads), (6, 6));
    world.give(In::ReadDone(read));
    world.finish(grant.lease);
    assert_eq!(world.counters().nvme_tokens, 96);
    world.settle();
}
