use super::*;
use proptest::prelude::*;

fn at(ms: u64) -> Time {
    Time::ZERO + Span::millis(ms)
}

fn arrival(id: u128, strict: u32, priority: i32, uncached: u32) -> Arrival {
    Arrival { id: RequestId(id), strict, priority, uncached }
}

fn arrive(id: u128, strict: u32, priority: i32, uncached: u32) -> In {
    In::Arrive(arrival(id, strict, priority, uncached))
}

fn run(queue: &mut Queue, now: Time, input: In) -> Vec<Out> {
    let mut outbox = Vec::new();
    queue.handle(now, input, &mut outbox);
    assert!(queue.is_consistent());
    outbox
}

/// A queue whose only place is taken by request 0.
fn full(config: Config) -> Queue {
    let mut queue = Queue::new(Config { window: 1, ..config });
    assert_eq!(run(&mut queue, at(0), arrive(0, 0, 0, 1)), [Out::Admit(RequestId(0))]);
    queue
}

/// Ends what runs until nothing waits; the order of admission.
fn drain(queue: &mut Queue, now: Time, mut running: u128) -> Vec<u128> {
    let mut order = Vec::new();
    while let [Out::Admit(id)] = run(queue, now, In::Done(RequestId(running)))[..] {
        order.push(id.0);
        running = id.0;
    }
    order
}

#[test]
fn order_is_tier_then_priority_then_work_then_arrival() {
    let mut queue = full(Config::default());
    for (id, strict, priority, uncached) in [
        (1, 0, 0, 500),
        (2, 0, 0, 100),
        (3, 0, -2, 1),
        (4, 0, 3, 900),
        (5, 1, -9, 900),
        (6, 0, 0, 100),
    ] {
        run(&mut queue, at(10), arrive(id, strict, priority, uncached));
    }
    assert_eq!(drain(&mut queue, at(20), 0), [5, 4, 2, 6, 1, 3]);
}

#[test]
fn waiting_raises_as_priority_does() {
    let mut queue = full(Config::default());
    run(&mut queue, at(0), arrive(1, 0, 0, 1));
    run(&mut queue, at(1_500), arrive(2, 0, 1, 1));
    run(&mut queue, at(1_600), arrive(3, 0, 3, 1));
    assert_eq!(drain(&mut queue, at(2_000), 0), [3, 1, 2]);
}

#[test]
fn lower_classes_are_shed_first() {
    let mut queue = full(Config { max_waiting: 3, ..Config::default() });
    run(&mut queue, at(1), arrive(1, 0, -1, 1));
    run(&mut queue, at(2), arrive(2, 0, 0, 1));
    run(&mut queue, at(3), arrive(3, 0, -1, 1));
    let refused = |out: Vec<Out>| match out[..] {
        [Out::Refuse(id, Refusal::Busy { retry_after })] => {
            assert!(retry_after >= Span::millis(100) && retry_after <= Span::secs(60));
            id.0
        }
        _ => panic!("{out:?}"),
    };
    assert_eq!(refused(run(&mut queue, at(4), arrive(4, 0, 0, 1))), 3, "of equals the latest");
    assert_eq!(refused(run(&mut queue, at(5), arrive(5, 0, 0, 1))), 1);
    assert_eq!(refused(run(&mut queue, at(6), arrive(6, 0, 0, 1))), 6, "equals do not displace");
    assert_eq!(refused(run(&mut queue, at(7), arrive(7, 0, -5, 1))), 7);
    assert_eq!(refused(run(&mut queue, at(8), arrive(8, 1, -5, 1))), 5);
    assert_eq!(drain(&mut queue, at(9), 0), [8, 2, 4]);
}

#[test]
fn tokens_bound_the_queue_and_one_large_request_may_wait_alone() {
    let mut queue = full(Config { max_waiting_tokens: 1_000, ..Config::default() });
    assert!(run(&mut queue, at(1), arrive(1, 0, 0, 5_000)).is_empty());
    assert!(matches!(
        run(&mut queue, at(2), arrive(2, 0, 0, 10))[..],
        [Out::Refuse(RequestId(2), _)]
    ));
    assert_eq!(drain(&mut queue, at(3), 0), [1]);
}

