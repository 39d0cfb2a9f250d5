//! Tables and disks that are full, slow or failing, and records whose time is over.

use crate::world::{DAY, World, id, node, value};
use proptest::prelude::*;
use protocol::state::{Kept, RecordId, StateError};
use protocol::time::{Span, Time};
use state::config::{DISK_BYTES_MAX, DISK_OPS_MAX};
use state::{Config, Deleted, DiskOp, In};
use std::collections::{BTreeMap, BTreeSet};

fn alive(world: &World, h: usize) -> usize {
    world.hosts[h].disk.values().filter(|record| !record.deleted).count()
}

fn pushed(world: &World) -> Vec<u64> {
    (0..world.hosts.len()).map(|h| world.counters(h).pushed).collect()
}

#[test]
fn however_much_is_deleted_there_is_room_for_what_lives() {
    let mut world = World::tuned(3, 41, |config| {
        (config.limit.records, config.limit.deletions) = (10, 6);
    });
    for n in 0..40 {
        assert_eq!(world.put(0, id(n, n), &[n]), Ok(Kept::Safe));
        assert_eq!(world.delete(1, id(n, n)), Ok(Deleted::Gone(Kept::Safe)));
    }
    for n in 40..50 {
        assert_eq!(world.put(2, id(n, n), &[n]), Ok(Kept::Safe));
    }
    for n in 40..50 {
        assert_eq!(value(world.get(0, id(n, n))), Some(vec![n]));
    }
    assert_eq!(world.stats(0).deletions, 6);
}

#[test]
fn nothing_is_dropped_for_what_is_refused_all_the_same() {
    let mut world = World::tuned(3, 42, |config| config.limit.bytes = 20_000);
    for n in 0..10 {
        let ttl = Span::secs(if n < 9 { 3600 } else { 7200 });
        assert_eq!(world.put_for(0, id(n, n), &[n; 1024], ttl), Ok(Kept::Safe));
    }
    // It would need the room of the last one too, which outlives it.
    let long = vec![1; 19_000];
    let refused = world.put_for(0, id(77, 77), &long, Span::secs(5400));
    assert_eq!(refused, Err(StateError::NotKept));
    for n in 0..10 {
        assert_eq!(value(world.get(1, id(n, n))), Some(vec![n; 1024]));
    }
    // A write that is refused leaves what it would have replaced.
    let refused = world.put_for(0, id(3, 3), &long, Span::secs(5400));
    assert_eq!(refused, Err(StateError::NotKept));
    assert_eq!(value(world.get(1, id(3, 3))), Some(vec![3; 1024]));
    assert_eq!(world.put_for(0, id(77, 77), &long, Span::secs(9000)), Ok(Kept::Safe));
    assert_eq!(value(world.get(1, id(77, 77))), Some(long));
}

#[test]
fn a_node_that_is_full_comes_to_rest_beside_others_that_are_not() {
    let mut world = World::tuned(3, 43, |config| {
        if config.node == node(2) {
            config.limit.records = 10;
        }
    });
    let all: Vec<RecordId> = (0..40).map(|n| id(n, n)).collect();
    for id in &all {
        world.put(0, *id, b"a").unwrap();
    }
    world.pass(Span::secs(30));
    assert_eq!(alive(&world, 2), 10);
    let before = pushed(&world);
    world.pass(Span::secs(120));
    assert_eq!(pushed(&world), before);
    // What is freed is filled again.
    let held: Vec<RecordId> = world.hosts[2].disk.keys().copied().collect();
    for id in &held[..5] {
        assert_eq!(world.delete(0, *id), Ok(Deleted::Gone(Kept::Safe)));
    }
    world.pass(Span::secs(30));
    assert_eq!(alive(&world, 2), 10);
    let before = pushed(&world);
    world.pass(Span::secs(120));
    assert_eq!(pushed(&world), before);
    all.iter()
        .for_each(|id| assert_eq!(value(world.get(2, *id)).is_none(), held[..5].contains(id)));
}

