#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout)] // a report
#![allow(clippy::disallowed_methods)] // reads its arguments and the time
#![allow(dead_code)] // the world serves the tests too
//! What hard weather costs, as a table: `cargo run --release -p gossip --example weather`.
//!
//! Arguments: `sizes 8,64,256` (cluster sizes; 256 takes minutes), `hours 24` (simulated hours in
//! which a quarter of eight nodes stalls 0.1–10 s), `deaths 40`, `join 100000` (entries of the index
//! that a newcomer takes over). Without arguments: `sizes 8,64`, `hours 0.1`, `deaths 24`,
//! `join 40000`.

#[path = "../tests/cluster/faults.rs"]
mod faults;
#[path = "../tests/cluster/index.rs"]
mod index;
#[path = "../tests/cluster/measure.rs"]
mod measure;
#[path = "../tests/cluster/world.rs"]
mod world;

use gossip::In;
use measure::{LARGE, changes, death, partition, percentile, settled, stale_share, stalls};
use protocol::block::StorageId;
use protocol::event::{BlockEvent, Holder, MemberState};
use protocol::hash::PrefixHash;
use protocol::time::Span;
use world::World;

/// Entries that each node changes per second.
const PER_SECOND: u64 = 10;

/// One line for a cluster of `n` nodes: steady changes under loss, then a partition into halves.
fn size(n: usize) {
    let start = std::time::Instant::now();
    let mut world = settled(1, n);
    world.topic_loss = 1;
    world.direct_loss = 1;
    let (seconds, every) = if n > LARGE { (3, 97) } else { (20, 1) };
    let (bytes, mut stale) = (world.index_bytes, 0.0);
    for _ in 0..seconds {
        changes(&mut world, Span::secs(1), PER_SECOND);
    }
    let steady = (world.index_bytes - bytes) / n as u64 / seconds;
    for _ in 0..seconds {
        // Looked at while the changes of the last 30 ms are on their way.
        changes(&mut world, Span::millis(30), PER_SECOND);
        stale += stale_share(&world, every);
    }
    (world.topic_loss, world.direct_loss) = (0, 0);
    let quiet = world.run_until(Span::secs(60), World::converged);
    let heal = partition(&mut world, Span::secs(if n > LARGE { 4 } else { 10 }), PER_SECOND);
    println!(
        "| {n} | {:.0} | {:.3} % | {:.1} | {:.0} | {:.1} | {} | {:.1} | {:.0} |",
        quiet.as_ms(),
        stale / seconds as f64 * 100.0,
        steady as f64 / 1e3,
        heal.time.as_ms(),
        heal.bytes as f64 / 1e6,
        heal.missed,
        heal.bytes as f64 / heal.missed as f64,
        start.elapsed().as_secs_f64(),
    );
}

/// How fast deaths are noticed by nodes that do not stall.
fn deaths(count: u64) {
    for (what, closed, storm) in [
        ("process killed", true, false),
        ("power cut", false, false),
        ("power cut, a quarter stalling", false, true),
    ] {
        let (mut unroutable, mut dead) = (Vec::new(), Vec::new());
        for seed in 0..count {
            let mut world = settled(1000 + seed, 8);
            if storm {
                stalls(&mut world, Span::secs(8));
            }
            world.run(Span::millis(37 * (seed % 13)));
            let asleep: Vec<bool> =
                world.nodes.iter().map(|node| node.asleep_until > world.now).collect();
            let (first, last) = death(&mut world, 4, closed);
            let live = (0..8).filter(|n| *n != 4).collect::<Vec<usize>>();
            let awake = |times: Vec<Span>| {
                let steady = live.iter().zip(times).filter(|(n, _)| !asleep[**n]);
                steady.map(|(_, span)| span).collect::<Vec<Span>>()
            };
            unroutable.extend(awake(first));
            dead.extend(awake(last));
        }
        println!(
            "| {what} | {} | {:.0} | {:.0} | {:.0} | {:.0} |",
            unroutable.len(),
            percentile(&mut unroutable, 50),
            percentile(&mut unroutable, 99),
            percentile(&mut dead, 50),
            percentile(&mut dead, 99),
        );
    }
}

