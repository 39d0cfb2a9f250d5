use super::*;
use crate::testing::*;
use crate::{In, Params};
use proptest::prelude::*;
use protocol::event::{EventRun, Holder, MemberView};
use protocol::id::{EngineId, Incarnation};
use protocol::time::Span;
use std::collections::{BTreeMap, BTreeSet};

/// Places `n` prompts at one instant, each counted at once; prompts per node, and how many of
/// them compute more than the last granule.
fn burst(
    world: &World,
    n: u64,
    names: impl Fn(u64) -> Vec<PrefixHash>,
) -> (BTreeMap<u8, u32>, u32) {
    let (mut nodes, mut cold) = (BTreeMap::new(), 0);
    for seed in 0..n {
        let names = names(seed);
        let tokens = names.len() as u32 * 16 + 5;
        let (to, placed) = world.kv(&names, tokens, seed);
        *nodes.entry(to).or_default() += 1;
        if placed.plan.estimate.computed_tokens > tokens / 2 {
            cold += 1;
        }
        std::mem::forget(world.loads.placed(&placed, &names, world.now));
    }
    (nodes, cold)
}

#[test]
fn equal_cold_prompts_meet_on_one_node() {
    let world = World::new(4, Params::default());
    let (nodes, cold) = burst(&world, 32, |_| prompt(1, 0, 4_000));
    assert_eq!((nodes.len(), cold), (1, 1), "{nodes:?}");
}

#[test]
fn a_burst_beyond_one_pool_spreads_by_capacity() {
    let mut world = World::new(4, Params::default());
    // A pool takes the prompt once (250 blocks) and the answers (16 blocks each) of 16 requests.
    for n in 0..4 {
        world.load(n, |load| load.total_blocks = 250 + 16 * 16);
    }
    let (nodes, cold) = burst(&world, 32, |_| prompt(1, 0, 4_000));
    assert!(cold <= 3 && nodes.len() as u32 == cold, "{cold} prefills on {nodes:?}");
    assert!(nodes.values().all(|n| *n <= 20), "{nodes:?}");
}

#[test]
fn unequal_cold_prompts_scatter() {
    let world = World::new(4, Params::default());
    let (nodes, _) = burst(&world, 32, |seed| prompt(seed + 1, 0, 4_000));
    assert!(nodes.values().all(|n| *n == 8), "{nodes:?}");
}

#[test]
fn a_hot_prefix_spreads_when_its_node_is_busy() {
    let mut world = World::new(4, Params::default());
    world.cache(2, &prompt(0, 8_000, 8_000), 8_000);
    let (nodes, cold) = burst(&world, 64, |seed| prompt(seed + 1, 8_000, 9_600));
    let most = nodes.values().max().copied().unwrap_or_default();
    assert!(most <= 64 / 4 * 2, "max over mean is at most 2: {nodes:?}");
    assert_eq!(nodes.len(), 4, "{nodes:?}");
    assert_eq!(cold, 0, "the prefix is fetched, not computed again");
}

#[test]
fn a_cached_prefix_wins_and_a_busy_holder_is_left() {
    let mut world = World::new(3, Params::default());
    let names = prompt(1, 0, 4_000);
    world.cache(2, &names, 3_968);
    let (to, placed) = world.kv(&names, 4_000, 1);
    assert_eq!((to, placed.plan.estimate.local_tokens), (2, 3_968));
    assert!(placed.outcome.starts_with("kv: "), "{}", placed.outcome);
    world.load(2, |load| load.prefill_tokens = 20_000);
    let (to, placed) = world.kv(&names, 4_000, 1);
    assert_ne!(to, 2);
    assert_eq!(placed.plan.sources.len(), 1);
    let source = &placed.plan.sources[0];
    assert_eq!((source.node, source.start, source.end), (node(2), 0, 3_984));
}

#[test]
fn a_prefix_under_way_elsewhere_attracts() {
    let mut world = World::new(3, Params::default());
    let names = prompt(1, 0, 8_000);
    let EventRun::Stored { storage, first, hashes, .. } = stored(ENGINE, &names, 0, 7_936) else {
        unreachable!()
    };
    let eta = Span::millis(300);
    world.learn(1, &[EventRun::Computing { storage, engine: EngineId(0), eta, first, hashes }]);
    let (to, placed) = world.kv(&names, 8_000, 3);
    assert_eq!((to, placed.plan.estimate.local_tokens), (1, 7_936));
    assert!((placed.plan.estimate.onboard_ms - 300.0).abs() < 1.0, "it waits for it");
    world.now += Span::secs(5);
    assert_eq!(world.kv(&names, 8_000, 3).1.plan.estimate.local_tokens, 0, "it never came");
    world.learn(2, &[stored(Holder::Computing(EngineId(0)), &names, 0, 7_936)]);
    assert_eq!(world.kv(&names, 8_000, 3).0, 2);
}

