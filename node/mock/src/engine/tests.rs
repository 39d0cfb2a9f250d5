mod mixes;
mod rig;

use super::*;
use crate::Script;
use proptest::prelude::*;
use protocol::block::Generation;
use protocol::hash::Token;
use protocol::op::EngineOp;
use protocol::prompt::Started;
use rig::{BLOCK, Dram, Rig, STOP, chain, config, reference, tokens};
use std::sync::Arc;

fn clean(rig: &Rig) {
    let stats = rig.engine.stats();
    let bad = (stats.wrong_bytes, stats.wrong_slots, stats.overwritten, stats.violations);
    assert_eq!(bad, (0, 0, 0, 0), "{stats:?}");
}

#[test]
fn a_request_from_start_to_end() {
    let mut rig = Rig::new(config(64));
    rig.settle();
    assert_eq!(rig.now, Time::ZERO, "rates are told at once");
    let lease = rig.run(tokens(1, 40), 30);
    let seen = &rig.seen[&lease];
    let sources = protocol::prompt::PromptSources { computed: 40, ..Default::default() };
    let started = Started {
        serving_node: protocol::id::NodeId([7; 32]),
        prompt: sources,
        queued: Span::ZERO,
    };
    assert_eq!(seen.items[0], StreamItem::Started(started));
    assert!(seen.chunks().iter().all(|chunk| chunk.len() == 1));
    assert_eq!((seen.answer().len(), seen.reason()), (30, Some(FinishReason::Length)));
    assert!(seen.done && !seen.answer().contains(&STOP));
    // 40 + 29 tokens were fed: the last token of an answer never is.
    let sealed: Vec<_> =
        rig.events.iter().filter(|e| matches!(e, EngineEvent::Sealed { .. })).collect();
    assert_eq!(sealed.len(), 4);
    let timing = crate::Timing::default();
    let least = timing.prefill_ms(40, 0) + 29.0 * timing.decode_ms(0.0);
    assert!(rig.now.since(Time::ZERO).as_ms() >= least);
    assert_eq!(rig.free(), 64);
    clean(&rig);
}

#[test]
fn results_appear_at_the_end_of_a_step() {
    let mut rig = Rig::new(config(64));
    let job = rig.job(tokens(1, 100), 5, None).unwrap();
    let lease = rig.submit(job);
    let ends = Time::ZERO + crate::Timing::default().step(100, 0, None);
    rig.tick(ends - Span(1));
    assert!(rig.seen[&lease].items.is_empty() && rig.sealed.is_empty());
    assert_eq!(rig.engine.deadline(), Some(ends));
    rig.tick(ends);
    assert_eq!(rig.seen[&lease].items.len(), 2);
    assert_eq!(rig.sealed[&lease], 5);
}

#[test]
fn a_step_holds_one_token_of_each_decoder_and_prompts_for_the_rest_of_the_budget() {
    let mut config = config(400);
    config.max_batch = 4;
    config.max_batched_tokens = 100;
    let mut rig = Rig::new(config);
    for seed in 0..3 {
        let job = rig.job(tokens(seed, 16), 1_000, None).unwrap();
        rig.submit(job);
    }
    // Two steps: the first prompt alone, then it decodes beside the other two.
    for _ in 0..2 {
        rig.tick(rig.engine.step.as_ref().unwrap().ends());
    }
    assert_eq!(rig.engine.stats().decode_tokens, 1);
    let long = rig.job(tokens(9, 300), 5, None).unwrap();
    let long = rig.submit(long);
    let waits = rig.job(tokens(10, 20), 5, None).unwrap();
    let waits = rig.submit(waits);
    let before = rig.engine.stats();
    let mut steps = Vec::new();
    while rig.seen[&long].items.is_empty() {
        let stats = rig.engine.stats();
        rig.tick(rig.engine.step.as_ref().unwrap().ends());
        let after = rig.engine.stats();
        steps.push((
            after.prefill_tokens - stats.prefill_tokens,
            after.decode_tokens - stats.decode_tokens,
        ));
    }
    assert_eq!(steps, [(0, 3), (97, 3), (97, 3), (97, 3), (9, 3)], "{before:?}");
    // The fifth waits for a place in the batch.
    assert!(rig.seen[&waits].items.is_empty());
    assert_eq!((rig.engine.load().running, rig.engine.load().waiting), (4, 1));
    rig.settle();
    assert_eq!(rig.seen[&waits].answer().len(), 5);
    clean(&rig);
}

