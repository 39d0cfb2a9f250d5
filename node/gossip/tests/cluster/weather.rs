//! Hard weather: loss, one-way cuts, stalls, partitions under load, suspended machines, twins.

use crate::measure::{changes, death, partition, percentile, settled, stale_share, stalls};
use crate::world::World;
use gossip::Out;
use protocol::event::MemberState;
use protocol::time::Span;

#[test]
fn loss_up_to_a_third_kills_nobody_and_all_learn_everything() {
    for (seed, loss) in [(1, 1), (2, 10), (3, 20), (4, 30)] {
        let mut world = settled(seed, 5);
        (world.topic_loss, world.direct_loss) = (loss, loss / 2);
        world.changes.clear();
        world.churn(Span::secs(8), 1);
        let dead = world.changes.iter().filter(|change| change.3 == MemberState::Dead).count();
        assert_eq!((dead, world.false_removals), (0, 0), "{loss} %");
        world.run_until(Span::secs(15), World::converged);
    }
}

#[test]
fn few_entries_are_stale_while_all_change() {
    let mut world = settled(5, 8);
    (world.topic_loss, world.direct_loss) = (1, 1);
    let mut stale = 0.0;
    for _ in 0..20 {
        // Looked at while the changes of the last 30 ms are on their way.
        changes(&mut world, Span::millis(30), 10);
        stale += stale_share(&world, 1) / 20.0;
    }
    assert!(stale > 0.0 && stale < 0.02, "{stale}");
}

#[test]
fn who_is_deaf_in_one_direction_learns_through_others() {
    for seed in 0..3 {
        let mut world = settled(10 + seed, 4);
        world.changes.clear();
        world.deafen(0, 3, true);
        world.churn(Span::secs(10), 1);
        world.run_until(Span::secs(8), World::converged);
        assert!(world.all_alive());
        assert_eq!(world.changes, [], "nobody was even suspected");
    }
}

#[test]
fn reachable_through_others_only_is_alive_and_up_to_date() {
    let mut world = settled(20, 5);
    world.block(0, 3, true);
    world.run(Span::secs(4));
    // Without the topic the heads of 0 and 3 reach each other only with proofs of life.
    world.topic_loss = 100;
    world.changes.clear();
    world.churn(Span::secs(15), 1);
    assert!(world.all_alive());
    let (a, b) = (world.nodes[0].id, world.nodes[3].id);
    let doubted: Vec<_> =
        world.changes.iter().filter(|(_, _, whom, _)| *whom == a || *whom == b).collect();
    assert!(doubted.is_empty(), "{doubted:?}");
    world.run_until(Span::secs(12), World::converged);
}

#[test]
fn stalls_of_a_quarter_remove_nobody_and_all_come_back_at_once() {
    for seed in 0..6 {
        let mut world = settled(30 + seed, 8);
        world.changes.clear();
        stalls(&mut world, Span::secs(40));
        assert_eq!(world.false_removals, 0);
        let dead = world.changes.iter().filter(|change| change.3 == MemberState::Dead).count();
        assert_eq!(dead, 0, "seed {seed}: at most suspect");
        // Those who stalled accused nobody: the others never doubted one who did not.
        let steady = |n: &usize| n % 4 != 1;
        for (at, who, whom, state) in &world.changes {
            let subject = world.nodes.iter().position(|node| node.id == *whom).unwrap();
            assert!(!steady(&subject) || *state == MemberState::Alive, "{at:?} {who} {subject}");
        }
        let stalled = world.nodes.iter().map(|node| node.asleep_until).max().unwrap();
        world.run(stalled.since(world.now) + Span::millis(100));
        let back = world.run_until(Span::secs(1), World::all_alive);
        assert!(back <= Span::millis(150), "{back:?}");
    }
}