#[test]
fn only_usable_nodes_are_chosen() {
    type Change = fn(&mut MemberView);
    let changes: [(Change, &str); 6] = [
        (|view| view.state = MemberState::Suspect, "not heard lately"),
        (|view| view.state = MemberState::Draining, "draining"),
        (|view| view.state = MemberState::Left, "left"),
        (|view| view.state = MemberState::Dead, "dead"),
        (|view| view.engines[0].routing = [2; 32], "serves another model"),
        (|view| view.engines[0].context = 4_000, "prompt exceeds its context"),
    ];
    for (change, why) in changes {
        let mut world = World::new(2, Params::default());
        let names = prompt(1, 0, 4_000);
        world.cache(1, &names, 3_968);
        assert_eq!(world.kv(&names, 4_000, 0).0, 1);
        world.change(1, change);
        for policy in Policy::ALL {
            for seed in 0..8 {
                let placed = world.place(&names, 4_000, policy, seed).unwrap();
                assert_eq!(placed.plan.prefill.node, node(0), "{policy}: {why}");
            }
        }
        let query = query(&names, 4_000);
        let explained = explain(&world.index, &world.loads, &query, Policy::Kv, 0, world.now);
        assert!(explained.candidates.iter().any(|c| c.excluded == Some(why)), "{explained:?}");
    }
}

#[test]
fn a_restarted_node_is_not_credited_with_its_former_life() {
    let mut world = World::new(2, Params::default());
    let names = prompt(1, 0, 4_000);
    world.cache(1, &names, 3_968);
    let second = Incarnation { counter: 2, nonce: 5 };
    world.change(1, |view| view.incarnation = second);
    let (_, placed) = world.kv(&names, 4_000, 0);
    assert_eq!(placed.plan.estimate.computed_tokens, 4_000);
    assert_eq!(world.router.stats().pairs, 0);
}

#[test]
fn nobody_to_serve_is_told_apart_from_too_long() {
    let mut world = World::new(1, Params::default());
    let names = prompt(1, 0, 640);
    let other = Query { routing: [9; 32], ..query(&names, 640) };
    let refused = place(&world.index, &world.loads, &other, Policy::Kv, 0, world.now);
    assert_eq!(refused, Err(Refusal::NoTarget { model: "m".into() }));
    let refused = world.place(&names, 131_072, Policy::Kv, 0);
    assert_eq!(refused, Err(Refusal::TooLong { tokens: 131_072, limit: 131_072 }));
    let avoid = [node(0)];
    let avoided = Query { avoid: &avoid, ..query(&names, 640) };
    assert!(place(&world.index, &world.loads, &avoided, Policy::Kv, 0, world.now).is_err());
    world.handle(In::Forget { node: node(0), incarnation: FIRST });
    assert!(world.place(&names, 640, Policy::Kv, 0).is_err());
}

#[test]
fn round_robin_takes_turns_and_fetches_nothing() {
    let mut world = World::new(3, Params::default());
    let names = prompt(1, 0, 4_000);
    world.cache(1, &names, 3_968);
    let mut seen = Vec::new();
    for seed in 0..6 {
        let placed = world.place(&names, 4_000, Policy::RoundRobin, seed).unwrap();
        assert!(placed.plan.sources.is_empty());
        seen.push(placed.plan.prefill.node.0[0]);
        drop(world.loads.placed(&placed, &names, world.now));
    }
    assert_eq!(seen[..3], seen[3..]);
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 3);
}

