use super::*;
use proptest::prelude::*;
use protocol::block::{Generation, SlotId};
use protocol::id::RequestId;
use protocol::op::Grant;

fn slots(range: std::ops::Range<u32>) -> Vec<SlotRef> {
    range.map(|slot| SlotRef { slot: SlotId(slot), generation: Generation(1) }).collect()
}

#[derive(Clone, Debug)]
struct Given {
    prompt: usize,
    slots: u32,
    ready: u32,
    arriving: Vec<u32>,
    max_tokens: u32,
}

const DEADLINE: Time = Time(1_000_000);

fn sequence(given: Given) -> Sequence {
    let arriving = given.arriving.into_iter().map(|index| Arriving {
        index,
        from: if index % 2 == 0 { ArrivingFrom::Dram } else { ArrivingFrom::Peer(NodeId([1; 32])) },
        deadline: DEADLINE,
    });
    let job = Job {
        request: RequestId(1),
        grant: Grant {
            lease: LeaseId(1),
            slots: slots(0..given.slots),
            ready: given.ready,
            arriving: arriving.collect(),
        },
        prompt: (0..given.prompt as u32).map(Token).collect::<Vec<_>>().into(),
        sampling: Sampling::GREEDY,
        limits: Limits { max_tokens: given.max_tokens, stop_tokens: vec![] },
        priority: 0,
        arrived: Time::ZERO,
        serving_node: NodeId([0; 32]),
        script: None,
        resumed: 0,
    };
    Sequence::new(job, 16, 1_000)
}

/// Computes a chunk; the blocks whose slots are written, by number.
fn compute(sequence: &mut Sequence, chunk: Chunk) -> Vec<u32> {
    let written = sequence.begin(&chunk).map(|slot| slot.slot.0).collect();
    sequence.computed(chunk.last);
    written
}

#[test]
fn a_prompt_is_cut_into_chunks() {
    let given = Given { prompt: 40, slots: 4, ready: 0, arriving: vec![], max_tokens: 10 };
    let mut s = sequence(given);
    let chunk = s.chunk(30).unwrap();
    assert_eq!(chunk, Chunk { first: 0, last: 29, new: 30, pairs: 0 });
    assert_eq!(compute(&mut s, chunk), [0, 1]);
    let chunk = s.chunk(30).unwrap();
    assert_eq!(chunk, Chunk { first: 30, last: 39, new: 10, pairs: 300 });
    assert_eq!(compute(&mut s, chunk), [1, 2]);
    assert!(!s.is_prefilling() && s.ends_with(39));
    assert_eq!(s.sources(), PromptSources { computed: 40, ..Default::default() });
}

#[test]
fn ready_blocks_are_skipped_but_the_last_token_is_computed_without_writing() {
    let given = Given { prompt: 32, slots: 3, ready: 2, arriving: vec![], max_tokens: 9 };
    let mut s = sequence(given);
    let chunk = s.chunk(64).unwrap();
    assert_eq!(chunk, Chunk { first: 31, last: 31, new: 1, pairs: 31 });
    assert_eq!(compute(&mut s, chunk), [] as [u32; 0]);
    let decode = s.decode();
    assert_eq!(compute(&mut s, decode), [2]);
    assert_eq!(s.sources(), PromptSources { gpu: 31, computed: 1, ..Default::default() });
}

#[test]
fn a_part_of_a_block_is_never_reused() {
    let given = Given { prompt: 20, slots: 3, ready: 2, arriving: vec![], max_tokens: 9 };
    let mut s = sequence(given);
    let chunk = s.chunk(64).unwrap();
    assert_eq!((chunk.first, chunk.last, chunk.new, chunk.pairs), (16, 19, 4, 64));
    assert_eq!(compute(&mut s, chunk), [1]);
    assert_eq!(s.sources(), PromptSources { gpu: 16, computed: 4, ..Default::default() });
}

#[test]
fn it_waits_for_the_block_it_needs_next_until_the_deadline() {
    let given = Given { prompt: 60, slots: 5, ready: 1, arriving: vec![1, 3], max_tokens: 9 };
    let mut s = sequence(given);
    assert_eq!(s.pause(Time::ZERO), Some(Pause::Block));
    assert_eq!(s.pause_ends(Time::ZERO), Some(DEADLINE));
    // Block 3 is not whole (60 tokens), so it is not awaited.
    assert_eq!(s.pause(DEADLINE), None);
    assert_eq!(s.chunk(64).unwrap(), Chunk { first: 16, last: 59, new: 44, pairs: 44 * 16 });
    assert_eq!(s.uncached(), 44);
}

