//! Writes, reads and deletions while nothing is wrong, and with owners that are not there.

use crate::world::{DAY, World, id, value};
use protocol::event::MemberState;
use protocol::state::{Kept, StateError, TTL_MAX, VALUE_MAX};
use protocol::time::Span;
use state::{Answer, Deleted, Found, In};

#[test]
fn what_is_put_anywhere_is_read_everywhere_and_lies_on_three_disks() {
    let mut world = World::new(5, 1);
    assert_eq!(world.put(0, id(7, 1), b"one"), Ok(Kept::Safe));
    for h in 0..5 {
        let found = world.get(h, id(7, 1));
        assert_eq!(found, Ok(Found { value: Some(b"one".to_vec()), confirmed: true }));
    }
    world.pass(Span::secs(1));
    assert_eq!(world.on_disk(&id(7, 1)).len(), 3);
    assert_eq!(value(world.get(2, id(7, 2))), None);
}

#[test]
fn the_later_of_two_writes_counts_wherever_they_came_in() {
    let mut world = World::new(6, 2);
    for round in 0..20u8 {
        let (one, other) = (usize::from(round) % 6, usize::from(round + 1) % 6);
        world.put(one, id(3, 1), &[round, 1]).unwrap();
        world.put(other, id(3, 1), &[round, 2]).unwrap();
        assert_eq!(value(world.get(usize::from(round) % 5, id(3, 1))), Some(vec![round, 2]));
    }
}

#[test]
fn what_is_deleted_is_gone_everywhere_and_can_be_written_again() {
    let mut world = World::new(5, 3);
    world.put(0, id(1, 1), b"a").unwrap();
    assert_eq!(world.delete(4, id(1, 1)), Ok(Deleted::Gone(Kept::Safe)));
    assert_eq!(world.delete(3, id(1, 1)), Ok(Deleted::Absent));
    for h in 0..5 {
        assert_eq!(value(world.get(h, id(1, 1))), None);
    }
    world.put(2, id(1, 1), b"b").unwrap();
    assert_eq!(value(world.get(1, id(1, 1))), Some(b"b".to_vec()));
}

#[test]
fn one_node_alone_is_a_cluster() {
    let mut world = World::new(1, 4);
    assert_eq!(world.put(0, id(1, 1), b"a"), Ok(Kept::Safe));
    assert_eq!(value(world.get(0, id(1, 1))), Some(b"a".to_vec()));
    assert_eq!(value(world.get(0, id(1, 2))), None);
    world.crash(0, false);
    world.restart(0);
    assert_eq!(value(world.get(0, id(1, 1))), Some(b"a".to_vec()));
    assert_eq!(world.delete(0, id(1, 1)), Ok(Deleted::Gone(Kept::Safe)));
    assert_eq!(value(world.get(0, id(1, 1))), None);
}

#[test]
fn a_write_that_reaches_one_disk_is_degraded_and_none_is_an_error() {
    let mut world = World::new(3, 5);
    world.crash(1, false);
    world.crash(2, false);
    // It does not know of their end yet.
    assert_eq!(world.put(0, id(1, 1), b"a"), Ok(Kept::Degraded { acks: 1 }));
    world.hosts[0].disk_fails = true;
    assert_eq!(world.put(0, id(1, 2), b"a"), Err(StateError::NotKept));
    let stats = *world.hosts[0].machine.as_ref().unwrap().counters();
    assert_eq!((stats.degraded, stats.not_kept), (1, 1));
    world.hosts[0].disk_fails = false;
    world.restart(1);
    world.restart(2);
    world.pass(Span::secs(20));
    assert_eq!(world.on_disk(&id(1, 1)).len(), 3, "copied once there are owners");
}

