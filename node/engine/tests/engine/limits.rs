//! Limits: lengths, slots, readers, places, malformed jobs.

use crate::house::{House, Stream, TINY, references};
use engine::{Embedded, EmbeddedConfig, EngineError, Health, storage_namespace};
use protocol::block::SlotRef;
use protocol::hash::Token;
use protocol::id::EngineId;
use protocol::op::{EngineEvent, EngineOp, LeaseId};
use protocol::prompt::{FinishReason, Refusal, Sampling, StreamItem};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

fn prompt(tokens: u32) -> Vec<Token> {
    (0..tokens).map(|i| Token(i * 31 % 1000)).collect()
}

/// Answers the next question for slots of a lease.
fn answer_need(house: &House, lease: LeaseId, after: usize, blocks: usize) -> usize {
    let asked = house.wait(|events| {
        let needs = |event: &EngineEvent| {
            matches!(event, EngineEvent::NeedSlots { lease: of, .. } if *of == lease)
        };
        let count = events.iter().filter(|event| needs(event)).count();
        (count > after).then_some(count)
    });
    let slots = house.slots(blocks);
    house.engine().perform(EngineOp::Grant { lease, slots });
    asked
}

#[test]
fn stop_tokens_end_the_answer_and_are_not_shown() {
    let house = House::tiny();
    let whole = house.ask(&prompt(20), 24).submit().answer().tokens;
    let stop = whole[5];
    let first = whole.iter().position(|token| *token == stop).unwrap();
    let mut ask = house.ask(&prompt(20), 24);
    ask.limits.stop_tokens = vec![Token(1023), stop];
    let answer = ask.submit().answer();
    assert_eq!(answer.finish.reason, FinishReason::Stop(stop));
    assert_eq!(answer.tokens, whole[..first]);
    assert_eq!(answer.finish.output_tokens, first as u32 + 1);
}

#[test]
fn one_token_is_an_answer() {
    let house = House::tiny();
    let answer = house.ask(&prompt(1), 1).submit().answer();
    assert_eq!(answer.tokens.len(), 1);
    assert_eq!(answer.finish.reason, FinishReason::Length);
}

#[test]
fn the_context_is_a_limit_for_prompt_and_answer_together() {
    let house = House::start(&TINY, |config| EmbeddedConfig { kv_tokens: 64, ..config });
    assert_eq!(house.engine().spec().context, 64);
    let mut ask = house.ask(&prompt(50), 1000);
    ask.slots.truncate(4);
    let answer = ask.submit().answer();
    assert_eq!(answer.tokens.len(), 14);
    assert_eq!(answer.finish.reason, FinishReason::ContextFull);
    let mut ask = house.ask(&prompt(64), 1);
    ask.slots.truncate(4);
    let refusal = ask.try_submit().err();
    assert_eq!(refusal, Some(Refusal::TooLong { tokens: 64, limit: 63 }));
}