#[test]
fn priority_goes_first_then_arrival() {
    let mut config = config(64);
    config.max_batch = 1;
    let mut rig = Rig::new(config);
    let mut order = Vec::new();
    for (priority, seed) in [(0, 1), (0, 2), (-5, 3), (7, 4)] {
        let mut job = rig.job(tokens(seed, 16), 1, None).unwrap();
        job.priority = priority;
        job.arrived = Time(u64::from(seed));
        order.push(rig.submit(job));
    }
    rig.settle();
    let mut ended: Vec<_> = order.iter().map(|lease| (ended_at(&rig, *lease), *lease)).collect();
    ended.sort();
    let ended: Vec<_> = ended.into_iter().map(|(_, lease)| lease).collect();
    // The first runs already when the others come.
    assert_eq!(ended, [order[0], order[3], order[1], order[2]]);
}

fn ended_at(rig: &Rig, lease: LeaseId) -> usize {
    let done = format!("Done({lease:?})");
    rig.log.iter().position(|line| line.ends_with(&done)).unwrap()
}

#[test]
fn jobs_that_can_never_run_are_refused() {
    let mut rig = Rig::new(config(200));
    let mut refused = |change: fn(&mut Job), prompt: usize| {
        let mut job = rig.job(tokens(1, prompt), 5, None).unwrap();
        change(&mut job);
        let lease = rig.submit(job);
        rig.settle();
        let seen = &rig.seen[&lease];
        assert!(seen.done && seen.items.is_empty());
        seen.refused.clone().unwrap()
    };
    assert_eq!(refused(|_| {}, 1_000), Refusal::TooLong { tokens: 1_000, limit: 999 });
    let malformed: [fn(&mut Job); 5] = [
        |job| job.prompt = Arc::default(),
        |job| Arc::make_mut(&mut job.prompt)[0] = Token(5_000),
        |job| job.grant.slots.truncate(1),
        |job| job.grant.slots[1].slot.0 = 200,
        |job| job.grant.ready = 1,
    ];
    for change in malformed {
        assert!(matches!(refused(change, 40), Refusal::Failed(_)));
    }
    // Only the last one shows a broken block manager.
    assert_eq!((rig.engine.stats().refused, rig.engine.stats().violations), (6, 1));
    assert_eq!(rig.free(), 200);
}

#[test]
fn without_room_the_youngest_gives_up_and_the_others_go_on() {
    let mut rig = Rig::new(config(12));
    let jobs: Vec<_> = (0..3).map(|seed| rig.job(tokens(seed, 40), 60, None).unwrap()).collect();
    let mut leases = Vec::new();
    for (n, mut job) in jobs.into_iter().enumerate() {
        job.arrived = Time(n as u64);
        leases.push(rig.submit(job));
    }
    rig.settle();
    let reasons: Vec<_> = leases.iter().map(|lease| rig.seen[lease].reason().unwrap()).collect();
    assert_eq!(reasons, [FinishReason::Length, FinishReason::Length, FinishReason::ContextFull]);
    assert_eq!(rig.engine.stats().gave_up, 1);
    // It goes on from its tokens so far and says the same as without the break.
    let begun = rig.seen[&leases[2]].answer();
    assert!(!begun.is_empty() && begun.len() < 60);
    let mut prompt = tokens(2, 40);
    prompt.extend(&begun);
    let more = rig.run(prompt, 60 - begun.len() as u32);
    let whole = [begun, rig.seen[&more].answer()].concat();
    assert_eq!(whole, reference(&tokens(2, 40), 60));
    clean(&rig);
}