#[test]
fn a_disk_that_stalls_is_told_only_so_much() {
    let mut world = World::new(3, 44);
    world.hosts[0].disk_stalls = true;
    let all: Vec<RecordId> = (0..200).map(|n| id(n, n)).collect();
    for id in &all {
        assert_eq!(world.put(1, *id, &vec![7; 256 << 10]), Ok(Kept::Safe));
    }
    world.pass(Span::secs(60));
    let told = |op: &DiskOp| match op {
        DiskOp::Write { record, .. } => record.value.len() as u64,
        DiskOp::Erase { .. } => 0,
    };
    let stalled = &world.hosts[0].stalled;
    let bytes: u64 = stalled.iter().map(told).sum();
    assert!(bytes <= DISK_BYTES_MAX + (1 << 20) && stalled.len() <= DISK_OPS_MAX, "{bytes}");
    assert!(world.hosts[0].disk.is_empty());
    world.disk_goes_on(0);
    world.pass(Span::secs(20));
    assert_eq!(alive(&world, 0), 200);
    assert_eq!(world.stats(0).unwritten, 0);
}

#[test]
fn a_disk_that_stalls_is_told_only_so_often() {
    let mut world = World::new(2, 45);
    world.hosts[0].disk_stalls = true;
    let name = |n: usize| id((n / 250) as u8, (n % 250) as u8);
    for round in 0..6 {
        for n in 0..1000 {
            world.begin_put(1, name(round * 1000 + n), b"a");
        }
        world.pass(Span::secs(3));
    }
    assert!(world.hosts[0].stalled.len() <= DISK_OPS_MAX, "{}", world.hosts[0].stalled.len());
    world.disk_goes_on(0);
    world.pass(Span::secs(60));
    assert_eq!((alive(&world, 0), alive(&world, 1)), (6000, 6000));
}

#[test]
fn what_is_over_is_erased_though_the_disk_failed_then() {
    let mut world = World::new(3, 46);
    for n in 0..30 {
        assert_eq!(world.put_for(0, id(n, n), &[n], Span::secs(60)), Ok(Kept::Safe));
    }
    world.pass(Span::secs(50));
    world.hosts[1].disk_fails = true;
    world.pass(Span::secs(20));
    assert_eq!([0, 1, 2].map(|h| alive(&world, h)), [0, 30, 0]);
    world.hosts[1].disk_fails = false;
    world.pass(Span::secs(5));
    assert_eq!(alive(&world, 1), 0);
    assert_eq!(world.stats(1).unwritten, 0);
}

#[test]
fn what_does_not_fit_at_the_start_leaves_the_disk() {
    let mut world = World::new(1, 47);
    for n in 0..30 {
        let ttl = DAY + Span::secs(u64::from(n));
        assert_eq!(world.put_for(0, id(n, n), &[n], ttl), Ok(Kept::Safe));
    }
    world.crash(0, false);
    world.tune = |config| config.limit.records = 10;
    world.restart(0);
    world.pass(Span::secs(5));
    let kept: Vec<u8> = world.hosts[0].disk.keys().map(|id| id.key.name[0]).collect();
    assert_eq!(kept, (20..30).collect::<Vec<u8>>());
}

/// Random calls on nodes with little room, whose disks fail now and then.
struct Run {
    world: World,
    /// What was put under a name, and when its time is over at the latest.
    put: BTreeMap<u8, BTreeMap<Vec<u8>, Time>>,
    /// What was deleted.
    gone: BTreeMap<u8, BTreeSet<Vec<u8>>>,
    writes: u32,
}

fn little_room(config: &mut Config) {
    (config.limit.records, config.limit.bytes, config.limit.deletions) = (12, 20_000, 40);
}

