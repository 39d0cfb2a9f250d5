use super::*;

#[test]
fn ranges_cover_all_items_in_order() {
    for (threads, items) in [(1, 5), (3, 7), (8, 8), (4, 2), (2, 0)] {
        let ranges = Threads::new(threads).split(items, usize::MAX / 2, |range| range);
        assert!(ranges.len() <= threads);
        let all: Vec<usize> = ranges.into_iter().flatten().collect();
        assert_eq!(all, (0..items).collect::<Vec<_>>());
    }
}

#[test]
fn small_work_stays_here() {
    let here = std::thread::current().id();
    let ids = Threads::new(8).split(100, 1_000, |_| std::thread::current().id());
    assert_eq!(ids, [here]);
}

#[test]
#[should_panic(expected = "planted")]
fn a_panic_on_any_thread_is_passed_on() {
    Threads::new(2).split(2, usize::MAX / 2, |range| assert!(range.start == 0, "planted"));
}
