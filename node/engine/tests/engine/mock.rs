//! The mock engine: real bytes, the real clock, scripts.

use crate::house::{House, LATER, TINY, slot};
use engine::{Health, MockConfig, Scripts, Timing};
use kernels::Pool;
use model::Model;
use protocol::hash::Token;
use protocol::op::{Arriving, ArrivingFrom, EngineEvent, EngineOp};
use protocol::prompt::{FinishReason, PromptSources, Refusal, StreamItem};
use std::sync::{Arc, LazyLock};

static BUILTIN: LazyLock<Arc<Model>> =
    LazyLock::new(|| Arc::new(Model::builtin().expect("it is built in")));

fn fast(config: MockConfig) -> MockConfig {
    let timing = Timing { speedup_ratio: 50.0, ..Timing::default() };
    MockConfig { timing, answer_tokens: 0, block_bytes: 4096, ..config }
}

fn house() -> House {
    House::mock(&BUILTIN, dram(), fast)
}

fn dram() -> Arc<Pool> {
    Pool::new(4096, 64).expect("memory for DRAM slots")
}

fn prompt(tokens: u32) -> Vec<Token> {
    (0..tokens).map(|i| Token(i * 29 % 250)).collect()
}

#[test]
fn it_says_what_it_is_and_answers() {
    let house = house();
    let spec = house.engine().spec();
    assert_eq!((spec.kind.as_str(), spec.slots, spec.context), ("mock", 65_536, 262_144));
    assert_eq!(spec.storage.block_bytes, 4096);
    let answer = house.ask(&prompt(40), 30).submit().answer();
    assert_eq!((answer.tokens.len(), answer.finish.reason), (30, FinishReason::Length));
    let text = BUILTIN.tokenizer().decode(&answer.tokens);
    assert!(text.chars().all(|c| c == ' ' || c.is_ascii_lowercase()), "{text}");
    let again = house.ask(&prompt(40), 30).submit().answer();
    assert_eq!(again.tokens, answer.tokens);
    house.wait_load(|load| load.running == 0 && load.prefill_rate > 0.0 && load.decode_ms > 0.0);
    assert_eq!(house.engine().health(), Health::Healthy);
}

#[test]
fn blocks_go_through_dram_and_wrong_bytes_change_the_answer() {
    let house = house();
    let mut first = house.ask(&prompt(64), 10).submit();
    let right = first.answer();
    let copies = house.export(&first.slots[..3]);
    let run = |sources: [usize; 3]| {
        let mut ask = house.ask(&prompt(64), 10);
        let awaited = |index| Arriving { index, from: ArrivingFrom::Dram, deadline: LATER };
        ask.arriving = (0..3).map(awaited).collect();
        let mut stream = ask.submit();
        for (index, source) in sources.into_iter().enumerate() {
            let to = stream.slots[index];
            assert!(house.import(stream.lease, index as u32, to, copies[source].0));
        }
        stream.answer()
    };
    let fetched = run([0, 1, 2]);
    assert_eq!(fetched.tokens, right.tokens);
    assert_eq!(
        fetched.started.prompt,
        PromptSources { dram: 48, computed: 16, ..Default::default() }
    );
    assert_ne!(run([0, 1, 1]).tokens, right.tokens, "misplaced");
    let (torn, _) = copies[2];
    house.dram.writer(torn.slot.0, torn.generation.0).unwrap()[4000] ^= 1;
    assert_ne!(run([0, 1, 2]).tokens, right.tokens, "torn");
}

#[test]
fn a_dram_slot_of_another_life_is_not_used() {
    let house = house();
    let mut first = house.ask(&prompt(40), 5).submit();
    let right = first.answer();
    let (mut from, _) = house.export(&first.slots[..1])[0];
    from.generation.0 += 1;
    let mut ask = house.ask(&prompt(40), 5);
    ask.arriving = vec![Arriving { index: 0, from: ArrivingFrom::Dram, deadline: LATER }];
    let mut stream = ask.submit();
    assert!(!house.import(stream.lease, 0, stream.slots[0], from));
    // It is computed at once: the deadline is far away.
    assert_eq!(stream.answer().tokens, right.tokens);
}