#[test]
fn a_node_that_owns_nothing_of_it_keeps_what_no_owner_takes() {
    let mut world = World::new(5, 6);
    let owners = world.owners(&id(9, 1));
    let stranger = (0..5).find(|h| !owners.contains(h)).unwrap();
    owners.iter().for_each(|h| world.crash(*h, false));
    assert_eq!(world.put(stranger, id(9, 1), b"a"), Ok(Kept::Degraded { acks: 1 }));
    owners.iter().for_each(|h| world.restart(*h));
    world.pass(Span::secs(20));
    for h in owners {
        assert!(world.hosts[h].disk.contains_key(&id(9, 1)), "handed over");
    }
    world.pass(Span::secs(80));
    assert_eq!(world.on_disk(&id(9, 1)).len(), 3, "and let go of");
}

#[test]
fn absent_is_only_said_when_it_is_known() {
    let mut world = World::new(3, 7);
    world.put(0, id(1, 1), b"a").unwrap();
    world.pass(Span::secs(1));
    // One owner silent, another with an empty disk: the third may have it.
    world.crash(0, true);
    world.restart(0);
    world.crash(1, false);
    world.crash(2, false);
    let told = world.get(0, id(1, 1));
    assert_eq!(told, Err(StateError::Unavailable));
    assert_eq!(world.delete(0, id(1, 1)), Err(StateError::Unavailable));
    world.restart(1);
    assert_eq!(value(world.get(0, id(1, 1))), Some(b"a".to_vec()));
}

#[test]
fn a_lone_copy_is_read_though_unconfirmed() {
    let mut world = World::new(3, 8);
    world.put(0, id(1, 1), b"a").unwrap();
    world.pass(Span::secs(1));
    world.crash(1, false);
    world.crash(2, false);
    let found = world.get(0, id(1, 1));
    assert_eq!(found, Ok(Found { value: Some(b"a".to_vec()), confirmed: false }));
}

#[test]
fn records_end_with_their_time_on_every_node() {
    let mut world = World::new(3, 9);
    let put = |call| In::Put { call, id: id(1, 1), value: b"a".to_vec(), ttl: Span::secs(30) };
    world.call(0, put);
    world.pass(Span::secs(29));
    assert_eq!(value(world.get(1, id(1, 1))), Some(b"a".to_vec()));
    world.pass(Span::secs(3));
    (0..3).for_each(|h| assert_eq!(value(world.get(h, id(1, 1))), None));
    assert!(world.on_disk(&id(1, 1)).is_empty());
    let put = |call| In::Put { call, id: id(1, 2), value: b"a".to_vec(), ttl: TTL_MAX + DAY };
    world.call(0, put);
    world.pass(TTL_MAX + Span::secs(10));
    assert_eq!(value(world.get(1, id(1, 2))), None);
}

#[test]
fn values_have_a_longest_size() {
    let mut world = World::new(3, 10);
    let long = vec![7; VALUE_MAX + 1];
    assert_eq!(world.put(0, id(1, 1), &long), Err(StateError::TooLong(VALUE_MAX + 1)));
    assert_eq!(world.put(0, id(1, 1), &long[1..]), Ok(Kept::Safe));
    assert_eq!(value(world.get(2, id(1, 1))).map(|value| value.len()), Some(VALUE_MAX));
}

#[test]
fn too_many_calls_at_once_are_refused() {
    let mut world = World::new(3, 11);
    let name = |n: u32| id((n / 200) as u8, (n % 200) as u8);
    let calls: Vec<u64> = (0..1100).map(|n| world.begin_put(0, name(n), b"a")).collect();
    world.pass(Span::secs(5));
    let busy =
        |call: &&u64| matches!(world.answers[*call], state::Answer::Put(Err(StateError::Busy)));
    assert_eq!(calls.iter().filter(busy).count(), 76);
    assert!(calls.iter().all(|call| world.answers.contains_key(call)));
}

#[test]
fn a_node_that_has_heard_of_others_does_not_think_that_it_is_alone() {
    let mut world = World::new(3, 12);
    world.put(0, id(1, 1), b"a").unwrap();
    world.pass(Span::secs(1));
    (0..3).for_each(|h| world.crash(h, h == 2));
    world.start(2);
    (0..2).for_each(|h| world.input(2, In::Known(crate::world::node(h))));
    assert_eq!(world.get(2, id(1, 1)), Err(StateError::Unavailable));
    assert_eq!(world.put(2, id(1, 2), b"b"), Ok(Kept::Degraded { acks: 1 }));
}

