//! Members that come, go, and come back.

use crate::world::{World, id, value};
use protocol::event::MemberState;
use protocol::state::{Kept, RecordId};
use protocol::time::Span;
use state::{Deleted, In};

fn names() -> impl Iterator<Item = RecordId> {
    (0..200).map(|n| id(n, n))
}

#[test]
fn the_records_of_a_dead_owner_get_a_third_copy_again() {
    let mut world = World::new(6, 21);
    names().for_each(|id| assert_eq!(world.put(0, id, &id.key.name), Ok(Kept::Safe)));
    world.pass(Span::secs(1));
    world.crash(3, true);
    world.all_see(3, MemberState::Dead);
    world.pass(Span::secs(15));
    for id in names() {
        assert_eq!(world.on_disk(&id).len(), 3, "{id:?}");
    }
    // And another one, so that any that had only its first two copies would be lost.
    for h in [1, 2] {
        world.crash(h, true);
        world.all_see(h, MemberState::Dead);
        world.pass(Span::secs(15));
    }
    names().for_each(|id| assert_eq!(value(world.get(0, id)), Some(id.key.name.to_vec())));
}

#[test]
fn a_node_that_comes_back_catches_up() {
    let mut world = World::new(3, 22);
    names().for_each(|id| assert!(world.put(0, id, b"old").is_ok()));
    world.pass(Span::secs(1));
    world.crash(2, false);
    world.all_see(2, MemberState::Dead);
    for (n, id) in names().enumerate() {
        if n % 3 == 0 {
            assert_eq!(world.delete(0, id), Ok(Deleted::Gone(Kept::Safe)));
        } else if n % 3 == 1 {
            assert_eq!(world.put(1, id, b"new"), Ok(Kept::Safe));
        }
    }
    world.restart(2);
    world.pass(Span::secs(15));
    // Alone it must know.
    for (n, id) in names().enumerate() {
        let held = &world.hosts[2].disk[&id];
        assert_eq!(held.deleted, n % 3 == 0);
        assert_eq!(held.value, [&b""[..], b"new", b"old"][n % 3]);
    }
}

#[test]
fn two_sides_of_a_partition_agree_again() {
    let mut world = World::new(4, 23);
    names().for_each(|id| assert!(world.put(0, id, b"old").is_ok()));
    let sides = [[0, 1], [2, 3]];
    for (side, other) in [(sides[0], sides[1]), (sides[1], sides[0])] {
        for h in side {
            for o in other {
                world.cut.insert((h, o));
                world.sees(h, o, MemberState::Dead);
            }
        }
    }
    for (n, id) in names().enumerate() {
        assert!(world.put([0, 2][n % 2], id, &[n as u8, 1]).is_ok());
    }
    world.cut.clear();
    for h in 0..4 {
        world.all_see(h, MemberState::Alive);
    }
    world.pass(Span::secs(20));
    for (n, id) in names().enumerate() {
        for h in 0..4 {
            assert_eq!(value(world.get(h, id)), Some(vec![n as u8, 1]), "at node {h}");
        }
    }
}

#[test]
fn who_leaves_hands_over_first() {
    let mut world = World::new(5, 24);
    names().for_each(|id| assert!(world.put(0, id, b"a").is_ok()));
    world.pass(Span::secs(1));
    world.input(4, In::Leave);
    world.pass(Span::secs(10));
    assert!(world.hosts[4].handed_over);
    world.crash(4, true);
    world.all_see(4, MemberState::Left);
    for id in names() {
        assert_eq!(world.on_disk(&id).len(), 3, "{id:?}");
    }
    assert_eq!(world.put(1, id(1, 250), b"b"), Ok(Kept::Safe));
}

#[test]
fn who_leaves_takes_no_more_copies() {
    let mut world = World::new(3, 25);
    world.input(1, In::Leave);
    world.pass(Span::secs(1));
    assert_eq!(world.put(0, id(1, 1), b"a"), Ok(Kept::Safe));
    world.pass(Span::secs(1));
    assert!(world.on_disk(&id(1, 1)).iter().all(|(h, _)| *h != 1));
}

#[test]
fn pushes_keep_to_their_rate() {
    let mut world = World::tuned(3, 26, |config| config.push_bytes_s = 1 << 20);
    for n in 0..20 {
        assert!(world.put(0, id(n, n), &vec![n; 500_000]).is_ok());
    }
    world.pass(Span::secs(1));
    world.crash(2, true);
    world.restart(2);
    let here = |world: &World| world.hosts[2].disk.len();
    // Ten megabytes, from two peers.
    world.pass(Span::secs(2));
    assert!(here(&world) < 16, "{}", here(&world));
    world.pass(Span::secs(30));
    assert_eq!(here(&world), 20);
}

#[test]
fn at_rest_nothing_is_pushed_and_little_is_said() {
    let mut world = World::new(4, 27);
    names().for_each(|id| assert!(world.put(0, id, b"a").is_ok()));
    world.pass(Span::secs(30));
    let counters = |world: &World| {
        let each = world.hosts.iter().filter_map(|host| host.machine.as_ref());
        each.map(|m| (m.counters().pushed, m.counters().mismatches)).collect::<Vec<_>>()
    };
    let before = counters(&world);
    world.pass(Span::secs(60));
    assert_eq!(counters(&world), before);
    let stats = world.hosts[0].machine.as_ref().unwrap().stats();
    assert_eq!((stats.ops, stats.unwritten, stats.pushes), (0, 0, 0));
}

/// Twenty records of half a megabyte that only the first of three nodes has, at a low rate.
fn only_one_has_them() -> World {
    let mut world = World::tuned(3, 28, |config| config.push_bytes_s = 1 << 20);
    for n in 0..20 {
        assert!(world.put(0, id(n, n), &vec![n; 500_000]).is_ok());
    }
    world.pass(Span::secs(1));
    for h in [1, 2] {
        world.crash(h, true);
    }
    world.cut.extend([(1, 2), (2, 1)]);
    for h in [1, 2] {
        world.restart(h);
    }
    world
}

#[test]
fn peers_get_their_pushes_in_turn() {
    let mut world = only_one_has_them();
    world.pass(Span::secs(9));
    let here = [1, 2].map(|h| world.hosts[h].disk.len());
    assert!(here.iter().all(|here| *here >= 5) && here.iter().sum::<usize>() < 40, "{here:?}");
}

#[test]
fn what_waits_for_a_dead_peer_is_forgotten() {
    let mut world = only_one_has_them();
    world.pass(Span::secs(3));
    assert!(world.stats(0).pushes > 20, "{:?}", world.stats(0));
    world.crash(1, false);
    world.sees(0, 1, MemberState::Dead);
    world.pass(Span::millis(1500));
    let (pushes, here) = (world.stats(0).pushes as usize, world.hosts[2].disk.len());
    assert!(pushes + here <= 20, "{pushes} wait for the other, which has {here}");
}