#[test]
fn cancel_frees_what_it_held() {
    let mut queue = full(Config::default());
    run(&mut queue, at(1), arrive(1, 0, 0, 7));
    run(&mut queue, at(1), arrive(2, 0, 0, 9));
    assert!(run(&mut queue, at(2), In::Cancel(RequestId(1))).is_empty());
    assert_eq!(queue.stats().waiting_tokens, 9);
    assert_eq!(run(&mut queue, at(3), In::Cancel(RequestId(0))), [Out::Admit(RequestId(2))]);
    assert!(run(&mut queue, at(4), In::Done(RequestId(0))).is_empty(), "ended twice: ignored");
    assert_eq!(queue.stats().running, 1);
}

#[test]
fn a_larger_window_admits_at_once() {
    let mut queue = full(Config::default());
    run(&mut queue, at(1), arrive(1, 0, 0, 7));
    assert_eq!(run(&mut queue, at(2), In::Window(2)), [Out::Admit(RequestId(1))]);
    assert!(run(&mut queue, at(3), arrive(1, 0, 0, 7)).is_empty(), "known: ignored");
}

#[derive(Clone, Debug)]
enum Op {
    Arrive { strict: u32, priority: i32, uncached: u32 },
    Done(usize),
    Cancel(usize),
}

fn op() -> impl Strategy<Value = (u64, Op)> {
    let arrive = (0u32..2, -100i32..100, 0u32..2_000)
        .prop_map(|(strict, priority, uncached)| Op::Arrive { strict, priority, uncached });
    let step = prop_oneof![
        4 => arrive,
        3 => any::<prop::sample::Index>().prop_map(|at| Op::Done(at.index(64))),
        1 => any::<prop::sample::Index>().prop_map(|at| Op::Cancel(at.index(64))),
    ];
    (0u64..3_000, step)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Conservation: every arrival is answered exactly once or was cancelled; the window and the
    /// bounds hold. Starvation: within a tier nobody is overtaken by one who came more than the
    /// bound later.
    #[test]
    fn every_arrival_is_answered_once_within_the_bound(ops in prop::collection::vec(op(), 1..120)) {
        let config = Config {
            window: 2,
            max_waiting: 8,
            max_waiting_tokens: 6_000,
            starvation: Span::secs(20),
            ..Config::default()
        };
        let mut queue = Queue::new(config);
        let mut now = 0;
        let mut open: BTreeMap<u128, (u64, u32)> = BTreeMap::new();
        let mut running: Vec<u128> = Vec::new();
        let mut answered = BTreeSet::new();
        for (id, (wait, op)) in (1u128..).zip(ops) {
            now += wait;
            let input = match op {
                Op::Arrive { strict, priority, uncached } => {
                    open.insert(id, (now, strict));
                    arrive(id, strict, priority, uncached)
                }
                Op::Done(at) if !running.is_empty() => {
                    In::Done(RequestId(running.swap_remove(at % running.len())))
                }
                Op::Cancel(at) if !open.is_empty() => {
                    let id = *open.keys().nth(at % open.len()).unwrap();
                    open.remove(&id);
                    In::Cancel(RequestId(id))
                }
                Op::Done(_) | Op::Cancel(_) => continue,
            };
            for out in run(&mut queue, at(now), input) {
                let id = match out {
                    Out::Admit(id) => {
                        running.push(id.0);
                        let (came, strict) = open[&id.0];
                        let bound = came.saturating_sub(20_250);
                        let starved = open.iter().find(|(_, (t, s))| *s >= strict && *t < bound);
                        prop_assert!(starved.is_none(), "{id:?} overtakes {starved:?}");
                        id.0
                    }
                    Out::Refuse(id, Refusal::Busy { .. }) => id.0,
                    Out::Refuse(_, other) => panic!("{other:?}"),
                };
                prop_assert!(open.remove(&id).is_some(), "{} was not waiting", id);
                prop_assert!(answered.insert(id), "{} was answered twice", id);
            }
            prop_assert!(running.len() <= 2);
            let waiting: BTreeSet<u128> = queue.waiting().map(|id| id.0).collect();
            prop_assert_eq!(waiting, open.keys().copied().collect());
            prop_assert_eq!(queue.stats().running, running.len() as u64);
        }
    }
}
