use crate::testing::*;
use crate::{Candidate, Params, Policy, explain};
use proptest::prelude::*;
use protocol::event::{EngineLoad, Holder};

/// Node `n` as a candidate for the prompt.
fn candidate(world: &World, n: u8, names: &[protocol::hash::PrefixHash], tokens: u32) -> Candidate {
    let query = query(names, tokens);
    let explained = explain(&world.index, &world.loads, &query, Policy::Kv, 0, world.now);
    let id = node(n).to_string();
    explained.candidates.into_iter().find(|candidate| candidate.node == id).unwrap()
}

#[test]
fn parts_are_milliseconds() {
    let params = Params { decode_weight: 0.5, gpu_weight: 0.25, ..Params::default() };
    let mut world = World::new(1, params);
    world.load(0, |load| {
        load.prefill_tokens = 500;
        load.active_blocks = 1_638;
        load.attention_ns = 100.0;
    });
    let names = prompt(1, 0, 2_000);
    world.learn(0, &[stored(Holder::Dram, &names, 0, 1_024)]);
    let estimate = candidate(&world, 0, &names, 2_000).estimate;
    assert_eq!(estimate.queue_ms, 50.0);
    let import = 1_024.0 * 10_000.0 / 4e9 * 1e3;
    assert!((estimate.onboard_ms - import).abs() < 1e-3);
    let attention = (976.0 * 1_024.0 + 976.0 * 976.0 / 2.0) * 100e-6;
    assert!((estimate.prefill_ms - (97.6 + attention)).abs() < 1e-2);
    assert!((estimate.gpu_ms - estimate.prefill_ms * 0.25).abs() < 1e-3);
    let fill = (1_638.0 + (2_000.0 + 256.0) / 16.0) / 16_384.0;
    assert!((estimate.decode_ms - 0.5 * 256.0 * 10.0 * fill).abs() < 1e-2);
    let sum = estimate.queue_ms.max(estimate.onboard_ms)
        + estimate.prefill_ms
        + estimate.decode_ms
        + estimate.gpu_ms;
    assert!((estimate.cost_ms - sum).abs() < 1e-2);
    assert_eq!((estimate.local_tokens, estimate.peer_tokens), (1_024, 0));
    assert_eq!(estimate.computed_tokens, 976);
}

#[test]
fn the_last_token_is_computed_and_blocks_are_whole() {
    let mut world = World::new(1, Params::default());
    let names = prompt(1, 0, 1_024);
    world.cache(0, &names, 1_024);
    assert_eq!(candidate(&world, 0, &names, 1_024).estimate.local_tokens, 1_008);
    assert_eq!(candidate(&world, 0, &names, 1_030).estimate.local_tokens, 1_024);
    assert_eq!(candidate(&world, 0, &names, 1).estimate.computed_tokens, 1);
}

#[test]
fn stretches_come_from_whoever_has_them() {
    let mut world = World::new(4, Params::default());
    let names = prompt(1, 0, 4_096);
    world.cache(0, &names, 640);
    world.cache(1, &names, 2_048);
    world.cache(2, &names, 3_200);
    world.learn(3, &[stored(ENGINE, &names, 0, 4_096)]);
    world.path(1, 0.2, 10e9);
    let candidate = candidate(&world, 0, &names, 4_096);
    let sources: Vec<(String, u32, u32)> =
        candidate.sources.iter().map(|s| (s.node.clone(), s.start, s.end)).collect();
    let expected = [
        (node(1).to_string(), 640, 2_048),
        // The index knows 3,200 tokens; the holder may have three blocks more.
        (node(2).to_string(), 2_048, 3_248),
    ];
    assert_eq!(sources, expected, "peers read DRAM, not an engine's pool");
    assert_eq!(candidate.split, 3_200);
    assert_eq!(candidate.estimate.peer_tokens, 2_560);
    assert!(candidate.sources.iter().all(|s| s.deadline_ms >= 20.0));
}