#[test]
fn a_block_that_comes_while_earlier_ones_are_computed_is_skipped() {
    let given = Given { prompt: 70, slots: 5, ready: 0, arriving: vec![1, 2], max_tokens: 9 };
    let mut s = sequence(given);
    let to = |index: usize| slots(0..5)[index];
    let chunk = s.chunk(64).unwrap();
    assert_eq!((chunk.first, chunk.last), (0, 15), "the first awaited block ends the chunk");
    s.begin(&chunk).count();
    assert!(!s.importable(0, to(0)), "begun");
    assert!(s.importable(2, to(2)) && !s.importable(2, to(1)) && !s.importable(4, to(4)));
    s.computed(15);
    s.imported(2);
    s.missed(1);
    assert_eq!(s.pause(Time::ZERO), None);
    let chunk = s.chunk(64).unwrap();
    assert_eq!(chunk.new, 16 + 22);
    assert_eq!(chunk.pairs, 16 * 16 + 16 * (48 - 16) + 6 * (64 - 32));
    assert_eq!(compute(&mut s, chunk), [1, 3, 4]);
    let sources = PromptSources { dram: 16, computed: 54, ..Default::default() };
    assert_eq!(s.sources(), sources);
}

#[test]
fn room_is_asked_for_once_and_again_after_refusals() {
    let given = Given { prompt: 30, slots: 2, ready: 0, arriving: vec![], max_tokens: 400 };
    let mut s = sequence(given);
    assert_eq!(s.room_wanted(Time::ZERO), None, "not before the prompt is computed");
    let chunk = s.chunk(64).unwrap();
    compute(&mut s, chunk);
    assert_eq!(s.room_wanted(Time::ZERO), Some(16));
    assert_eq!(s.room_wanted(Time::ZERO), None);
    for times in 1..=4u32 {
        s.grant(&[], Time::ZERO);
        assert_eq!(s.room_wanted(Time::ZERO), None);
        let again = Time::ZERO + Span::millis(10 << times).min(Span::millis(160));
        assert_eq!(s.pause_ends(Time::ZERO), Some(again));
        assert_eq!(s.room_wanted(again), Some(16), "{times}");
    }
    for position in 30..32 {
        s.push(Token(1), Time::ZERO);
        let decode = s.decode();
        assert_eq!(decode.first, position);
        compute(&mut s, decode);
    }
    assert_eq!(s.pause(Time::ZERO), Some(Pause::Stuck));
    s.room_comes(Time::ZERO);
    assert_eq!(s.pause(Time::ZERO), Some(Pause::Slot));
    s.grant(&slots(2..4), Time::ZERO);
    assert_eq!(s.pause(Time::ZERO), None);
}

#[test]
fn what_was_wrong_once_is_wrong_for_ever() {
    let given = Given { prompt: 64, slots: 5, ready: 4, arriving: vec![], max_tokens: 9 };
    let (mut right, mut wrong) = (sequence(given.clone()), sequence(given));
    let chunk = right.chunk(64).unwrap();
    compute(&mut right, chunk);
    compute(&mut wrong, chunk);
    for block in 0..4 {
        let folded = right.next_whole().unwrap();
        assert_eq!((folded.block, folded.implied), (block, folded.expected));
        right.fold(&folded, folded.implied);
        let folded = wrong.next_whole().unwrap();
        // Only block 1 is wrong; the later ones are as the tokens imply.
        let actual = if block == 1 { Pattern(7) } else { folded.implied };
        assert_eq!(folded.expected == folded.implied, block < 2);
        wrong.fold(&folded, actual);
    }
    assert!(right.next_whole().is_none());
    assert_ne!(right.state, wrong.state);
}

proptest! {
    /// However a prompt is cut and whatever comes, each position is either present or computed
    /// once, and the accounts add up.
    #[test]
    fn every_position_is_present_or_computed(
        prompt in 1usize..200,
        ready in 0u32..6,
        arriving in proptest::collection::vec((0u32..13, any::<bool>()), 0..6),
        budgets in proptest::collection::vec(1usize..50, 1..10),
    ) {
        let indexes = arriving.iter().map(|(index, _)| *index).collect();
        let given = Given { prompt, slots: 14, ready, arriving: indexes, max_tokens: 9 };
        let mut s = sequence(given);
        let mut computed = 0;
        let mut comes = arriving.into_iter();
        let mut budgets = budgets.into_iter().cycle();
        while s.is_prefilling() {
            if s.pause(Time::ZERO).is_some() {
                match comes.next() {
                    Some((index, true)) if s.importable(index as usize, slots(0..14)[index as usize]) => {
                        s.imported(index as usize);
                    }
                    Some((index, _)) => s.missed(index as usize),
                    None => { s.pause(DEADLINE); }
                }
                continue;
            }
            let before = s.uncached();
            let chunk = s.chunk(budgets.next().unwrap()).unwrap();
            prop_assert!(chunk.new <= chunk.last - chunk.first + 1);
            compute(&mut s, chunk);
            computed += chunk.new;
            prop_assert!(s.uncached() <= before);
        }
        let sources = s.sources();
        prop_assert_eq!(sources.total() as usize, prompt);
        prop_assert_eq!(sources.computed as usize, computed);
        prop_assert_eq!(s.uncached(), 0);
    }
}
