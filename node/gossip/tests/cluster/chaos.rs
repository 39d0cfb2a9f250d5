//! Everything at once, and then quiet.

use crate::world::World;
use protocol::time::Span;

fn chaos(seed: u64, nodes: usize, rounds: usize) {
    let mut world = World::with_nodes(seed, nodes);
    let mut lives = vec![1u64; nodes];
    (world.topic_loss, world.direct_loss) = (10, 3);
    for _ in 0..rounds {
        let n = world.random(nodes as u64) as usize;
        let other = world.random(nodes as u64) as usize;
        match world.random(6) {
            0 if world.nodes[n].up => {
                let noticed = world.percent(50);
                world.kill(n, noticed);
            }
            0 | 1 if !world.nodes[n].up => {
                lives[n] += 1;
                world.restart(n, lives[n]);
            }
            2 if n != other => world.block(n, other, true),
            3 if n != other => world.block(n, other, false),
            4 => {
                let span = Span::millis(world.random(3000));
                world.stall(n, span);
            }
            _ => {}
        }
        let span = Span::millis(50 + world.random(600));
        world.churn(span, 1);
    }
    (world.topic_loss, world.direct_loss) = (0, 0);
    for (n, life) in lives.iter().enumerate() {
        (0..n).for_each(|other| world.block(n, other, false));
        if !world.nodes[n].up {
            world.restart(n, life + 1);
        }
    }
    world.run_until(Span::secs(20), |w| w.converged() && w.all_alive());
    assert!(world.nodes.iter().all(|node| node.gossip.behind() == 0));
    let twins = |node: &crate::world::Node| {
        node.said.iter().any(|(_, out)| matches!(out, gossip::Out::Twin { .. }))
    };
    assert!(!world.nodes.iter().any(twins));
}

#[test]
fn after_deaths_partitions_and_stalls_all_know_the_same() {
    for seed in 0..4 {
        chaos(100 + seed, 5, 30);
    }
}
