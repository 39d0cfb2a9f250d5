//! Blocks that come, come late, or do not come.

use crate::house::{House, LATER, Reference, TINY, references};
use protocol::block::{ContentDigest, Generation, SlotRef};
use protocol::hash::Token;
use protocol::op::{Arriving, ArrivingFrom, Copied, EngineEvent, EngineOp, LeaseId, OpId};
use protocol::prompt::{FinishReason, PromptSources, StreamItem};
use protocol::time::Time;

/// A prompt of 333 tokens: 20 whole blocks.
fn long() -> Reference {
    references("tiny-qwen3.json").into_iter().find(|r| r.name == "long-333").expect("it is there")
}

fn awaited(index: u32) -> Arriving {
    Arriving { index, from: ArrivingFrom::Dram, deadline: LATER }
}

/// The prompt's blocks in DRAM, computed by a first run.
fn computed(house: &House, reference: &Reference) -> Vec<SlotRef> {
    let mut stream = house.ask(&reference.prompt(), 1).submit();
    stream.answer();
    house.export(&stream.slots[..20]).into_iter().map(|(slot, _)| slot).collect()
}

#[test]
fn blocks_that_come_while_others_are_computed_are_skipped() {
    let house = House::tiny();
    let reference = long();
    let bytes = computed(&house, &reference);
    let mut ask = house.ask(&reference.prompt(), 24);
    ask.arriving = [5, 6, 7, 12].map(awaited).to_vec();
    let mut stream = ask.submit();
    let (lease, slots) = (stream.lease, stream.slots.clone());
    // The blocks before the first awaited one are computed meanwhile.
    house.wait_sealed(lease, 4);
    // A later block is there before its turn.
    assert!(house.import(lease, 12, slots[12], bytes[12]));
    assert!(!house.import(lease, 4, slots[4], bytes[4]), "begun");
    assert!(!house.import(lease, 12, slots[12], bytes[12]), "there already");
    assert!(house.import(lease, 5, slots[5], bytes[5]));
    house.engine().perform_missed(lease, 6);
    // Block 7 holds up the rest until it comes; block 6 is computed.
    house.wait_sealed(lease, 6);
    assert!(house.import(lease, 7, slots[7], bytes[7]));
    let answer = stream.answer();
    assert_eq!(answer.tokens, reference.output());
    let sources = PromptSources { dram: 48, computed: 333 - 48, ..Default::default() };
    assert_eq!(answer.started.prompt, sources);
    house.settle();
    let sealed: Vec<u32> = house.sealed(lease).iter().map(|(index, _)| *index).collect();
    let expected: Vec<u32> = (0..22).filter(|index| ![5, 7, 12].contains(index)).collect();
    assert_eq!(sealed, expected);
    assert!(!house.import(lease, 6, slots[6], bytes[6]), "gone");
}

trait Missed {
    fn perform_missed(&self, lease: LeaseId, index: u32);
}

impl Missed for dyn engine::Engine {
    fn perform_missed(&self, lease: LeaseId, index: u32) {
        self.perform(EngineOp::Missed { lease, index });
    }
}

#[test]
fn a_block_is_computed_when_its_deadline_passes() {
    let house = House::tiny();
    let reference = long();
    let mut ask = house.ask(&reference.prompt(), 24);
    ask.arriving = vec![Arriving { deadline: Time(0), ..awaited(3) }];
    let answer = ask.submit().answer();
    assert_eq!(answer.tokens, reference.output());
    assert_eq!(answer.started.prompt.computed, 333);
}

#[test]
fn others_run_while_one_waits() {
    let house = House::tiny();
    let reference = long();
    let mut ask = house.ask(&reference.prompt(), 24);
    ask.arriving = vec![awaited(0)];
    let mut waiting = ask.submit();
    let answer = house.ask(&reference.prompt(), 24).submit().answer();
    assert_eq!(answer.tokens, reference.output());
    assert!(waiting.items.try_recv().is_err());
    house.engine().perform_missed(waiting.lease, 0);
    assert_eq!(waiting.answer().tokens, reference.output());
}

