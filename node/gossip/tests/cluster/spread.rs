//! Everybody learns what everybody holds, whatever gets lost.

use crate::world::World;
use protocol::event::MemberState;
use protocol::time::Span;

#[test]
fn all_learn_everything_while_frames_are_lost() {
    for seed in 0..3 {
        let mut world = World::with_nodes(seed, 5);
        (world.topic_loss, world.direct_loss) = (10, 5);
        world.churn(Span::secs(4), 2);
        (world.topic_loss, world.direct_loss) = (0, 0);
        world.run_until(Span::secs(5), World::converged);
        let wants: u64 = world.nodes.iter().map(|node| node.gossip.counters().wants).sum();
        assert!(wants > 0, "the losses were there to be repaired");
        assert!(world.nodes.iter().all(|node| node.gossip.behind() == 0));
    }
}

#[test]
fn without_losses_nothing_is_asked_for() {
    let mut world = World::with_nodes(1, 4);
    world.run_until(Span::secs(3), World::all_alive);
    world.run(Span::secs(3));
    world.churn(Span::secs(2), 2);
    world.run(Span::millis(200));
    assert!(world.converged(), "50 ms and the way there, no heartbeat needed");
    assert!(world.nodes.iter().all(|node| node.gossip.counters().wants == 0));
}

#[test]
fn a_late_joiner_knows_what_old_observers_know() {
    let mut world = World::with_nodes(7, 4);
    world.churn(Span::secs(3), 2);
    let joiner = world.join(2);
    world.churn(Span::secs(1), 2);
    world.run_until(Span::secs(5), World::converged);
    let node = &world.nodes[joiner];
    assert!(node.index.snapshots >= 3, "by snapshot, not by replaying history");
    assert!(!node.truth.is_empty() && node.gossip.has_index());
    world.run_until(Span::secs(3), World::all_alive);
}

#[test]
fn a_newcomer_has_the_donors_index_within_a_second() {
    let mut world = World::with_nodes(8, 4);
    world.churn(Span::secs(2), 2);
    world.run(Span::secs(1));
    let joiner = world.join(0);
    world.run_until(Span::secs(2), |w| w.nodes[joiner].index.origins.len() >= 4);
    let first = world.run_until(Span::secs(1), World::converged);
    assert!(first <= Span::secs(1));
}

#[test]
fn a_newcomer_whose_donor_dies_finds_another() {
    let mut world = World::with_nodes(9, 4);
    world.churn(Span::secs(2), 2);
    world.run(Span::secs(1));
    let joiner = world.join(0);
    world.run_until(Span::secs(2), |w| w.sees(joiner, 0, MemberState::Alive));
    world.kill(0, true);
    world.run_until(Span::secs(10), World::converged);
}

#[test]
fn a_partition_heals_by_deltas_and_loses_nothing() {
    let mut world = World::with_nodes(3, 6);
    world.churn(Span::secs(3), 1);
    world.run(Span::secs(2));
    assert!(world.converged());
    let snapshots: usize = world.nodes.iter().map(|node| node.index.snapshots).sum();
    let cut = |world: &mut World, blocked: bool| {
        for (a, b) in (0..3).flat_map(|a| (3..6).map(move |b| (a, b))) {
            world.block(a, b, blocked);
        }
    };
    let known = world.nodes[0].index.entries(&world.nodes[5].id);
    cut(&mut world, true);
    world.churn(Span::secs(20), 1);
    assert!(world.sees(0, 5, MemberState::Dead) && world.sees(5, 0, MemberState::Dead));
    assert!(world.sees(0, 1, MemberState::Alive));
    let id = world.nodes[5].id;
    assert!(world.nodes[0].index.entries(&id).len() >= known.len() / 2, "kept, only not routable");
    cut(&mut world, false);
    let healed = world.run_until(Span::secs(15), |w| w.converged() && w.all_alive());
    assert!(healed < Span::secs(15));
    let after: usize = world.nodes.iter().map(|node| node.index.snapshots).sum();
    assert_eq!(after, snapshots, "deltas were enough");
}

#[test]
fn nodes_without_a_path_learn_through_others() {
    let mut world = World::with_nodes(4, 4);
    world.block(0, 3, true);
    world.churn(Span::secs(3), 1);
    world.run_until(Span::secs(8), World::converged);
    assert!(world.all_alive(), "alive is not the same as reachable from here");
}

#[test]
fn an_index_that_diverged_is_mended_from_the_origin() {
    let mut world = World::with_nodes(5, 3);
    world.churn(Span::secs(2), 2);
    world.run_until(Span::secs(5), World::converged);
    let id = world.nodes[1].id;
    let told = world.nodes[0].index.lose(&id).unwrap();
    assert!(!world.converged());
    let before = world.nodes[0].index.snapshots;
    world.input(0, told);
    world.run_until(Span::secs(2), World::converged);
    let index = &world.nodes[0].index;
    assert_eq!((index.mended, index.snapshots), (1, before), "buckets, not the whole set");
}

#[test]
fn a_wider_cluster_converges_too() {
    let mut world = World::with_nodes(6, 16);
    (world.topic_loss, world.direct_loss) = (2, 1);
    world.churn(Span::secs(1), 1);
    (world.topic_loss, world.direct_loss) = (0, 0);
    world.run_until(Span::secs(10), |w| w.converged() && w.all_alive());
}

#[test]
fn equal_seeds_give_equal_histories() {
    let history = |seed| {
        let mut world = World::with_nodes(seed, 4);
        (world.topic_loss, world.direct_loss) = (10, 5);
        world.churn(Span::secs(2), 1);
        (world.digest(), world.events)
    };
    assert_eq!(history(11), history(11));
    assert_ne!(history(11).0, history(12).0);
}
