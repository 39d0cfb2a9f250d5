//! Restarts, twins, disks from the past.

use crate::world::World;
use gossip::Out;
use protocol::event::MemberState;
use protocol::time::Span;

fn settled(seed: u64, n: usize) -> World {
    let mut world = World::with_nodes(seed, n);
    world.churn(Span::secs(2), 1);
    world.run_until(Span::secs(8), |w| w.converged() && w.all_alive());
    world
}

#[test]
fn a_restarted_node_is_new_and_its_old_entries_go_everywhere() {
    for (seed, noticed) in [(1, true), (2, false)] {
        let mut world = settled(seed, 4);
        assert!(!world.nodes[2].truth.is_empty());
        world.kill(2, noticed);
        world.run(Span::millis(500));
        world.restart(2, 2);
        let id = world.nodes[2].id;
        let gone = |w: &World| w.nodes.iter().all(|node| node.index.entries(&id).is_empty());
        world.run_until(Span::secs(4), gone);
        world.churn(Span::secs(1), 1);
        world.run_until(Span::secs(6), |w| w.converged() && w.all_alive());
    }
}

#[test]
fn a_restarted_node_gets_its_index_back() {
    let mut world = settled(3, 4);
    world.kill(0, true);
    world.run(Span::secs(1));
    world.restart(0, 2);
    world.run_until(Span::secs(3), World::converged);
}

#[test]
fn a_node_whose_disk_came_back_from_the_past_jumps_past_itself() {
    let mut world = settled(4, 3);
    world.kill(1, true);
    world.restart(1, 9);
    world.churn(Span::secs(1), 1);
    world.run_until(Span::secs(6), |w| w.converged() && w.all_alive());
    world.kill(1, true);
    world.restart(1, 5);
    world.churn(Span::secs(1), 1);
    world.run_until(Span::secs(8), |w| w.converged() && w.all_alive());
    let jumps = world.nodes[1].said.iter().filter(|(_, out)| *out == Out::JumpPast(9)).count();
    assert_eq!(jumps, 1);
    let lives: Vec<u64> = world
        .nodes
        .iter()
        .filter_map(|node| Some(node.index.origins.get(&world.nodes[1].id)?.incarnation.counter))
        .collect();
    assert_eq!(lives, [10, 10, 10]);
    assert!(!world.nodes[1].said.iter().any(|(_, out)| matches!(out, Out::Twin { .. })));
}

#[test]
fn who_left_stays_left_and_its_entries_go_later() {
    let mut world = settled(5, 3);
    world.input(2, gossip::In::Leave);
    world.run(Span::millis(100));
    assert!(world.sees(0, 2, MemberState::Left) && world.sees(1, 2, MemberState::Left));
    assert!(world.nodes[2].gossip.members().next().unwrap().state == MemberState::Left);
    world.kill(2, true);
    world.run(Span::secs(30));
    assert!(world.sees(0, 2, MemberState::Left), "late heartbeats do not bring it back");
    let id = world.nodes[2].id;
    assert!(!world.nodes[0].index.entries(&id).is_empty());
    world.run(Span::secs(60));
    assert!(world.nodes[0].index.entries(&id).is_empty());
    world.restart(2, 2);
    world.run_until(Span::secs(40), |w| w.converged() && w.all_alive());
}

#[test]
fn the_long_dead_are_forgotten_and_still_welcome() {
    let mut world = settled(6, 3);
    for other in [0, 1] {
        world.block(2, other, true);
    }
    world.run(Span::secs(70));
    let id = world.nodes[2].id;
    for n in [0, 1] {
        assert!(world.nodes[n].index.entries(&id).is_empty());
    }
    for other in [0, 1] {
        world.block(2, other, false);
    }
    world.run_until(Span::secs(40), |w| w.converged() && w.all_alive());
}
