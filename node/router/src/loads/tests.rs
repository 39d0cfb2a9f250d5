use super::*;
use crate::Policy;
use crate::testing::*;

fn flight(names: &[PrefixHash], skipped: usize) -> Flight {
    Flight {
        node: node(1),
        incarnation: FIRST,
        engine: EngineId(0),
        storage: None,
        skipped,
        granules: names.into(),
        tokens: 0,
        placed: Time::ZERO,
        done: Time::ZERO,
        expires: ms(1),
        own: false,
    }
}

#[test]
fn a_flight_covers_what_is_common() {
    let (a, b) = (prompt(1, 640, 2048), prompt(2, 640, 2048));
    let (a, b) = (crate::index::granules(&a), crate::index::granules(&b));
    assert_eq!(flight(&a, 0).covers(&a), 32);
    assert_eq!(flight(&a, 0).covers(&b), 10);
    assert_eq!(flight(&a[..5], 0).covers(&b), 5);
    assert_eq!(flight(&a[4..], 4).covers(&b), 10);
    assert_eq!(flight(&a[12..], 12).covers(&b), 0);
    assert_eq!(flight(&a, 0).covers(&[]), 0);
}

#[test]
fn a_placement_weighs_until_a_heartbeat_contains_it() {
    let mut world = World::new(2, Params::default());
    let tokens = 10_000;
    let queue = |world: &World, n: u8| {
        let other = prompt(9, 0, 640);
        let query = crate::Query { avoid: &[node(1 - n)], ..query(&other, 640) };
        let placed =
            crate::place(&world.index, &world.loads, &query, Policy::Kv, 0, world.now).unwrap();
        placed.plan.estimate.queue_ms
    };
    let names = prompt(1, 0, tokens);
    let (target, placed) = world.kv(&names, tokens, 1);
    assert_eq!(queue(&world, target), 0.0);
    let guard = world.loads.placed(&placed, &names, world.now);
    assert_eq!(queue(&world, target), 1_000.0);
    assert_eq!(queue(&world, 1 - target), 0.0);
    world.now += Span::millis(50);
    world.load(target, |_| {});
    assert_eq!(queue(&world, target), 1_000.0, "this heartbeat left before the request came");
    world.now += Span::millis(500);
    world.load(target, |load| load.prefill_tokens = 7_000);
    assert_eq!(queue(&world, target), 700.0, "contained: counted once");
    drop(guard);
    assert_eq!(queue(&world, target), 700.0);
}

#[test]
fn a_dropped_placement_never_was_and_a_started_one_lingers() {
    let world = World::new(2, Params::default());
    let names = prompt(1, 0, 10_000);
    let (_, placed) = world.kv(&names, 10_000, 1);
    let target = placed.plan.prefill.node.0[0];
    drop(world.loads.placed(&placed, &names, world.now));
    let computed = |world: &World| {
        let (to, placed) = world.kv(&names, 10_000, 1);
        (to, placed.plan.estimate.computed_tokens)
    };
    assert_eq!(computed(&world), (target, 10_000));
    world.loads.placed(&placed, &names, world.now).started(world.now);
    assert_eq!(computed(&world), (target, 10_000 - 9_984), "its prefix counts as cached");
    let mut world = world;
    world.now += Span::millis(1_001);
    assert_eq!(computed(&world), (target, 10_000), "no event confirmed it");
    assert_eq!(world.loads.turns(), 2);
}

#[test]
fn a_prompt_too_short_for_the_index_is_forgotten_once_it_has_started() {
    let world = World::new(2, Params::default());
    for (tokens, left) in [(48, 0), (64, 1)] {
        let names = prompt(7, 0, tokens);
        let (_, placed) = world.kv(&names, tokens, 1);
        let flight = world.loads.placed(&placed, &names, world.now);
        assert_eq!(world.loads.flights().len(), 1, "it weighs on its target until then");
        flight.started(world.now);
        assert_eq!(world.loads.flights().len(), left);
    }
}

#[test]
fn flights_are_bounded() {
    let loads = Loads::new(Params::default());
    let names = crate::index::granules(&prompt(1, 0, 64));
    for _ in 0..MAX_FLIGHTS + 100 {
        loads.add_flight(Time::ZERO, flight(&names, 0));
    }
    let mut count = 0;
    loads.each_flight(Time::ZERO, |_| count += 1);
    assert_eq!(count, MAX_FLIGHTS);
    loads.add_flight(ms(2), flight(&names, 0));
    assert!(loads.flights().len() <= 1, "expired ones made room");
}