impl Run {
    fn act(&mut self) {
        let nodes = self.world.hosts.len() as u64;
        let h = self.world.below(nodes) as usize;
        let name = self.world.below(30) as u8;
        let id = id(name % 7, name);
        match self.world.below(100) {
            0..45 => {
                self.writes += 1;
                let mut bytes = self.writes.to_le_bytes().to_vec();
                bytes.resize(4 + self.world.below(4000) as usize, 0);
                let ttl = Span::secs(5 + self.world.below(60));
                let _at_random = self.world.put_for(h, id, &bytes, ttl);
                // From the last try on it counts anew at each owner, minus what had passed.
                let end = self.world.now + ttl;
                self.put.entry(name).or_default().insert(bytes, end);
            }
            45..70 => {
                let begun = self.world.now;
                let Ok(found) = self.world.get(h, id) else { return };
                let Some(value) = found.value else { return };
                let end = self.put.get(&name).and_then(|put| put.get(&value));
                let end = *end.expect("what is read was put");
                assert!(begun < end, "its time is over");
                let is_gone = self.gone.get(&name).is_some_and(|gone| gone.contains(&value));
                assert!(!is_gone || !found.confirmed, "{name} came back");
            }
            70..85 => {
                if let Ok(Deleted::Gone(Kept::Safe)) = self.world.delete(h, id) {
                    let put = self.put.get(&name).into_iter().flatten();
                    let before = put.map(|(value, _)| value.clone());
                    self.gone.entry(name).or_default().extend(before);
                }
            }
            85..90 => self.world.hosts[h].disk_fails ^= true,
            90..93 => {
                self.world.crash(h, false);
                self.world.restart(h);
            }
            _ => {
                let wait = self.world.below(4000);
                self.world.pass(Span::millis(wait));
            }
        }
    }

    fn end(&mut self) {
        let hosts = 0..self.world.hosts.len();
        hosts.clone().for_each(|h| self.world.hosts[h].disk_fails = false);
        self.world.pass(Span::secs(5));
        while hosts.clone().any(|h| self.world.stats(h).unwritten > 0) {
            self.world.pass(Span::millis(1));
        }
        for h in hosts.clone() {
            assert!(alive(&self.world, h) <= 12, "{}", alive(&self.world, h));
            let deletions = self.world.hosts[h].disk.len() - alive(&self.world, h);
            assert_eq!(deletions as u64, self.world.stats(h).deletions);
        }
        self.world.pass(Span::secs(90));
        let before = pushed(&self.world);
        self.world.pass(Span::secs(60));
        assert_eq!(pushed(&self.world), before, "at rest");
        for h in hosts {
            assert_eq!(alive(&self.world, h), 0);
            let stats = self.world.stats(h);
            assert_eq!((stats.records, stats.ops, stats.unwritten, stats.pushes), (0, 0, 0, 0));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn with_little_room_nothing_comes_back_and_nothing_stays(
        nodes in 3usize..6,
        seed in any::<u64>(),
        loss in prop_oneof![Just(0u64), 1u64..20],
    ) {
        let mut world = World::tuned(nodes, seed, little_room);
        world.loss = loss;
        let (put, gone) = (BTreeMap::new(), BTreeMap::new());
        let mut run = Run { world, put, gone, writes: 0 };
        (0..200).for_each(|_| run.act());
        run.world.loss = 0;
        run.end();
    }
}

#[test]
fn a_call_that_never_came_to_its_turn_changes_nothing() {
    let mut world = World::new(3, 48);
    world.crash(1, false);
    world.crash(2, false);
    world.hosts[0].disk_stalls = true;
    let first = world.begin_put(0, id(1, 1), b"first");
    let second = world.begin_put(0, id(1, 1), b"second");
    world.pass(Span::secs(2));
    assert_eq!(world.answers.remove(&first), Some(state::Answer::Put(Err(StateError::NotKept))));
    assert_eq!(world.answers.remove(&second), Some(state::Answer::Put(Err(StateError::Busy))));
    world.disk_goes_on(0);
    world.pass(Span::secs(2));
    let found = world.call(0, |call| In::Get { call, id: id(1, 1) });
    world.pass(Span::secs(2));
    let state::Answer::Got(found) = world.answers.remove(&found).unwrap() else { panic!() };
    assert_eq!(value(found), Some(b"first".to_vec()));
}