#[test]
fn nvme_is_dearer_than_dram_and_cheaper_than_the_network() {
    let params = Params { gpu_weight: 0.0, decode_weight: 0.0, ..Params::default() };
    let names = prompt(1, 0, 4_096);
    let onboard = |holders: &[(u8, Holder)]| {
        let mut world = World::new(2, params);
        world.path(1, 0.2, 500e6);
        for (n, holder) in holders {
            world.learn(*n, &[stored(*holder, &names, 0, 2_048)]);
        }
        let candidate = candidate(&world, 0, &names, 4_096);
        assert_eq!(candidate.split, 2_048, "{holders:?}");
        (candidate.estimate.onboard_ms, candidate.sources.len())
    };
    let bytes = 2_048.0 * 10_000.0;
    let (import, read, send) = (bytes / 4e9 * 1e3, bytes / 1e9 * 1e3, bytes / 500e6 * 1e3 + 0.2);
    let near = |(onboard, sources): (f32, usize), ms: f32, from: usize| {
        assert!((onboard - ms).abs() < 0.01 && sources == from, "{onboard} {ms} {sources}");
    };
    near(onboard(&[(0, Holder::Dram)]), import, 0);
    near(onboard(&[(0, Holder::Nvme)]), read + import, 0);
    near(onboard(&[(1, Holder::Dram)]), send + import, 1);
    // A peer reads its disk before it sends.
    near(onboard(&[(1, Holder::Nvme)]), read + send + import, 1);
    near(onboard(&[(0, Holder::Nvme), (1, Holder::Dram)]), read + import, 0);
    // A disk much slower than the network: from the peer.
    let params = Params { nvme_bytes_s: 50e6, ..params };
    let mut world = World::new(2, params);
    world.path(1, 0.2, 500e6);
    world.learn(0, &[stored(Holder::Nvme, &names, 0, 2_048)]);
    world.learn(1, &[stored(Holder::Dram, &names, 0, 2_048)]);
    assert_eq!(candidate(&world, 0, &names, 4_096).sources.len(), 1);
}

#[test]
fn what_a_peer_has_in_dram_is_not_read_from_its_nvme() {
    let mut world = World::new(2, Params::default());
    let names = prompt(1, 0, 4_096);
    world.path(1, 0.2, 1e9);
    world.learn(
        1,
        &[stored(Holder::Dram, &names, 0, 2_048), stored(Holder::Nvme, &names, 0, 3_072)],
    );
    let estimate = candidate(&world, 0, &names, 4_096).estimate;
    assert_eq!(estimate.peer_tokens, 3_072);
    let ms = |tokens: f32, bytes_s: f32| tokens * 10_000.0 / bytes_s * 1e3;
    let expected = 0.2 + ms(3_072.0, 1e9) + ms(1_024.0, 1e9) + ms(3_072.0, 4e9);
    assert!((estimate.onboard_ms - expected).abs() < 0.01, "{} {expected}", estimate.onboard_ms);
}

#[test]
fn no_path_no_fetch_and_other_forms_are_of_no_use() {
    let mut world = World::new(3, Params::default());
    let names = prompt(1, 0, 4_096);
    world.cache(1, &names, 4_096);
    assert!(candidate(&world, 0, &names, 4_096).split > 0);
    world.handle(crate::In::Path { node: node(1), rtt_ms: 0.2, bytes_s: 1e9, reachable: false });
    assert_eq!(candidate(&world, 0, &names, 4_096).split, 0);
    assert_eq!(candidate(&world, 1, &names, 4_096).excluded, Some("no path from here"));
    world.path(1, 0.2, 1e9);
    assert!(candidate(&world, 2, &names, 4_096).split > 0, "between two others: by both ways");
    world.change(2, |view| {
        view.engines[0].storage = protocol::block::StorageId(8);
    });
    assert_eq!(candidate(&world, 2, &names, 4_096).split, 0);
}

#[test]
fn settings_force_the_decision() {
    let forced = |bandwidth, prefill| {
        let params = Params {
            assume_bandwidth_bytes_s: bandwidth,
            assume_prefill_tokens_s: prefill,
            ..Params::default()
        };
        let mut world = World::new(2, params);
        let names = prompt(1, 0, 4_096);
        world.cache(1, &names, 4_096);
        candidate(&world, 0, &names, 4_096).estimate.peer_tokens
    };
    assert_eq!(forced(None, None), 4_080);
    assert_eq!(forced(Some(1e6), None), 0);
    assert_eq!(forced(None, Some(1e9)), 0);
    assert_eq!(forced(Some(1e6), Some(10.0)), 4_080);
}

