//! Weather that is measured: stalls, deaths, partitions. Used by tests and by the report
//! `cargo run -p gossip --example weather`.

use crate::world::World;
use protocol::event::MemberState;
use protocol::time::{Span, Time};

/// Larger clusters make one batch per node and second, others ten.
pub(crate) const LARGE: usize = 100;

/// A cluster that has settled, each node holding something.
pub(crate) fn settled(seed: u64, n: usize) -> World {
    let mut world = World::with_nodes(seed, n);
    // Each batch of each node is checked by all others: large clusters tell less often.
    if n > LARGE {
        changes(&mut world, Span::millis(100), 10);
    } else {
        world.churn(Span::millis(500), 1);
    }
    world.run_until(Span::secs(20), |w| w.all_alive() && w.converged());
    world
}

/// For `span`, every fourth node stalls for 0.1 to 10 s, again and again; the first of each four
/// never does.
pub(crate) fn stalls(world: &mut World, span: Span) {
    let end = world.now + span;
    let mut next: Vec<Time> = vec![world.now; world.nodes.len()];
    while world.now < end {
        for n in (1..world.nodes.len()).step_by(4) {
            if world.now >= next[n] {
                let length = Span::millis(100 + world.random(9_900));
                world.stall(n, length);
                next[n] = world.now + length + Span::millis(50 + world.random(2_000));
            }
        }
        world.run(Span::millis(50));
    }
}

/// How long after its death each of the others knew: first that nothing may be placed there, then
/// that it is dead. `closed`: the kernel closed its streams; else the machine lost power.
pub(crate) fn death(world: &mut World, victim: usize, closed: bool) -> (Vec<Span>, Vec<Span>) {
    let (start, id) = (world.now, world.nodes[victim].id);
    world.changes.clear();
    world.kill(victim, closed);
    let others = |w: &World| (0..w.nodes.len()).filter(|n| w.nodes[*n].up).collect::<Vec<_>>();
    let all = |w: &World| others(w).iter().all(|n| w.sees(*n, victim, MemberState::Dead));
    world.run_until(Span::secs(60), all);
    let first = |n: usize, dead: bool| {
        let seen = world.changes.iter().find(|(_, at, whom, state)| {
            *at == n && *whom == id && (*state == MemberState::Dead || !dead)
        });
        seen.map_or(Span::ZERO, |(at, ..)| at.since(start))
    };
    let live = others(world);
    let times = |dead: bool| live.iter().map(|n| first(*n, dead)).collect();
    (times(false), times(true))
}

/// The value below which `percent` of the spans lie, in milliseconds.
pub(crate) fn percentile(spans: &mut [Span], percent: usize) -> f64 {
    spans.sort_unstable();
    let at = (spans.len() * percent / 100).min(spans.len().saturating_sub(1));
    spans.get(at).map_or(0.0, |span| span.as_ms())
}

/// Share of what indexes say, in 1 of `every` (node, origin) pairs, that is not true now.
pub(crate) fn stale_share(world: &World, every: usize) -> f64 {
    let (mut said, mut wrong) = (0usize, 0usize);
    let pairs = (0..world.nodes.len()).flat_map(|n| (0..world.nodes.len()).map(move |o| (n, o)));
    for (n, origin) in pairs.filter(|(n, o)| n != o).step_by(every) {
        let (node, truth) = (&world.nodes[origin].id, &world.nodes[origin].truth);
        let Some(known) = world.nodes[n].index.origins.get(node) else { continue };
        said += known.entries.len();
        wrong += known.entries.difference(truth).count();
    }
    wrong as f64 / said.max(1) as f64
}

/// What a partition into halves cost.
pub(crate) struct Heal {
    /// Until everybody knew everything again.
    pub(crate) time: Span,
    /// Bytes of repairs.
    pub(crate) bytes: u64,
    /// Entries changed while it lasted, times the nodes that missed them.
    pub(crate) missed: u64,
}

/// Cuts the cluster in halves for `span` while both go on changing `per_second` entries per node.
pub(crate) fn partition(world: &mut World, span: Span, per_second: u64) -> Heal {
    let n = world.nodes.len();
    let cut = |world: &mut World, blocked: bool| {
        for (a, b) in (0..n / 2).flat_map(|a| (n / 2..n).map(move |b| (a, b))) {
            world.block(a, b, blocked);
        }
    };
    cut(world, true);
    let missed = changes(world, span, per_second) * (n / 2) as u64;
    cut(world, false);
    let before = world.heal_bytes;
    let time = world.run_until(Span::secs(60), World::converged);
    Heal { time, bytes: world.heal_bytes - before, missed }
}

/// Everybody changes about `per_second` entries per second; how many in all.
pub(crate) fn changes(world: &mut World, span: Span, per_second: u64) -> u64 {
    let steps = if world.nodes.len() > LARGE { 1 } else { 10 };
    let (end, mut made) = (world.now + span, 0);
    while world.now < end {
        for n in (0..world.nodes.len()).filter(|n| world.nodes[*n].up).collect::<Vec<_>>() {
            for _ in 0..per_second.div_ceil(steps) {
                world.change(n);
                made += 1;
            }
        }
        world.run(Span(Span::secs(1).0 / steps).min(end.since(world.now)));
    }
    made
}
