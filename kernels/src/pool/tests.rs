use super::{PAGE, Pool, PoolError, SlotReader, SlotWriter};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

fn is_static_and_send<T: Send + 'static>() {}

#[test]
fn guards_may_travel_to_other_threads() {
    is_static_and_send::<SlotWriter>();
    is_static_and_send::<SlotReader>();
}

#[test]
fn slots_are_page_aligned_and_do_not_overlap() {
    let pool = Pool::new(5000, 3).unwrap();
    let writers: Vec<_> = (0..3).map(|slot| pool.writer(slot, 1).unwrap()).collect();
    let starts: Vec<usize> = writers.iter().map(|w| w.as_ptr() as usize).collect();
    assert!(starts.iter().all(|start| start % PAGE == 0));
    assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= 5000));
    assert!(writers.iter().all(|w| w.len() == 5000));
}

#[test]
fn a_writer_is_alone_and_readers_share() {
    let pool = Pool::new(16, 1).unwrap();
    let mut writer = pool.writer(0, 3).unwrap();
    writer.fill(7);
    assert_eq!(pool.writer(0, 4).unwrap_err(), PoolError::Busy(0));
    assert_eq!(pool.reader(0, 3).unwrap_err(), PoolError::Busy(0));
    drop(writer);
    let first = pool.reader(0, 3).unwrap();
    let second = pool.reader(0, 3).unwrap();
    assert_eq!(&first[..], &[7; 16]);
    drop(first);
    assert_eq!(pool.writer(0, 4).unwrap_err(), PoolError::Busy(0));
    drop(second);
    assert!(pool.writer(0, 4).is_ok());
}

#[test]
fn old_generations_are_refused() {
    let pool = Pool::new(16, 1).unwrap();
    drop(pool.writer(0, 5).unwrap());
    let stale = PoolError::Stale { slot: 0, current: 5, asked: 4 };
    assert_eq!(pool.writer(0, 4).unwrap_err(), stale);
    assert_eq!(pool.reader(0, 4).unwrap_err(), stale);
    assert!(matches!(pool.reader(0, 6), Err(PoolError::Stale { .. })));
    assert!(pool.reader(0, 5).is_ok());
}

#[test]
fn impossible_pools_and_slots_are_errors() {
    assert!(Pool::new(0, 1).is_err());
    assert!(Pool::new(1, 0).is_err());
    assert!(Pool::new(usize::MAX, 2).is_err());
    let pool = Pool::new(1, 2).unwrap();
    assert_eq!(pool.reader(2, 0).unwrap_err(), PoolError::OutOfRange(2));
    assert_eq!(pool.writer(u32::MAX, 0).unwrap_err(), PoolError::OutOfRange(u32::MAX));
}

#[test]
fn a_guard_keeps_the_memory() {
    let pool = Pool::new(PAGE, 1).unwrap();
    pool.writer(0, 1).unwrap().fill(9);
    let reader = pool.reader(0, 1).unwrap();
    drop(pool);
    assert!(reader.iter().all(|byte| *byte == 9));
}

#[test]
fn memory_is_taken_when_touched() {
    // 64 GiB: reserving must cost nothing.
    let pool = Pool::new(1 << 20, 64 << 10).unwrap();
    pool.writer(65_535, 1).unwrap().fill(1);
    assert_eq!(pool.reader(65_535, 1).unwrap().len(), 1 << 20);
}

#[derive(Clone, Debug)]
enum Step {
    Write { slot: u32, generation: u32 },
    Read { slot: u32, generation: u32 },
    Release(usize),
}

enum Guard {
    Writer(u32, #[allow(dead_code)] SlotWriter),
    Reader(u32, #[allow(dead_code)] SlotReader),
}

fn step() -> impl Strategy<Value = Step> {
    let place = || (0..4u32, 0..6u32);
    prop_oneof![
        place().prop_map(|(slot, generation)| Step::Write { slot, generation }),
        place().prop_map(|(slot, generation)| Step::Read { slot, generation }),
        any::<usize>().prop_map(Step::Release),
    ]
}

/// What the pool must answer, said naively.
fn expected(
    guards: &[Guard],
    generations: &[u32; 3],
    slot: u32,
    asked: u32,
    write: bool,
) -> Result<(), PoolError> {
    let Some(&current) = generations.get(slot as usize) else {
        return Err(PoolError::OutOfRange(slot));
    };
    if asked < current || (!write && asked > current) {
        return Err(PoolError::Stale { slot, current, asked });
    }
    let written = guards.iter().any(|g| matches!(g, Guard::Writer(s, _) if *s == slot));
    let read = guards.iter().any(|g| matches!(g, Guard::Reader(s, _) if *s == slot));
    if written || (write && read) { Err(PoolError::Busy(slot)) } else { Ok(()) }
}

proptest! {
    #[test]
    fn agrees_with_a_naive_model(steps in prop::collection::vec(step(), 0..60)) {
        let pool = Pool::new(8, 3).unwrap();
        let mut generations = [0u32; 3];
        let mut guards = Vec::new();
        for step in steps {
            match step {
                Step::Write { slot, generation } => {
                    let wanted = expected(&guards, &generations, slot, generation, true);
                    let got = pool.writer(slot, generation);
                    prop_assert_eq!(got.as_ref().map(|_| ()).map_err(|e| *e), wanted);
                    if let Ok(writer) = got {
                        generations[slot as usize] = generation;
                        guards.push(Guard::Writer(slot, writer));
                    }
                }
                Step::Read { slot, generation } => {
                    let wanted = expected(&guards, &generations, slot, generation, false);
                    let got = pool.reader(slot, generation);
                    prop_assert_eq!(got.as_ref().map(|_| ()).map_err(|e| *e), wanted);
                    if let Ok(reader) = got {
                        guards.push(Guard::Reader(slot, reader));
                    }
                }
                Step::Release(at) if !guards.is_empty() => {
                    guards.swap_remove(at % guards.len());
                }
                Step::Release(_) => {}
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn threads_never_see_torn_content(words in 1usize..600, rounds in 50u32..200) {
        let pool = Pool::new(words * 4, 2).unwrap();
        let newest = AtomicU32::new(0);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let readers: Vec<_> =
                (0..2).map(|_| scope.spawn(|| read_until(&pool, &newest, &done))).collect();
            let writers: Vec<_> =
                (0..2).map(|_| scope.spawn(|| write_rounds(&pool, &newest, rounds))).collect();
            for writer in writers {
                writer.join().unwrap();
            }
            done.store(true, Ordering::Release);
            for reader in readers {
                reader.join().unwrap();
            }
        });
    }
}

/// Fills slots with the writer's own generation, word by word.
fn write_rounds(pool: &Arc<Pool>, newest: &AtomicU32, rounds: u32) {
    for round in 0..rounds {
        let generation = newest.fetch_add(1, Ordering::Relaxed) + 1;
        let Ok(mut writer) = pool.writer(round % 2, generation) else { continue };
        for word in writer.chunks_exact_mut(4) {
            word.copy_from_slice(&generation.to_le_bytes());
        }
    }
}

/// Whatever can be read under a generation is that generation's content, whole.
fn read_until(pool: &Arc<Pool>, newest: &AtomicU32, done: &AtomicBool) {
    while !done.load(Ordering::Acquire) {
        let newest = newest.load(Ordering::Relaxed);
        for generation in newest.saturating_sub(3).max(1)..=newest {
            for slot in 0..2 {
                let Ok(reader) = pool.reader(slot, generation) else { continue };
                assert!(reader.chunks_exact(4).all(|word| word == generation.to_le_bytes()));
            }
        }
    }
}
