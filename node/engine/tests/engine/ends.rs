//! Ends that nobody wanted: readers that leave, aborts, panics, an engine that goes.

use crate::house::{House, LATER, TINY};
use engine::{EmbeddedConfig, Health};
use protocol::hash::Token;
use protocol::op::{Arriving, ArrivingFrom, EngineEvent, EngineOp, LeaseId};
use protocol::prompt::{FinishReason, Refusal, StreamItem};
use std::sync::Arc;

fn prompt(tokens: u32) -> Vec<Token> {
    (0..tokens).map(|i| Token(i * 29 % 1000)).collect()
}

/// After the release of a lease nothing more is told about it.
fn check_quiet(house: &House, lease: LeaseId) {
    house.settle();
    let sealed = house.sealed(lease).len();
    // More work passes through the engine.
    house.ask(&prompt(40), 20).submit().answer();
    house.settle();
    assert_eq!(house.sealed(lease).len(), sealed);
}

#[test]
fn a_reader_that_leaves_frees_its_slots() {
    let house = House::tiny();
    let mut stream = house.ask(&prompt(40), 3_000).submit();
    let Some(StreamItem::Started(_)) = stream.next() else { panic!("not started") };
    stream.items.close();
    while stream.items.try_recv().is_ok() {}
    stream.wait_released();
    check_quiet(&house, stream.lease);
}

#[test]
fn a_reader_that_leaves_during_the_prompt_or_the_wait_frees_its_slots() {
    let house = House::start(&TINY, |config| EmbeddedConfig { prefill_chunk: 1, ..config });
    let mut long = house.ask(&prompt(1_500), 1).submit();
    house.wait_sealed(long.lease, 1);
    let mut ask = house.ask(&prompt(40), 1);
    ask.arriving = vec![Arriving { index: 0, from: ArrivingFrom::Dram, deadline: LATER }];
    let mut waiting = ask.submit();
    for stream in [&mut waiting, &mut long] {
        stream.items.close();
        stream.wait_released();
    }
    house.settle();
    assert!(house.sealed(long.lease).len() < 93);
    check_quiet(&house, long.lease);
}

#[test]
fn an_abort_ends_the_stream_and_frees_its_slots() {
    let house = House::tiny();
    let mut stream = house.ask(&prompt(40), 3_000).submit();
    let Some(StreamItem::Started(_)) = stream.next() else { panic!("not started") };
    house.engine().perform(EngineOp::Abort { lease: stream.lease });
    let last = std::iter::from_fn(|| stream.next()).last();
    let Some(StreamItem::Finished(finish)) = last else { panic!("{last:?}") };
    assert_eq!(finish.reason, FinishReason::Cancelled);
    assert!(finish.output_tokens < 3_000);
    stream.wait_released();
    check_quiet(&house, stream.lease);
}

#[test]
fn a_waiting_job_can_be_aborted() {
    let house = House::start(&TINY, |config| EmbeddedConfig { max_batch: 1, ..config });
    let mut ask = house.ask(&prompt(20), 3_000);
    ask.channel = 1;
    let first = ask.submit();
    let mut second = house.ask(&prompt(20), 10).submit();
    house.engine().perform(EngineOp::Abort { lease: second.lease });
    let Some(StreamItem::Finished(finish)) = second.next() else { panic!("not ended") };
    assert_eq!((finish.reason, finish.output_tokens), (FinishReason::Cancelled, 0));
    second.wait_released();
    drop(first);
}

/// A guard that panics when it is dropped on the engine's thread.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(std::thread::current().name() != Some("engine-0"), "planted");
    }
}

#[test]
fn a_panic_fails_all_sequences_and_nothing_else() {
    let house = House::tiny();
    let mut ask = house.ask(&prompt(20), 3_000);
    ask.channel = 1;
    let mut other = ask.submit();
    let Some(StreamItem::Started(_)) = other.next() else { panic!("not started") };
    let bomb = house.ask(&prompt(20), 2).submit_with(Box::new(Bomb), Arc::default()).unwrap();
    let reason = house.wait(|events| {
        events.iter().find_map(|event| match event {
            EngineEvent::Died(reason) => Some(reason.clone()),
            _ => None,
        })
    });
    assert!(reason.contains("planted"), "{reason}");
    let last = std::iter::from_fn(|| other.next()).last();
    assert!(matches!(last, Some(StreamItem::Failed(Refusal::Failed(_)))), "{last:?}");
    other.wait_released();
    assert!(matches!(house.engine().health(), Health::Died { .. }));
    let refusal = house.ask(&prompt(20), 2).try_submit().err();
    assert_eq!(refusal, Some(Refusal::Failed(reason)));
    drop(bomb);
}

#[test]
fn when_the_owner_leaves_what_runs_fails() {
    let mut house = House::start(&TINY, |config| EmbeddedConfig { max_batch: 1, ..config });
    let mut ask = house.ask(&prompt(20), 3_000);
    ask.channel = 1;
    let mut running = ask.submit();
    let Some(StreamItem::Started(_)) = running.next() else { panic!("not started") };
    let mut waiting = house.ask(&prompt(20), 10).submit();
    house.engine = None;
    for stream in [&mut running, &mut waiting] {
        let last = std::iter::from_fn(|| stream.next()).last();
        assert_eq!(last, Some(StreamItem::Failed(Refusal::Gone)));
        stream.wait_released();
    }
}