#[test]
fn operations_that_come_before_their_job_are_kept() {
    let house = House::tiny();
    let reference = long();
    let bytes = computed(&house, &reference);
    let mut ask = house.ask(&reference.prompt(), 24);
    ask.arriving = (0..20).map(awaited).collect();
    let (lease, slots) = (ask.lease, ask.slots.clone());
    for index in 0..19 {
        assert!(house.import(lease, index, slots[index as usize], bytes[index as usize]));
    }
    house.engine().perform_missed(lease, 19);
    let answer = ask.submit().answer();
    assert_eq!(answer.tokens, reference.output());
    assert_eq!(answer.started.prompt.dram, 19 * 16);

    let ask = house.ask(&reference.prompt(), 24);
    engine::Engine::perform(house.engine(), EngineOp::Abort { lease: ask.lease });
    let mut stream = ask.submit();
    let Some(StreamItem::Finished(finish)) = stream.next() else { panic!("not ended") };
    assert_eq!(finish.reason, FinishReason::Cancelled);
    stream.wait_released();
}

/// Has the third block of a prompt refused because its bytes are others.
pub(crate) fn refuses_a_changed_block(house: &House, prompt: &[Token]) {
    let mut first = house.ask(prompt, 24).submit();
    let expected = first.answer().tokens;
    let (from, _) = house.export(&first.slots[..3])[2];
    let mut ask = house.ask(prompt, 24);
    ask.arriving = vec![awaited(2)];
    let mut stream = ask.submit();
    let (lease, to) = (stream.lease, stream.slots[2]);
    let other = ContentDigest::of(b"what was there before a bit flipped");
    assert_eq!(house.import_as(lease, 2, to, from, other), Copied::Corrupt);
    assert_eq!(stream.answer().tokens, expected);
}

#[test]
fn a_block_that_changed_in_dram_is_computed() {
    refuses_a_changed_block(&House::tiny(), &long().prompt());
}

#[test]
fn copies_of_stale_slots_fail_and_the_block_is_computed() {
    let house = House::tiny();
    let reference = long();
    let bytes = computed(&house, &reference);
    let mut ask = house.ask(&reference.prompt(), 24);
    ask.arriving = vec![awaited(2)];
    let mut stream = ask.submit();
    let stale = SlotRef { generation: Generation(0), ..bytes[2] };
    assert!(!house.import(stream.lease, 2, stream.slots[2], stale));
    assert_eq!(stream.answer().tokens, reference.output());

    let op = OpId(house.id());
    let to = SlotRef { generation: Generation(0), ..bytes[2] };
    engine::Engine::perform(house.engine(), EngineOp::Export { op, from: stream.slots[0], to });
    let digest = house.wait(|events| {
        events.iter().find_map(|event| match event {
            EngineEvent::Exported { op: of, digest } if *of == op => Some(*digest),
            _ => None,
        })
    });
    assert_eq!(digest, None);
}

#[test]
fn a_prompt_that_is_cached_to_its_last_token_computes_that_token_and_shares_all_blocks() {
    let house = House::start(&TINY, |config| config);
    let prompt: Vec<Token> = (0..64).map(|i| Token(i * 37 % 1000)).collect();
    let mut first = house.ask(&prompt, 20).submit();
    let expected = first.answer().tokens;
    let before = house.export(&first.slots[..4]);
    let mut ask = house.ask(&prompt, 20);
    ask.slots.splice(..4, first.slots[..4].iter().copied());
    ask.ready = 4;
    let answer = ask.submit().answer();
    assert_eq!(answer.tokens, expected);
    let sources = PromptSources { gpu: 63, computed: 1, ..Default::default() };
    assert_eq!(answer.started.prompt, sources);
    let after = house.export(&first.slots[..4]);
    assert!(before.iter().zip(&after).all(|(a, b)| a.1 == b.1));
}