#[test]
fn deaths_are_noticed_amid_stalls() {
    let (mut unroutable, mut dead) = (Vec::new(), Vec::new());
    for seed in 0..4 {
        let mut world = settled(50 + seed, 8);
        stalls(&mut world, Span::secs(5));
        let (first, last) = death(&mut world, 4, seed % 2 == 0);
        unroutable.extend(first);
        dead.extend(last);
    }
    assert!(percentile(&mut unroutable, 99) <= 15_000.0, "those who stalled meanwhile included");
    assert!(percentile(&mut unroutable, 50) <= 3_000.0);
    assert!(percentile(&mut dead, 99) <= 40_000.0);
}

#[test]
fn a_suspended_machine_comes_back_by_itself() {
    let mut world = settled(60, 4);
    let entries = world.nodes[0].index.entries(&world.nodes[3].id);
    world.stall(3, Span::secs(45));
    world.run_until(Span::secs(40), |w| (0..3).all(|n| w.sees(n, 3, MemberState::Dead)));
    assert_eq!(world.nodes[0].index.entries(&world.nodes[3].id), entries, "kept");
    world.run(world.nodes[3].asleep_until.since(world.now));
    world.run_until(Span::millis(200), World::all_alive);
    world.churn(Span::secs(1), 1);
    world.run_until(Span::secs(3), World::converged);
    assert_eq!(world.false_removals, 0);
}

#[test]
fn a_partition_under_load_heals_in_seconds_for_bytes_of_the_difference() {
    let mut costs = Vec::new();
    for (seed, seconds) in [(70, 4), (71, 16)] {
        let mut world = settled(seed, 6);
        let sets = |w: &World| w.nodes.iter().map(|node| node.index.snapshots).sum::<usize>();
        let before = sets(&world);
        let heal = partition(&mut world, Span::secs(seconds), 20);
        assert!(heal.time <= Span::secs(9), "{:?}", heal.time);
        assert!(heal.bytes <= heal.missed * 120 + 200_000, "{} for {}", heal.bytes, heal.missed);
        costs.push((heal.bytes, heal.missed));
        assert_eq!(sets(&world), before, "no set was sent again");
    }
    assert!(costs[0].1 * 3 < costs[1].1 && costs[0].0 < costs[1].0, "{costs:?}");
}

#[test]
fn twins_in_one_cluster_are_both_told() {
    let mut world = settled(80, 3);
    let twin = world.add_as(2);
    for (n, other) in [(twin, 0), (twin, 1)] {
        let cert = world.cert(other);
        let contact = crate::world::contact(other);
        world.input(n, gossip::In::Known { cert, contact });
    }
    let told = |w: &World, n: usize| {
        w.nodes[n].said.iter().any(|(_, out)| matches!(out, Out::Twin { .. }))
    };
    world.run_until(Span::secs(10), |w| told(w, 2) && told(w, twin));
    assert!(!told(&world, 0) && !told(&world, 1));
}

#[test]
fn a_restored_backup_lives_on_under_a_new_life_by_itself() {
    let mut world = settled(81, 4);
    world.kill(2, true);
    world.restart(2, 7);
    world.churn(Span::secs(1), 1);
    world.run_until(Span::secs(6), World::converged);
    world.kill(2, false);
    world.run(Span::secs(1));
    world.restart(2, 4);
    world.churn(Span::secs(2), 1);
    world.run_until(Span::secs(8), |w| w.converged() && w.all_alive());
    assert_eq!(world.nodes[2].incarnation.counter, 8);
}

#[test]
fn bad_luck_inside_the_machines_changes_no_result() {
    for seed in 0..4 {
        let mut world = World::new(90 + seed);
        world.tune = |config| config.buggify = Some(config.seed);
        (0..5).for_each(|_| {
            world.add();
        });
        (0..5).for_each(|n| world.introduce_all(n));
        world.churn(Span::secs(6), 1);
        world.run_until(Span::secs(15), |w| w.converged() && w.all_alive());
        assert_eq!(world.false_removals, 0);
    }
}
