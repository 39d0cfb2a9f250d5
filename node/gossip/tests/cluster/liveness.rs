//! The living are seen alive, the dead are noticed in time, and attempts at them are bounded.

use crate::world::World;
use gossip::Out;
use protocol::event::MemberState;
use protocol::time::Span;

fn started(seed: u64, n: usize) -> World {
    let mut world = World::with_nodes(seed, n);
    world.run_until(Span::secs(4), World::all_alive);
    world
}

fn suspicions(world: &World) -> u64 {
    world.nodes.iter().map(|node| node.gossip.counters().suspicions).sum()
}

#[test]
fn five_idle_minutes_suspect_nobody() {
    let mut world = started(1, 3);
    world.churn(Span::secs(1), 1);
    world.topic_loss = 20;
    let before = suspicions(&world);
    world.run(Span::secs(300));
    assert_eq!(suspicions(&world), before);
    assert!(world.all_alive() && world.converged());
}

#[test]
fn a_death_is_noticed_by_all_within_five_seconds() {
    for (seed, noticed) in [(2, true), (3, false)] {
        let mut world = started(seed, 5);
        world.kill(4, noticed);
        let unroutable =
            world.run_until(Span::secs(5), |w| (0..4).all(|n| !w.sees(n, 4, MemberState::Alive)));
        assert!(unroutable <= Span::millis(if noticed { 1700 } else { 2700 }), "{unroutable:?}");
        // A closed stream is the mark of a dead process; a machine without power could be a
        // stalled one.
        let dead = if noticed { Span::secs(4) } else { Span::secs(15) };
        world.run_until(dead, |w| (0..4).all(|n| w.sees(n, 4, MemberState::Dead)));
    }
}

#[test]
fn a_nodes_own_stall_makes_nobody_dead() {
    let mut world = started(4, 4);
    for round in 0..12u64 {
        let length = [450, 1500, 3000, 9000][(round % 4) as usize];
        let before = world.nodes[0].gossip.counters().suspicions;
        world.stall(0, Span::millis(length));
        world.run(Span::millis(length + 2500));
        assert_eq!(world.nodes[0].gossip.counters().suspicions, before, "{length} ms");
        assert!(world.nodes[0].gossip.counters().stalls > round);
    }
}

#[test]
fn a_death_is_noticed_in_time_by_nodes_that_are_called_late() {
    let mut world = started(5, 4);
    world.kill(3, false);
    let start = world.now;
    while (0..3).any(|n| world.sees(n, 3, MemberState::Alive)) {
        for n in 0..3 {
            let late = world.random(120);
            world.stall(n, Span::millis(late));
        }
        world.run(Span::millis(150));
        assert!(world.now.since(start) <= Span::secs(5));
    }
}

#[test]
fn others_are_asked_before_a_silent_member_counts_as_dead() {
    // 0 and 3 have no path and the topic is dead: only probes through others say that they live.
    let mut world = started(6, 4);
    world.block(0, 3, true);
    world.run(Span::secs(4));
    world.topic_loss = 100;
    world.run(Span::secs(60));
    for (a, b) in [(0, 1), (0, 2), (1, 3), (2, 3)] {
        assert!(world.sees(a, b, MemberState::Alive), "probed directly");
    }
    assert!(world.sees(0, 3, MemberState::Alive) && world.sees(3, 0, MemberState::Alive));
}

#[test]
fn a_stalled_node_is_suspect_and_comes_back_with_its_entries() {
    let mut world = started(7, 3);
    world.churn(Span::secs(1), 1);
    world.run_until(Span::secs(3), World::converged);
    let learned = world.nodes[0].index.snapshots;
    world.stall(2, Span::secs(3));
    world.run_until(Span::secs(3), |w| w.sees(0, 2, MemberState::Suspect));
    world.run_until(Span::secs(2), |w| w.sees(0, 2, MemberState::Alive));
    assert!(world.converged());
    assert_eq!(world.nodes[0].index.snapshots, learned);
}

#[test]
fn a_dead_peer_costs_few_dials_and_a_forgotten_one_fewer() {
    let mut world = started(8, 3);
    world.kill(2, true);
    let dials = |world: &mut World, span| {
        world.nodes[0].said.clear();
        world.run(span);
        let dials = world.nodes[0].said.iter().filter(|(_, out)| matches!(out, Out::Dial { .. }));
        dials.count()
    };
    let first = dials(&mut world, Span::secs(60));
    assert!((10..=20).contains(&first), "{first}");
    world.run(Span::secs(60));
    let later = dials(&mut world, Span::secs(60));
    assert!((1..=3).contains(&later), "{later}");
}