#[test]
fn an_abort_ends_it_at_the_end_of_the_step() {
    let mut rig = Rig::new(config(64));
    let job = rig.job(tokens(1, 40), 30, None).unwrap();
    let lease = rig.submit(job);
    rig.input(In::Op(EngineOp::Abort { lease }));
    assert!(!rig.seen[&lease].done, "the step may still write");
    rig.settle();
    let seen = &rig.seen[&lease];
    assert_eq!((seen.reason(), seen.answer().len()), (Some(FinishReason::Cancelled), 1));
    // One that does not run ends at once; one whose reader left says nothing.
    let mut gone = rig.job(tokens(2, 40), 30, None).unwrap();
    rig.arriving(&mut gone, &[0], Span::secs(5));
    let gone = rig.submit(gone);
    rig.input(In::Gone(gone));
    assert!(rig.seen[&gone].done && rig.seen[&gone].items.is_empty());
    assert_eq!(rig.engine.stats().cancelled, 2);
    // An abort that comes before its job.
    let early = rig.job(tokens(3, 40), 30, None).unwrap();
    rig.input(In::Op(EngineOp::Abort { lease: early.grant.lease }));
    let early = rig.submit(early);
    assert_eq!(rig.seen[&early].reason(), Some(FinishReason::Cancelled));
    clean(&rig);
}

#[test]
fn a_slow_reader_pauses_its_sequence_alone() {
    let mut rig = Rig::new(config(64));
    let slow = rig.job(tokens(1, 20), 30, None).unwrap();
    let slow = rig.submit(slow);
    rig.tick(rig.engine.step.as_ref().unwrap().ends());
    rig.input(In::Blocked(slow, true));
    let other = rig.run(tokens(2, 20), 30);
    assert_eq!(rig.seen[&other].answer().len(), 30);
    // The step that was running then still brings a token.
    assert_eq!(rig.seen[&slow].answer().len(), 2);
    rig.input(In::Blocked(slow, false));
    rig.settle();
    assert_eq!(rig.seen[&slow].answer(), reference(&tokens(1, 20), 30));
}

#[test]
fn a_wrong_block_changes_the_answer_and_is_counted() {
    let prompt = tokens(1, 64);
    let right = reference(&prompt, 10);
    let patterns = chain(&prompt);
    for (holds, counted) in [
        (Dram::Holds(patterns[1]), 0),
        (Dram::Holds(patterns[2]), 1), // misplaced
        (Dram::Torn, 1),
        (Dram::Stale, 0), // computed instead
    ] {
        let mut rig = Rig::new(config(64));
        let mut job = rig.job(prompt.clone(), 10, None).unwrap();
        rig.arriving(&mut job, &[0, 1], Span::secs(5));
        let lease = rig.submit(job.clone());
        rig.import(&job, 0, Dram::Holds(patterns[0]));
        rig.import(&job, 1, holds);
        rig.settle();
        assert_eq!(rig.engine.stats().wrong_bytes, counted, "{holds:?}");
        assert_eq!(rig.seen[&lease].answer() == right, counted == 0, "{holds:?}");
        assert!(rig.now < Time::ZERO + Span::secs(5), "nothing is waited for in vain");
        assert_eq!(rig.seen[&lease].sources().dram, if holds == Dram::Stale { 16 } else { 32 });
    }
}

#[test]
fn a_reused_slot_that_changed_is_counted() {
    let mut rig = Rig::new(config(64));
    let (prompt, other) = (tokens(1, 40), tokens(2, 40));
    let job = rig.job(other, 2, None).unwrap();
    rig.keep(job.grant.lease);
    let kept = rig.submit(job);
    rig.settle();
    // The manager says that the blocks of one prompt are those of another.
    let job = rig.job(prompt.clone(), 10, Some((kept, 2))).unwrap();
    let lease = rig.submit(job);
    rig.settle();
    assert_eq!(rig.engine.stats().wrong_slots, 2);
    assert_ne!(rig.seen[&lease].answer(), reference(&prompt, 10));
}

#[test]
fn two_leases_on_one_slot_are_noticed() {
    let mut rig = Rig::new(config(64));
    let mut jobs: Vec<_> =
        (0..2).map(|seed| rig.job(tokens(seed, 40), 30, None).unwrap()).collect();
    jobs[1].grant.slots[0] = jobs[0].grant.slots[0];
    jobs.into_iter().for_each(|job| {
        rig.submit(job);
    });
    rig.settle();
    let stats = rig.engine.stats();
    assert!(stats.violations > 0 && stats.overwritten > 0, "{stats:?}");
}

