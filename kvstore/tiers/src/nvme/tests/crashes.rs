//! Power lost in the middle of things, very often.

use super::world::World;
use super::*;
use std::time::{Duration, Instant};

struct Tears {
    crashes: u64,
    torn: u64,
    reads: u64,
    recovered: u64,
}

/// A few operations, the last of them cut off at a random step, then recovery; again and again.
fn tear(seed: u64, sector: usize, done: impl Fn(u64) -> bool) -> Tears {
    let mut world = World::new(seed, sector, 6000, 6);
    let mut crashes = 0;
    while !done(crashes) {
        for _ in 0..world.random.below(4) {
            world.forget();
        }
        if world.random.chance(100_000) {
            world.keep();
        }
        if world.random.chance(100_000) {
            world.write(1);
        }
        if world.random.chance(850_000) {
            let after = Some(world.random.below(6));
            world.disk.set_faults(DiskFaults { crash_after: after, ..DiskFaults::default() });
        } else {
            let after = Some(world.random.below(3));
            world.index.set_faults(IndexFaults { crash_after: after, ..IndexFaults::default() });
        }
        let count = 2 + world.random.below(4) as usize;
        world.write(count);
        world.crash();
        crashes += 1;
    }
    let torn = world.disk.torn();
    Tears { crashes, torn, reads: world.reads, recovered: world.recovered }
}

/// In the normal run for a second; with `DYNAMO_TEST_FULL=1` until a million writes were torn.
#[test]
fn torn_writes_never_serve_a_wrong_byte_and_lose_nothing_acknowledged() {
    let full = std::env::var_os("DYNAMO_TEST_FULL").is_some();
    let (mut all, mut seed) = (Tears { crashes: 0, torn: 0, reads: 0, recovered: 0 }, 0);
    let start = Instant::now();
    let enough = |all: &Tears| match full {
        true => all.torn >= 1_000_000,
        // Bounded by time, so that a busy machine does not wait; never less than a hundred.
        false => all.crashes >= 100 && start.elapsed() > Duration::from_secs(1),
    };
    while !enough(&all) {
        seed += 1;
        let sector = if seed % 3 == 0 { 4096 } else { 512 };
        let tears = tear(seed, sector, |crashes| crashes >= 50);
        all.crashes += tears.crashes;
        all.torn += tears.torn;
        all.reads += tears.reads;
        all.recovered += tears.recovered;
    }
    let Tears { crashes, torn, reads, recovered } = all;
    println!("{crashes} crashes, {torn} torn writes, {recovered} blocks found, {reads} read");
    assert!(torn * 10 >= crashes, "the simulated disk tears too little: {torn} of {crashes}");
    assert!(recovered > crashes, "hardly anything was ever there to lose");
}