#[test]
fn the_other_policies_do_what_they_say() {
    let mut world = World::new(4, Params::default());
    for n in 1..4 {
        world.load(n, |load| load.prefill_tokens = 1_000 * u32::from(n));
    }
    let names = prompt(1, 0, 640);
    let spread = |world: &World, policy| {
        let mut nodes: BTreeMap<u8, u32> = BTreeMap::new();
        for seed in 0..400 {
            let placed = world.place(&names, 640, policy, seed).unwrap();
            *nodes.entry(placed.plan.prefill.node.0[0]).or_default() += 1;
        }
        nodes
    };
    assert_eq!(spread(&world, Policy::LeastLoaded), BTreeMap::from([(0, 400)]));
    let random = spread(&world, Policy::Random);
    assert!((0..4).all(|n| (60..140).contains(&random[&n])), "{random:?}");
    let two = spread(&world, Policy::PowerOfTwo);
    assert!(two[&0] > two[&1] && two[&1] > two[&2], "{two:?}");
    assert!(!two.contains_key(&3), "the most loaded loses every pair: {two:?}");
}

#[test]
fn sessions_stay_at_home() {
    let mut world = World::new(4, Params::default());
    let names = prompt(1, 0, 640);
    let mut homes: BTreeMap<String, u8> = BTreeMap::new();
    for n in 0..40 {
        let session = SessionId::new(&format!("s{n}")).unwrap();
        let query = Query { session: Some(&session), ..query(&names, 640) };
        let at = |seed| {
            place(&world.index, &world.loads, &query, Policy::Session, seed, world.now)
                .unwrap()
                .plan
                .prefill
                .node
                .0[0]
        };
        assert_eq!(at(1), at(2));
        homes.insert(format!("s{n}"), at(1));
    }
    assert_eq!(homes.values().collect::<BTreeSet<_>>().len(), 4);
    world.change(3, |view| view.state = MemberState::Dead);
    for (name, home) in &homes {
        let session = SessionId::new(name).unwrap();
        let query = Query { session: Some(&session), ..query(&names, 640) };
        let now = place(&world.index, &world.loads, &query, Policy::Session, 1, world.now).unwrap();
        assert!(*home == 3 || now.plan.prefill.node == node(*home), "only the dead one's move");
    }
}

#[test]
fn equals_are_drawn_by_the_seed_and_explained() {
    let world = World::new(4, Params::default());
    let names = prompt(1, 0, 640);
    let chosen: BTreeSet<u8> = (0..64).map(|seed| world.kv(&names, 640, seed).0).collect();
    assert_eq!(chosen.len(), 4);
    for seed in 0..16 {
        let query = query(&names, 640);
        let explained = explain(&world.index, &world.loads, &query, Policy::Kv, seed, world.now);
        let (to, placed) = world.kv(&names, 640, seed);
        let winner = &explained.candidates[explained.winner.unwrap()];
        assert_eq!(winner.node, node(to).to_string());
        assert_eq!(winner.estimate, placed.plan.estimate);
        assert_eq!(explained.why, placed.outcome);
        assert_eq!(explained.granules, 10);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Same inputs and seed, same decision; and the plan is sound.
    #[test]
    fn decisions_are_deterministic_and_sound(
        cached in prop::collection::vec((0u8..5, 0u32..60), 0..10),
        queued in prop::collection::vec(0u32..30_000, 5),
        tokens in 1u32..5_000,
        seed: u64,
    ) {
        let names = prompt(1, 0, 5_000);
        let build = || {
            let mut world = World::new(5, Params::default());
            for (n, tokens) in (0..).zip(&queued) {
                world.load(n, |load| load.prefill_tokens = *tokens);
            }
            for (n, granules) in &cached {
                world.cache(*n, &names, granules * 64 + 64);
            }
            world
        };
        let (a, b) = (build(), build());
        for policy in Policy::ALL {
            let placed = a.place(&names, tokens, policy, seed).unwrap();
            prop_assert_eq!(&placed, &b.place(&names, tokens, policy, seed).unwrap());
            let Estimate { local_tokens, peer_tokens, computed_tokens, .. } = placed.plan.estimate;
            prop_assert_eq!(local_tokens + peer_tokens + computed_tokens, tokens);
            prop_assert!(computed_tokens >= 1);
            let mut end = local_tokens;
            for source in &placed.plan.sources {
                prop_assert_eq!(source.start, end);
                prop_assert!(source.end > source.start && source.node != placed.plan.prefill.node);
                end = source.end;
            }
            // The last holder is asked for up to three blocks beyond what the index knows.
            let known = local_tokens + peer_tokens;
            prop_assert!(end >= known && end - known < 64 && end < tokens.max(known + 1));
            prop_assert!(end == known || end.is_multiple_of(16));
        }
    }
}
