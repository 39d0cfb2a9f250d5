//! Random operations and faults against the model.

use super::world::World;
use super::*;
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Write(usize),
    Forget,
    Keep,
    Read,
    Flush,
    Crash,
    CrashAt(u64),
    IndexCrashAt(u64),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1usize..5).prop_map(Step::Write),
        3 => Just(Step::Forget),
        1 => Just(Step::Keep),
        3 => Just(Step::Read),
        1 => Just(Step::Flush),
        1 => Just(Step::Crash),
        1 => (0u64..8).prop_map(Step::CrashAt),
        1 => (0u64..3).prop_map(Step::IndexCrashAt),
        1 => Just(Step::Reopen),
    ]
}

fn run(world: &mut World, steps: &[Step], disk: DiskFaults, index: IndexFaults) {
    world.disk.set_faults(disk);
    world.index.set_faults(index);
    for step in steps {
        match *step {
            Step::Write(count) => world.write(count),
            Step::Forget => world.forget(),
            Step::Keep => world.keep(),
            Step::Read => world.read(),
            Step::Flush => drop(world.nvme.as_ref().unwrap().flush()),
            Step::Crash => heal(world, World::crash),
            Step::CrashAt(after) => {
                world.disk.set_faults(DiskFaults { crash_after: Some(after), ..disk });
                world.write(3);
                heal(world, World::crash);
            }
            Step::IndexCrashAt(after) => {
                world.index.set_faults(IndexFaults { crash_after: Some(after), ..index });
                world.write(3);
                heal(world, World::crash);
            }
            Step::Reopen => heal(world, World::reopen),
        }
        if world.is_failing() {
            heal(world, World::reopen);
        }
        world.disk.set_faults(disk);
        world.index.set_faults(index);
    }
    heal(world, World::crash);
}

/// Recovery happens on a disk that works; what was broken before stays broken.
fn heal(world: &mut World, recover: fn(&mut World)) {
    world.disk.set_faults(DiskFaults::default());
    world.index.set_faults(IndexFaults::default());
    recover(world);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 96 }))]

    #[test]
    fn an_honest_disk_loses_nothing(
        seed in any::<u64>(), steps in prop::collection::vec(step(), 1..40), fine in any::<bool>(),
    ) {
        let mut world = World::new(seed, if fine { 512 } else { 4096 }, 9000, 7);
        run(&mut world, &steps, DiskFaults::default(), IndexFaults::default());
    }

    #[test]
    fn errors_and_failed_syncs_cost_only_what_was_not_acknowledged(
        seed in any::<u64>(), steps in prop::collection::vec(step(), 1..40),
    ) {
        let mut world = World::new(seed, 512, 5000, 7);
        let disk = DiskFaults {
            write_error: 80_000,
            read_error: 80_000,
            short_read: 40_000,
            sync_error: 80_000,
            ..DiskFaults::default()
        };
        let index = IndexFaults { commit_error: 50_000, get_error: 30_000, ..Default::default() };
        run(&mut world, &steps, disk, index);
    }

    #[test]
    fn a_lying_disk_never_gets_a_wrong_byte_served(
        seed in any::<u64>(), steps in prop::collection::vec(step(), 1..40),
    ) {
        let mut world = World::new(seed, 512, 5000, 7);
        world.honest = false;
        let disk = DiskFaults {
            lost_write: 100_000,
            misdirected_write: 100_000,
            bit_flip: 100_000,
            ..DiskFaults::default()
        };
        run(&mut world, &steps, disk, IndexFaults::default());
        // Damage to the index itself.
        for _ in 0..3 {
            world.index.corrupt_record();
        }
        heal(&mut world, World::crash);
    }
}
