//! What was deleted stays away though a later write took the deletion's place, and went before it.

use crate::world::{World, id, value};
use protocol::state::Kept;
use protocol::time::Span;
use state::Deleted;

const HOUR: Span = Span::secs(3600);

/// Of three nodes the first has what was deleted on its disk, and nothing later.
fn deleted_and_written_again(mut world: World, ttl: Span) -> World {
    assert_eq!(world.put_for(1, id(1, 1), b"old", HOUR), Ok(Kept::Safe));
    world.pass(Span::secs(1));
    world.hosts[0].disk_fails = true;
    assert_eq!(world.delete(1, id(1, 1)), Ok(Deleted::Gone(Kept::Safe)));
    assert_eq!(world.put_for(1, id(1, 1), b"new", ttl), Ok(Kept::Safe));
    world
}

fn first_comes_back(world: &mut World) {
    world.crash(0, false);
    assert_eq!(world.hosts[0].disk[&id(1, 1)].value, b"old");
    world.hosts[0].disk_fails = false;
    world.restart(0);
    world.pass(Span::secs(80));
}

fn assert_gone(world: &mut World) {
    for h in 0..3 {
        assert_eq!(value(world.get(h, id(1, 1))), None);
    }
    assert_eq!(world.on_disk(&id(1, 1)), [(0, true), (1, true), (2, true)]);
}

#[test]
fn what_was_deleted_stays_away_when_the_time_of_a_later_write_is_over() {
    let mut world = deleted_and_written_again(World::new(3, 61), Span::secs(9));
    world.pass(Span::secs(10));
    first_comes_back(&mut world);
    assert_gone(&mut world);
    assert_eq!(world.put(2, id(1, 1), b"newer"), Ok(Kept::Safe));
    assert_eq!(value(world.get(0, id(1, 1))), Some(b"newer".to_vec()));
}

#[test]
fn what_was_deleted_stays_away_when_a_later_write_went_for_room() {
    let world = World::tuned(3, 62, |config| config.limit.records = 2);
    let mut world = deleted_and_written_again(world, Span::secs(60));
    for name in [2, 3] {
        assert_eq!(world.put_for(1, id(1, name), b"other", Span::secs(1800)), Ok(Kept::Safe));
    }
    world.pass(Span::secs(10));
    first_comes_back(&mut world);
    assert_gone(&mut world);
}

#[test]
fn what_was_deleted_stays_away_though_the_time_of_a_later_write_ended_while_nodes_were_down() {
    let mut world = World::new(3, 63);
    assert_eq!(world.put_for(1, id(1, 2), b"only", Span::secs(9)), Ok(Kept::Safe));
    let mut world = deleted_and_written_again(world, Span::secs(9));
    (1..3).for_each(|h| world.crash(h, false));
    world.pass(Span::secs(10));
    (1..3).for_each(|h| world.restart(h));
    first_comes_back(&mut world);
    assert_gone(&mut world);
    assert!(world.on_disk(&id(1, 2)).is_empty(), "it replaced nothing");
}

#[test]
fn a_later_write_that_went_for_room_is_read_where_there_was_some() {
    let world = World::tuned(3, 64, |config| {
        config.limit.records = if config.node == crate::world::node(2) { 10 } else { 2 };
    });
    let mut world = deleted_and_written_again(world, Span::secs(600));
    world.hosts[0].disk_fails = false;
    world.pass(Span::secs(5));
    for name in [2, 3] {
        assert_eq!(world.put_for(1, id(1, name), b"other", HOUR), Ok(Kept::Safe));
    }
    world.pass(Span::secs(60));
    assert_eq!(world.on_disk(&id(1, 1)), [(0, true), (1, true), (2, false)]);
    for h in 0..3 {
        assert_eq!(value(world.get(h, id(1, 1))), Some(b"new".to_vec()));
    }
    let pushed = |world: &World| [0, 1, 2].map(|h| world.counters(h).pushed);
    let before = pushed(&world);
    world.pass(Span::secs(120));
    assert_eq!(pushed(&world), before, "at rest");
}