#[test]
fn exports_carry_what_the_slot_holds() {
    let mut rig = Rig::new(config(64));
    let job = rig.job(tokens(1, 20), 2, None).unwrap();
    let slots = job.grant.slots.clone();
    rig.submit(job);
    let to = SlotRef { slot: SlotId(3), generation: Generation(1) };
    rig.settle();
    assert_eq!(rig.engine.holds(slots[0].slot), Some(chain(&tokens(1, 20))[0]));
    rig.input(In::Op(EngineOp::Export { op: OpId(5), from: slots[0], to }));
    rig.input(In::Op(EngineOp::Export { op: OpId(6), from: slots[1], to }));
    let exported = |op: u64| {
        rig.events.iter().find_map(|event| match event {
            EngineEvent::Exported { op: OpId(found), digest } if *found == op => Some(*digest),
            _ => None,
        })
    };
    let mut bytes = [0; 64];
    chain(&tokens(1, 20))[0].fill(&mut bytes);
    assert_eq!(exported(5), Some(Some(protocol::block::ContentDigest::of(&bytes))));
    assert_eq!(exported(6), Some(None), "the block is not whole");
    assert_eq!((rig.engine.stats().exported, rig.engine.stats().violations), (1, 1));
}

#[test]
fn a_restart_fails_everybody_and_loses_the_pool() {
    let mut rig = Rig::new(config(64));
    let leases: Vec<_> = (0..3)
        .map(|seed| {
            let job = rig.job(tokens(seed, 40), 30, None).unwrap();
            rig.submit(job)
        })
        .collect();
    rig.tick(rig.engine.step.as_ref().unwrap().ends());
    rig.input(In::Restart);
    for lease in &leases {
        let seen = &rig.seen[lease];
        assert!(seen.done && seen.ends() == 1);
        assert!(matches!(seen.items.last(), Some(StreamItem::Failed(_))));
    }
    assert!(rig.events.iter().any(|event| matches!(event, EngineEvent::Died(_))));
    assert!((0..64).all(|slot| rig.engine.holds(SlotId(slot)).is_none()));
    let again = rig.run(tokens(0, 40), 30);
    assert_eq!(rig.seen[&again].answer(), reference(&tokens(0, 40), 30));
    assert_eq!(rig.engine.load().active_blocks, 0);
    clean(&rig);
}

#[test]
fn a_script_is_played_chunk_by_chunk_then_stops() {
    let chunks = vec![vec![Token(50), Token(51)], vec![Token(52)], tokens(3, 20)];
    let script = Some(Arc::new(Script::new(chunks.clone(), Span::secs(1))));
    let mut rig = Rig::new(config(64));
    let mut job = rig.job(tokens(1, 40), 100, None).unwrap();
    job.script = script.clone();
    let lease = rig.submit(job);
    rig.settle();
    let seen = &rig.seen[&lease];
    assert_eq!(seen.chunks(), chunks);
    assert_eq!(seen.reason(), Some(FinishReason::Stop(STOP)));
    let Some(StreamItem::Finished(finish)) = seen.items.last() else { panic!() };
    assert_eq!(finish.output_tokens, 24);
    assert!(rig.now >= Time::ZERO + Span::secs(3), "it rests after each chunk");
    // Cut short: what there is of a chunk is handed over.
    let mut job = rig.job(tokens(1, 40), 8, None).unwrap();
    job.script = script.clone();
    let lease = rig.submit(job);
    rig.settle();
    let seen = &rig.seen[&lease];
    assert_eq!(
        (seen.answer(), seen.reason()),
        (chunks.concat()[..8].to_vec(), Some(FinishReason::Length))
    );
    // Taken up again where it was left.
    let mut prompt = tokens(1, 40);
    prompt.extend(seen.answer());
    let mut job = rig.job(prompt, 92, None).unwrap();
    (job.script, job.resumed) = (script, 8);
    let lease = rig.submit(job);
    rig.settle();
    assert_eq!(rig.seen[&lease].answer(), chunks.concat()[8..]);
    assert_eq!(rig.seen[&lease].chunks().len(), 1);
}

#[test]
fn drawn_answers_can_have_a_length_and_words() {
    let mut config = config(64);
    config.answer_tokens = 12;
    config.words = [Token(100), Token(101), Token(102)].into();
    let mut rig = Rig::new(config);
    let lease = rig.run(tokens(1, 40), 100);
    let seen = &rig.seen[&lease];
    assert_eq!((seen.answer().len(), seen.reason()), (12, Some(FinishReason::Stop(STOP))));
    assert!(seen.answer().iter().all(|token| (100..103).contains(&token.0)));
}