/// Simulated hours of stalls: what was wrongly taken for dead, or removed.
fn hours(hours: f64) {
    let rounds = (hours * 6.0).ceil() as u64;
    let (mut removed, mut dead, mut suspected, mut steady) = (0, 0, 0, 0);
    for round in 0..rounds {
        let mut world = settled(5000 + round, 8);
        world.changes.clear();
        stalls(&mut world, Span::secs(600));
        removed += world.false_removals;
        for (_, _, whom, state) in &world.changes {
            let subject = world.nodes.iter().position(|node| node.id == *whom).unwrap();
            dead += u64::from(*state == MemberState::Dead);
            suspected += u64::from(*state == MemberState::Suspect);
            steady += u64::from(*state == MemberState::Suspect && subject % 4 != 1);
        }
    }
    println!("| {:.1} | {removed} | {dead} | {suspected} | {steady} |", rounds as f64 / 6.0);
}

/// A newcomer joins four nodes that hold `entries` in all.
fn join(entries: u64) {
    let mut world = World::with_nodes(3, 4);
    world.run_until(Span::secs(10), World::all_alive);
    for name in 0..entries {
        let (n, prefix) = ((name % 4) as usize, PrefixHash(u128::from(name)));
        let (holder, storage) = (Holder::Dram, StorageId(1));
        world.nodes[n].truth.insert((holder, storage, prefix));
        world.input(n, In::Event(BlockEvent::Stored { prefix, tokens: 64, storage, holder }));
    }
    world.run_until(Span::secs(60), World::converged);
    let (start, before) = (world.now, world.heal_bytes);
    let joiner = world.join(0);
    let known = |w: &World| w.nodes[joiner].index.origins.len();
    let first = world.run_until(Span::secs(60), |w| known(w) > 0);
    let (mut most, mut last) = (0, world.heal_bytes);
    while !world.wrong_about_all(joiner).is_empty() {
        world.run(Span::millis(100));
        most = most.max(world.heal_bytes - last);
        last = world.heal_bytes;
        assert!(world.now.since(start) < Span::secs(600));
    }
    println!(
        "| {entries} | {:.0} | {:.0} | {:.1} | {:.1} |",
        first.as_ms(),
        world.now.since(start).as_ms(),
        (last - before) as f64 / 1e6,
        most as f64 / 1e5,
    );
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let given = |name: &str| {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1).cloned()
    };
    let everything = args.is_empty();
    if let Some(sizes) = given("sizes").or(everything.then(|| "8,64".into())) {
        println!("1 % loss, {PER_SECOND} changes per node and second; partition into halves.");
        println!(
            "| nodes | quiet ms | stale | index kB/s per node | heal ms | heal MB | missed changes | bytes per missed | wall s |"
        );
        println!("|---|---|---|---|---|---|---|---|---|");
        sizes.split(',').filter_map(|n| n.trim().parse().ok()).for_each(size);
    }
    if let Some(count) = given("deaths").or(everything.then(|| "24".into())) {
        println!("\n| death | observers | unroutable p50 ms | p99 | dead p50 ms | p99 |");
        println!("|---|---|---|---|---|---|");
        deaths(count.parse().unwrap());
    }
    if let Some(entries) = given("join").or(everything.then(|| "40000".into())) {
        println!("\nA newcomer takes over an index at 32 MiB/s at most.");
        println!("| entries | first set ms | all ms | MB | most in 100 ms, MB/s |");
        println!("|---|---|---|---|---|");
        join(entries.parse().unwrap());
    }
    if let Some(length) = given("hours").or(everything.then(|| "0.1".into())) {
        println!("\nA quarter of 8 nodes stalls 0.1–10 s.");
        println!("| hours | removed | dead | suspect | … of nodes that did not stall |");
        println!("|---|---|---|---|---|");
        hours(length.parse().unwrap());
    }
}