#[test]
fn calls_for_one_record_at_one_node_do_not_outbid_each_other() {
    let mut world = World::new(3, 13);
    for round in 0..10u8 {
        world.put(0, id(1, 1), &[round]).unwrap();
        let calls = [(); 2].map(|()| world.call(0, |call| In::Delete { call, id: id(1, 1) }));
        world.pass(Span::secs(1));
        let told = calls.map(|call| world.answers.remove(&call).unwrap());
        let first = Answer::Deleted(Ok(Deleted::Gone(Kept::Safe)));
        assert_eq!(told, [first, Answer::Deleted(Ok(Deleted::Absent))]);
        let calls: Vec<u64> = (0..5).map(|n| world.begin_put(0, id(1, 1), &[round, n])).collect();
        world.pass(Span::secs(1));
        for call in calls {
            assert_eq!(world.answers.remove(&call), Some(Answer::Put(Ok(Kept::Safe))));
        }
        assert_eq!(value(world.get(1, id(1, 1))), Some(vec![round, 4]));
    }
    assert_eq!(world.counters(0).bumps, 0);
}

#[test]
fn a_call_has_its_answer_in_its_time_whatever_it_waits_for() {
    let mut world = World::tuned(3, 14, |config| config.settle_after = Span::ZERO);
    world.put(0, id(1, 1), b"a").unwrap();
    world.pass(Span::secs(1));
    world.crash(1, false);
    world.crash(2, false);
    // It looks in vain for those that are silent, and then has its lone copy to delete.
    let mut calls = vec![world.call(0, |call| In::Delete { call, id: id(1, 1) })];
    calls.extend((0..3).map(|n| world.begin_put(0, id(1, 1), &[n])));
    calls.push(world.call(0, |call| In::Delete { call, id: id(1, 2) }));
    world.pass(Span::secs(2));
    let told: Vec<_> = calls.iter().map(|call| world.answers.remove(call)).collect();
    let in_vain = Answer::Put(Err(StateError::Busy));
    let lone = Answer::Deleted(Ok(Deleted::Gone(Kept::Degraded { acks: 1 })));
    let unknown = Answer::Deleted(Err(StateError::Unavailable));
    let puts = [(); 3].map(|()| Some(in_vain.clone()));
    let [one, two, three] = puts;
    assert_eq!(told, [Some(lone), one, two, three, Some(unknown)]);
    assert_eq!(world.stats(0).ops, 0);
}

#[test]
fn that_it_was_deleted_is_no_answer_of_one_owner_while_others_are_silent() {
    let mut world = World::tuned(3, 15, |config| config.settle_after = Span::ZERO);
    world.put(0, id(1, 1), b"old").unwrap();
    assert_eq!(world.delete(0, id(1, 1)), Ok(Deleted::Gone(Kept::Safe)));
    world.pass(Span::secs(1));
    for other in [0, 1] {
        world.cut.extend([(2, other), (other, 2)]);
    }
    assert_eq!(world.put(0, id(1, 1), b"new"), Ok(Kept::Safe));
    assert_eq!(world.get(2, id(1, 1)), Err(StateError::Unavailable));
    assert_eq!(world.delete(2, id(1, 1)), Err(StateError::Unavailable));
    // While it takes them for dead it knows no better: both of those that it asks are missing.
    (0..2).for_each(|other| world.sees(2, other, MemberState::Dead));
    assert_eq!(world.get(2, id(1, 1)), Err(StateError::Unavailable));
    world.cut.clear();
    (0..2).for_each(|other| world.sees(2, other, MemberState::Alive));
    world.pass(Span::secs(15));
    assert_eq!(value(world.get(2, id(1, 1))), Some(b"new".to_vec()));
}