#[test]
fn seeds_change_answers_only_when_sampling() {
    let answer = |temperature: f32, seed: u64| {
        let mut rig = Rig::new(config(64));
        let mut job = rig.job(tokens(1, 40), 20, None).unwrap();
        (job.sampling.temperature, job.sampling.seed) = (temperature, seed);
        let lease = rig.submit(job);
        rig.settle();
        rig.seen[&lease].answer()
    };
    assert_eq!(answer(0.0, 1), answer(0.0, 2));
    assert_eq!(answer(0.7, 1), answer(0.7, 1));
    assert_ne!(answer(0.7, 1), answer(0.7, 2));
}

#[test]
fn load_is_reported_when_it_changed_and_not_too_often() {
    let mut rig = Rig::new(config(64));
    let job = rig.job(tokens(1, 100), 200, None).unwrap();
    rig.submit(job);
    let loads = |rig: &Rig| {
        let load = |event: &EngineEvent| match event {
            EngineEvent::Load(load) => Some(*load),
            _ => None,
        };
        rig.events.iter().filter_map(load).collect::<Vec<_>>()
    };
    let first = loads(&rig)[0];
    assert_eq!((first.prefill_tokens, first.running, first.active_blocks), (100, 1, 8));
    rig.settle();
    let most = loads(&rig).iter().map(|load| load.active_blocks).max();
    assert!(most >= Some((100 + 200) / 16), "slots given later count too: {most:?}");
    let last = *loads(&rig).last().unwrap();
    assert_eq!((last.prefill_tokens, last.running, last.active_blocks), (0, 0, 0));
    assert_eq!(last.total_blocks, 64);
    let timing = crate::Timing::default();
    let rate = 2048.0 * 1e3 / (timing.prefill_linear_ms * 2048.0 + timing.prefill_base_ms);
    assert!((f64::from(last.prefill_rate) / rate - 1.0).abs() < 1e-6);
    assert!((f64::from(last.attention_ns) - 0.841_997_8).abs() < 1e-6);
    assert!(last.decode_ms > 5.74, "measured with tokens in the pool: {}", last.decode_ms);
    let most = rig.now.since(Time::ZERO).as_ms() / 100.0 + 2.0;
    assert!((loads(&rig).len() as f64) < most, "{} in {:?}", loads(&rig).len(), rig.now);
    assert_eq!(rig.engine.deadline(), None, "nothing more to tell");
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let bad = |change: fn(&mut Config)| {
        let mut config = config(8);
        change(&mut config);
        Engine::new(config).err().unwrap().to_string()
    };
    assert_eq!(
        bad(|c| c.spec.storage.block_tokens = 24),
        "a block of 24 tokens: must be a multiple of 16"
    );
    assert_eq!(
        bad(|c| c.spec.storage.block_bytes = 16),
        "a block of 16 bytes: must have at least 24"
    );
    assert_eq!(bad(|c| c.max_batched_tokens = 5), "max_batched_tokens is 5: must be at least 256");
    assert_eq!(bad(|c| c.stop_token = Token(5_000)), "token 5000 is outside the vocabulary");
    assert_eq!(bad(|c| c.timing.jitter = 2.0), "timing: jitter is 2, must be 0 to 0.9");
}

proptest! {
    /// Jitter changes times, never tokens.
    #[test]
    fn jitter_is_seeded_and_changes_no_answer(seed: u64) {
        let run = |seed: u64| {
            let mut config = config(64);
            (config.timing.jitter, config.seed) = (0.5, seed);
            let mut rig = Rig::new(config);
            let lease = rig.run(tokens(1, 3 * BLOCK), 20);
            (rig.log.clone(), rig.seen[&lease].answer())
        };
        let (log, answer) = run(seed);
        prop_assert_eq!((log.clone(), answer.clone()), run(seed));
        prop_assert_ne!(log, run(seed.wrapping_add(1)).0);
        prop_assert_eq!(answer, reference(&tokens(1, 3 * BLOCK), 20));
    }
}