#[test]
fn one_whose_seats_are_taken_makes_wait_until_answers_end() {
    let mut world = World::new(2, Params::default());
    let names = prompt(1, 0, 100);
    let queue = |world: &World, n| candidate(world, n, &names, 100).estimate.queue_ms;
    for (running, waiting, queued) in [(15, 0, 0.0), (16, 0, 1.0), (16, 7, 8.0)] {
        world.load(0, |load| (load.seats, load.running, load.waiting) = (16, running, waiting));
        // 256 tokens of 10 ms each, and 16 seats that come free meanwhile.
        assert_eq!(queue(&world, 0), queued * 160.0, "{running} {waiting}");
    }
    // A node that does not tell, and what was placed but not reported.
    world.load(0, |load| (load.seats, load.running, load.waiting) = (0, 16, 7));
    assert_eq!(queue(&world, 0), 0.0);
    // A warm prefix does not outweigh it.
    world.cache(0, &names, 64);
    world.load(0, |load| (load.seats, load.running, load.waiting) = (16, 16, 0));
    let costs = [0, 1].map(|n| candidate(&world, n, &names, 100).estimate.cost_ms);
    assert!(costs[0] > costs[1], "{costs:?}");
}

#[test]
fn a_newcomer_counts_as_fast_as_the_best_measured() {
    let mut world = World::new(2, Params::default());
    world.load(1, |load| *load = EngineLoad { total_blocks: 16_384, ..EngineLoad::default() });
    let names = prompt(1, 0, 1_000);
    let measured = candidate(&world, 0, &names, 1_000).estimate;
    assert_eq!(candidate(&world, 1, &names, 1_000).estimate, measured);
}

fn loaded() -> impl Strategy<Value = EngineLoad> {
    (0u32..50_000, 0u32..20_000, 1f32..50_000.0, 0f32..500.0, 1f32..80.0, 0u32..40).prop_map(
        |(prefill_tokens, active_blocks, prefill_rate, attention_ns, decode_ms, running)| {
            EngineLoad {
                running,
                seats: 16,
                prefill_tokens,
                active_blocks,
                prefill_rate,
                attention_ns,
                decode_ms,
                total_blocks: 16_384,
                ..EngineLoad::default()
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// More load never makes a target cheaper; more cached never makes it dearer.
    #[test]
    fn load_repels_and_cache_attracts(
        load in loaded(),
        more in (0u32..20_000, 0u32..5_000),
        tokens in 65u32..20_000,
        cached in 0u32..300,
        extra in 0u32..100,
    ) {
        let names = prompt(1, 0, 40_000);
        let cost = |load: EngineLoad, cached: u32| {
            let mut world = World::new(1, Params::default());
            world.load(0, |place| *place = load);
            if cached > 0 {
                world.cache(0, &names, cached * 64);
            }
            candidate(&world, 0, &names, tokens).estimate.cost_ms
        };
        let base = cost(load, cached);
        let busier = EngineLoad {
            prefill_tokens: load.prefill_tokens + more.0,
            active_blocks: load.active_blocks + more.1,
            running: load.running + more.1 / 500,
            ..load
        };
        prop_assert!(cost(busier, cached) >= base * 0.999);
        prop_assert!(cost(load, cached + extra) <= base * 1.001);
        let parts = candidate_parts(load, cached, tokens);
        prop_assert_eq!(parts, tokens, "local + peer + computed is the prompt");
    }

    /// A slower path never makes more to be fetched, and never makes the target cheaper.
    #[test]
    fn a_slower_path_never_fetches_more(
        load in loaded(),
        tokens in 65u32..20_000,
        local in 0u32..100,
        remote in 1u32..300,
        bytes_s in 1e6f64..1e10,
        slower in 1f64..100.0,
    ) {
        let names = prompt(1, 0, 40_000);
        let fetched = |bytes_s: f64| {
            let mut world = World::new(2, Params::default());
            world.load(0, |place| *place = load);
            if local > 0 {
                world.cache(0, &names, local * 64);
            }
            world.cache(1, &names, remote * 64);
            world.path(1, 0.2, bytes_s);
            let candidate = candidate(&world, 0, &names, tokens);
            (candidate.estimate.peer_tokens, candidate.estimate.cost_ms)
        };
        let (quick, cheap) = fetched(bytes_s);
        let (slow, dear) = fetched(bytes_s / slower);
        prop_assert!(slow <= quick);
        prop_assert!(dear >= cheap * 0.999);
    }
}

fn candidate_parts(load: EngineLoad, cached: u32, tokens: u32) -> u32 {
    let names = prompt(1, 0, 40_000);
    let mut world = World::new(2, Params::default());
    world.load(0, |place| *place = load);
    world.cache(1, &names, cached * 64 + 64);
    let estimate = candidate(&world, 0, &names, tokens).estimate;
    estimate.local_tokens + estimate.peer_tokens + estimate.computed_tokens
}