#[test]
fn malformed_jobs_are_refused_at_once_and_their_slots_given_back() {
    let house = House::tiny();
    let vocab = TINY.config().vocab as u32;
    let spoil: [fn(&mut crate::house::Ask<'_>, u32); 4] = [
        |ask, _| ask.prompt.clear(),
        |ask, vocab| ask.prompt[3] = Token(vocab),
        |ask, _| ask.slots.truncate(1),
        |ask, _| ask.slots[1].slot.0 = 1_000_000,
    ];
    for spoil in spoil {
        let mut ask = house.ask(&prompt(20), 4);
        spoil(&mut ask, vocab);
        assert!(matches!(ask.try_submit(), Err(Refusal::Failed(_))));
    }
    assert_eq!(house.ask(&prompt(20), 4).submit().answer().tokens.len(), 4);
}

#[test]
fn slots_are_asked_for_while_decoding() {
    let house = House::tiny();
    let expected = house.ask(&prompt(20), 80).submit().answer().tokens;
    let mut ask = house.ask(&prompt(20), 80);
    ask.slots.truncate(2);
    let mut stream = ask.submit();
    answer_need(&house, stream.lease, 0, 2);
    answer_need(&house, stream.lease, 1, 3);
    let answer = stream.answer();
    assert_eq!(answer.tokens, expected);
    assert_eq!(answer.finish.reason, FinishReason::Length);
}

#[test]
fn without_room_a_sequence_pauses_and_goes_on_when_there_is_some() {
    let house = House::tiny();
    let expected = house.ask(&prompt(20), 60).submit().answer().tokens;
    let mut ask = house.ask(&prompt(20), 60);
    ask.slots.truncate(2);
    let mut stream = ask.submit();
    // Twice there is none; the third time there is.
    let asked = answer_need(&house, stream.lease, 0, 0);
    let asked = answer_need(&house, stream.lease, asked, 0);
    answer_need(&house, stream.lease, asked, 3);
    assert_eq!(stream.answer().tokens, expected);
}

#[test]
fn alone_and_without_room_a_sequence_ends() {
    let house = House::tiny();
    let mut ask = house.ask(&prompt(20), 60);
    ask.slots.truncate(2);
    let mut stream = ask.submit();
    let asked = (0..4).fold(0, |asked, _| answer_need(&house, stream.lease, asked, 0));
    assert!(asked >= 4);
    let answer = stream.answer();
    assert_eq!(answer.finish.reason, FinishReason::ContextFull);
    // 20 and 12 tokens fill two blocks; one more is chosen after the last that was fed.
    assert_eq!(answer.tokens.len(), 13);
}

/// Items that lie in the channel, without reading them.
/// Grants single slots from `free` until `done`. The slots of an ended sequence come back only
/// after two more refusals: releases travel slower than questions.
fn manage(
    house: &House,
    mut free: Vec<SlotRef>,
    mut held: Vec<(LeaseId, Arc<AtomicBool>, Vec<SlotRef>)>,
    done: &AtomicBool,
) {
    let (mut seen, mut late) = (0, 0);
    let next = |seen: usize| {
        house.wait(|events| {
            if done.load(Ordering::SeqCst) {
                return Some(None);
            }
            let asks = events.iter().filter_map(|event| match event {
                EngineEvent::NeedSlots { lease, .. } => Some(*lease),
                _ => None,
            });
            asks.skip(seen).map(Some).next()
        })
    };
    while let Some(lease) = next(seen) {
        seen += 1;
        let ended = |(_, released, _): &(_, Arc<AtomicBool>, _)| released.load(Ordering::SeqCst);
        late += usize::from(held.iter().any(ended));
        if late > 2 {
            late = 0;
            held.extract_if(.., |one| ended(one)).for_each(|(_, _, slots)| free.extend(slots));
        }
        let slots: Vec<SlotRef> = free.pop().into_iter().collect();
        if let Some((_, _, own)) = held.iter_mut().find(|(of, _, _)| *of == lease) {
            own.extend(&slots);
        }
        house.engine().perform(EngineOp::Grant { lease, slots });
    }
}

#[test]
fn one_ends_for_the_others_although_its_slots_come_back_late() {
    let house = House::tiny();
    // Each of three has 10 blocks when there are no more, and needs 14.
    let ask = || {
        let mut ask = house.ask(&prompt(20), 200);
        ask.slots.truncate(2);
        ask.channel = 256;
        ask.submit()
    };
    let mut streams = [ask(), ask(), ask()];
    let held = streams.iter().map(|s| (s.lease, Arc::clone(&s.released), s.slots.clone()));
    let (free, held, done) = (house.slots(24), held.collect(), AtomicBool::new(false));
    let answers = std::thread::scope(|scope| {
        scope.spawn(|| manage(&house, free, held, &done));
        let answers = streams.each_mut().map(|stream| stream.answer());
        done.store(true, Ordering::SeqCst);
        // Wakes the manager.
        house.settle();
        answers
    });
    let [first, second, youngest] = answers.map(|answer| (answer.finish.reason, answer.tokens));
    assert_eq!(youngest.0, FinishReason::ContextFull);
    assert_eq!((first.0, first.1.len()), (FinishReason::Length, 200));
    assert_eq!(second, first);
    assert_eq!(youngest.1, first.1[..youngest.1.len()]);
}

fn lying(stream: &Stream) -> usize {
    stream.items.len()
}

#[test]
fn a_slow_reader_pauses_its_sequence_only() {
    let house = House::tiny();
    let expected = house.ask(&prompt(20), 200).submit().answer().tokens;
    let mut ask = house.ask(&prompt(20), 200);
    ask.channel = 2;
    let mut slow = ask.submit();
    // Another sequence runs to its end meanwhile, and more than once.
    for _ in 0..3 {
        house.ask(&prompt(20), 200).submit().answer();
    }
    assert_eq!(lying(&slow), 2);
    house.settle();
    // Only what fits, and one step's items, was computed: 20 tokens and a few.
    assert!(house.sealed(slow.lease).len() <= 1, "{:?}", house.sealed(slow.lease));
    assert_eq!(slow.answer().tokens, expected);
}

#[test]
fn a_finished_answer_waits_for_its_reader_but_holds_no_slots() {
    let house = House::tiny();
    let mut ask = house.ask(&prompt(20), 3);
    ask.channel = 3;
    let mut stream = ask.submit();
    // Started, three tokens and the end: two more than fit. The guard goes when the last token is
    // chosen, and that needs one place.
    let Some(StreamItem::Started(_)) = stream.next() else { panic!("not started") };
    stream.wait_released();
    let rest: Vec<_> = std::iter::from_fn(|| stream.next()).collect();
    assert_eq!(rest.len(), 4);
    assert!(matches!(rest[3], StreamItem::Finished(_)));
}

#[test]
fn priority_then_arrival_decides_who_gets_a_place() {
    let house = House::start(&TINY, |config| EmbeddedConfig { max_batch: 1, ..config });
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    // The first holds the only place until the others wait.
    let mut ask = house.ask(&prompt(20), 40);
    ask.channel = 1;
    let mut first = ask.submit();
    let Some(StreamItem::Started(_)) = first.next() else { panic!("not started") };
    let mut streams = Vec::new();
    for (name, priority) in [("a", 0), ("b", 0), ("c", 5), ("d", -5)] {
        struct Note(&'static str, Arc<std::sync::Mutex<Vec<&'static str>>>);
        impl Drop for Note {
            fn drop(&mut self) {
                self.1.lock().unwrap().push(self.0);
            }
        }
        let mut ask = house.ask(&prompt(20), 4);
        ask.priority = priority;
        let note = Box::new(Note(name, Arc::clone(&order)));
        streams.push(ask.submit_with(note, Arc::default()).unwrap());
    }
    house.wait_load(|load| load.waiting == 4);
    while first.next().is_some() {}
    for mut stream in streams {
        while stream.next().is_some() {}
    }
    assert_eq!(*order.lock().unwrap(), ["c", "a", "b", "d"]);
}

#[test]
fn a_sampled_stream_continues_elsewhere() {
    let house = House::tiny();
    let sampling = Sampling { temperature: 0.9, top_p: 0.95, top_k: 50, min_p: 0.01, seed: 42 };
    let reference = &references("tiny-qwen3.json")[4];
    let run = |prompt: &[Token], max: u32, seed: u64| {
        let mut ask = house.ask(prompt, max);
        ask.sampling = Sampling { seed, ..sampling };
        ask.submit().answer().tokens
    };
    let whole = run(&reference.prompt(), 40, 42);
    assert_ne!(whole, run(&reference.prompt(), 40, 43));
    for cut in [1, 11, 30] {
        let so_far = [reference.prompt(), whole[..cut].to_vec()].concat();
        assert_eq!(run(&so_far, 40 - cut as u32, 42), whole[cut..]);
    }
}

#[test]
fn load_and_rates_are_told() {
    let house = House::tiny();
    house.wait_load(|load| {
        load.prefill_rate > 0.0 && load.decode_ms > 0.0 && load.total_blocks == 1024
    });
    let mut ask = house.ask(&prompt(100), 40);
    ask.channel = 1;
    let mut stream = ask.submit();
    house.wait_load(|load| load.running == 1 && load.active_blocks == 9);
    assert_eq!(house.engine().health(), Health::Healthy);
    stream.answer();
    house.wait_load(|load| load.running == 0 && load.active_blocks == 0);
}

#[test]
fn senseless_settings_are_named() {
    let bytes = storage_namespace(TINY.config()).block_bytes as usize;
    let start = |adjust: fn(&mut EmbeddedConfig), bytes: usize| {
        let mut config = EmbeddedConfig::new(EngineId(0), "test", Instant::now());
        adjust(&mut config);
        let (events, _reader) = tokio::sync::mpsc::channel(1);
        let dram = kernels::Pool::new(bytes, 1).unwrap();
        match Embedded::start(Arc::clone(&TINY), dram, config, events) {
            Err(EngineError::Setting { setting, .. }) => setting,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(start(|config| config.kv_tokens = 16, bytes), "kv_tokens");
    assert_eq!(start(|config| config.max_batch = 0, bytes), "max_batch");
    assert_eq!(start(|config| config.prefill_chunk = 0, bytes), "prefill_chunk");
    assert_eq!(start(|config| config.threads = 0, bytes), "threads");
    assert_eq!(start(|_| (), bytes - 1), "dram slots");
}
