//! Who gives a newcomer its index, how fast, and what a liar gains.

use crate::world::World;
use gossip::In;
use protocol::block::StorageId;
use protocol::event::{BlockEvent, Holder};
use protocol::hash::PrefixHash;
use protocol::time::Span;

/// Gives node `n` entries `from..to`.
fn fill(world: &mut World, n: usize, from: u64, to: u64) {
    for name in from..to {
        let (holder, storage) = (Holder::Dram, StorageId(1));
        let prefix = PrefixHash(u128::from(name) << 8 | u128::from(name * 167 % 256));
        world.nodes[n].truth.insert((holder, storage, prefix));
        let event = BlockEvent::Stored { prefix, tokens: 64, storage, holder };
        world.input(n, In::Event(event));
    }
}

fn filled(seed: u64, nodes: usize, each: u64) -> World {
    let mut world = World::new(seed);
    world.tune = |config| config.donate_bytes_s = 400_000;
    (0..nodes).for_each(|_| {
        world.add();
    });
    (0..nodes).for_each(|n| world.introduce_all(n));
    (0..nodes).for_each(|n| fill(&mut world, n, 0, each));
    world.run_until(Span::secs(20), |w| w.converged() && w.all_alive());
    world
}

#[test]
fn a_newcomer_takes_one_donors_index_at_its_rate_and_routes_from_a_part() {
    let mut world = filled(1, 4, 12_000);
    let before = world.heal_bytes;
    let joiner = world.join(0);
    let first = world.run_until(Span::secs(3), |w| !w.nodes[joiner].index.origins.is_empty());
    assert!(world.nodes[joiner].gossip.has_index());
    assert!(world.nodes[joiner].index.origins.len() < 4, "partial after {first:?}");
    let start = world.now;
    let mut last = world.heal_bytes;
    while !world.converged() {
        world.run(Span::secs(1));
        let sent = world.heal_bytes - last;
        assert!(sent <= 400_000 + 450_000, "{sent} bytes in a second: rate and one frame");
        last = world.heal_bytes;
        assert!(world.now.since(start) < Span::secs(10));
    }
    assert!(last - before < 4 * 12_000 * 50, "one donor's index, not several");
    let wants: u64 = world.nodes[joiner].gossip.counters().snapshot_wants;
    assert!(wants <= 2, "{wants}");
}

#[test]
fn batches_that_come_while_the_index_is_handed_over_are_not_lost() {
    let mut world = filled(2, 3, 8_000);
    let joiner = world.join(1);
    for step in 0..40 {
        fill(&mut world, step % 3, 20_000 + 10 * step as u64, 20_010 + 10 * step as u64);
        world.run(Span::millis(100));
    }
    world.run_until(Span::secs(10), World::converged);
    assert!(world.wrong_about_all(joiner).is_empty());
    assert!(world.nodes[joiner].index.mismatches == 0);
}

#[test]
fn lying_donors_are_found_out_and_passed_over() {
    for seed in 0..3 {
        let mut world = filled(10 + seed, 4, 600);
        // Everybody lies of the others; nobody can of itself: its own set is signed.
        world.liars.extend(0..4);
        let joiner = world.join(0);
        world.run_until(Span::secs(4), |w| w.nodes[joiner].index.mismatches > 0);
        world.run_until(Span::secs(8), World::converged);
        let index = &world.nodes[joiner].index;
        assert!(index.mended >= 3, "the digests that the origins signed told");
        assert_eq!(index.snapshots, 4, "mended by buckets");
        assert!(index.mismatches <= 6, "not by asking liars again: {}", index.mismatches);
    }
}

#[test]
fn with_the_origin_gone_a_liar_loses_its_turn_to_the_honest() {
    for seed in 0..4 {
        let mut world = filled(40 + seed, 4, 300);
        world.kill(3, true);
        world.run(Span::secs(2));
        world.liars.extend([1, 2]);
        let (id, honest) = (world.nodes[3].id, world.join(0));
        world.run_until(Span::secs(6), |w| w.wrong_about(3).is_empty());
        for _ in 0..3 {
            let told = world.nodes[0].index.lose(&id).unwrap();
            world.input(0, told);
            world.run_until(Span::secs(20), |w| w.wrong_about(3).is_empty());
            world.run(Span::secs(11));
        }
        assert!(world.nodes[0].index.mismatches <= 6, "each liar fooled it once a minute at most");
        assert!(world.nodes[honest].gossip.has_index());
    }
}

#[test]
fn lost_entries_are_mended_by_buckets_while_changes_go_on() {
    let mut world = filled(20, 4, 4_000);
    let before = world.heal_bytes;
    let mut lost = 0;
    for step in 0..60u64 {
        fill(&mut world, (step % 4) as usize, 50_000 + step * 4, 50_004 + step * 4);
        if step % 10 == 0 {
            let (n, origin) = ((step % 3) as usize, world.nodes[3].id);
            lost += 1;
            let told = world.nodes[n].index.lose(&origin).unwrap();
            world.input(n, told);
        }
        world.run(Span::millis(100));
    }
    world.run_until(Span::secs(5), World::converged);
    let mended: usize = world.nodes.iter().map(|node| node.index.mended).sum();
    assert!(mended >= lost && mended <= 2 * lost, "{mended}");
    let cost = (world.heal_bytes - before) / mended as u64;
    assert!(cost < 12_000, "{cost} bytes each: digests and a bucket, not 4,000 entries");
}

#[test]
fn the_origin_gone_others_mend() {
    let mut world = filled(30, 4, 500);
    world.kill(3, true);
    world.run(Span::secs(2));
    let id = world.nodes[3].id;
    let told = world.nodes[0].index.lose(&id).unwrap();
    world.input(0, told);
    world.run_until(Span::secs(5), |w| w.wrong_about(3).is_empty());
    assert_eq!(world.nodes[0].index.mended, 1);
}