#[test]
fn a_script_comes_in_its_chunks() {
    let text = "[[answer]]\nchunks = [\"I look. <tool_\", \"call>{}\", \"</tool_call>\"]";
    let scripts = Arc::new(Scripts::from_toml(text, &BUILTIN).unwrap());
    let with = |config| MockConfig { scripts: Some(scripts.clone()), ..fast(config) };
    let house = House::mock(&BUILTIN, dram(), with);
    let mut ask = house.ask(&prompt(40), 500);
    ask.limits.stop_tokens = BUILTIN.stop_tokens().to_vec();
    let mut stream = ask.submit();
    let mut chunks = Vec::new();
    let finish = loop {
        match stream.next().unwrap() {
            StreamItem::Started(_) => {}
            StreamItem::Tokens(tokens) => chunks.push(BUILTIN.tokenizer().decode(&tokens)),
            StreamItem::Finished(finish) => break finish,
            StreamItem::Failed(refusal) => panic!("{refusal}"),
        }
    };
    assert_eq!(chunks, ["I look. <tool_", "call>{}", "</tool_call>"]);
    assert_eq!(finish.reason, FinishReason::Stop(BUILTIN.stop_tokens()[0]));
    // Resumed in the middle of the second chunk.
    let mut tokens = prompt(40);
    tokens.extend(BUILTIN.tokenizer().encode("I look. <tool_call", false));
    let mut ask = house.ask(&tokens, 500);
    ask.resumed = 18;
    ask.limits.stop_tokens = BUILTIN.stop_tokens().to_vec();
    let answer = ask.submit().answer();
    assert_eq!(BUILTIN.tokenizer().decode(&answer.tokens), ">{}</tool_call>");
}

#[test]
fn slow_readers_wait_and_readers_that_leave_free_their_slots() {
    let house = house();
    let mut ask = house.ask(&prompt(40), 200);
    ask.channel = 1;
    let mut slow = ask.submit();
    assert!(matches!(slow.next(), Some(StreamItem::Started(_))));
    let other = house.ask(&prompt(41), 50).submit().answer();
    assert_eq!(other.tokens.len(), 50);
    let mut count = 0;
    while let Some(item) = slow.next() {
        count += usize::from(matches!(item, StreamItem::Tokens(_)));
    }
    assert_eq!(count, 200);
    slow.wait_released();
    let mut gone = house.ask(&prompt(42), 100_000).submit();
    assert!(matches!(gone.next(), Some(StreamItem::Started(_))));
    gone.items.close();
    gone.wait_released();
    house.wait_load(|load| load.running == 0);
}

#[test]
fn aborts_and_refusals() {
    let house = house();
    let mut stream = house.ask(&prompt(40), 100_000).submit();
    house.engine().perform(EngineOp::Abort { lease: stream.lease });
    while let Some(item) = stream.next() {
        if let StreamItem::Finished(finish) = item {
            assert_eq!(finish.reason, FinishReason::Cancelled);
        }
    }
    stream.wait_released();
    let refused = |tokens: Vec<Token>| house.ask(&tokens, 1).try_submit().err().unwrap();
    assert!(matches!(refused(vec![]), Refusal::Failed(_)));
    assert!(matches!(refused(vec![Token(259)]), Refusal::Failed(_)));
    let long = refused(vec![Token(1); 262_144]);
    assert_eq!(long, Refusal::TooLong { tokens: 262_144, limit: 262_143 });
}

#[test]
fn an_engine_that_goes_fails_what_runs() {
    let mut house = house();
    let mut stream = house.ask(&prompt(40), 100_000).submit();
    assert!(matches!(stream.next(), Some(StreamItem::Started(_))));
    drop(house.engine.take());
    let mut last = None;
    while let Some(item) = stream.next() {
        last = Some(item);
    }
    assert_eq!(last, Some(StreamItem::Failed(Refusal::Gone)));
    stream.wait_released();
}

#[test]
fn room_is_asked_for_and_given() {
    let house = house();
    let mut ask = house.ask(&prompt(40), 60);
    ask.slots.truncate(3);
    let mut stream = ask.submit();
    let lease = stream.lease;
    let asked = house.wait(|events| {
        events.iter().find_map(|event| match event {
            EngineEvent::NeedSlots { lease: of, blocks } if *of == lease => Some(*blocks),
            _ => None,
        })
    });
    assert_eq!(asked, 4);
    let slots = (60_000..60_004).map(slot).collect();
    house.engine().perform(EngineOp::Grant { lease, slots });
    assert_eq!(stream.answer().tokens, house.ask(&prompt(40), 60).submit().answer().tokens);
}

#[test]
fn it_runs_with_the_vocabulary_of_a_real_model() {
    let house = House::mock(&TINY, dram(), fast);
    let answer = house.ask(&prompt(40), 20).submit().answer();
    let special = |token: &Token| TINY.tokenizer().is_special(*token);
    assert!(answer.tokens.len() == 20 && !answer.tokens.iter().any(special));
}

#[test]
fn a_block_that_changed_in_dram_is_computed() {
    crate::blocks::refuses_a_changed_block(&house(), &prompt(100));
}
