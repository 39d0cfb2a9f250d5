use super::*;
use protocol::block::{Generation, SlotId};
use protocol::prompt::StreamItem;
use protocol::time::Time;
use tokio::sync::mpsc::{Receiver, channel};

fn slots(range: std::ops::Range<u32>) -> Vec<SlotRef> {
    range.map(|slot| SlotRef { slot: SlotId(slot), generation: Generation(1) }).collect()
}

struct Given {
    prompt: usize,
    slots: u32,
    ready: u32,
    arriving: Vec<u32>,
    max_tokens: u32,
}

fn sequence(given: Given, epoch: Instant) -> (Sequence, Receiver<StreamItem>) {
    let (sink, reader) = channel(4);
    let arriving = given.arriving.into_iter().map(|index| Arriving {
        index,
        from: if index % 2 == 0 { ArrivingFrom::Dram } else { ArrivingFrom::Peer(NodeId([1; 32])) },
        deadline: Time(1_000_000),
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
        resumed: 0,
        sampling: Sampling::GREEDY,
        limits: Limits { max_tokens: given.max_tokens, stop_tokens: vec![] },
        constraint: None,
        priority: 0,
        arrived: epoch,
        serving_node: NodeId([0; 32]),
        sink,
        guard: Box::new(()),
    };
    (Sequence::new(job, 1_000, |time| epoch + Duration::from_nanos(time.0)), reader)
}

fn indexes(full: Vec<(u32, Vec<Token>)>) -> Vec<u32> {
    full.into_iter().map(|(index, _)| index).collect()
}

#[test]
fn a_prompt_is_cut_into_chunks_and_sealed_in_order() {
    let now = Instant::now();
    let given = Given { prompt: 40, slots: 4, ready: 0, arriving: vec![], max_tokens: 10 };
    let (mut s, _reader) = sequence(given, now);
    assert_eq!(s.pause(now), None);
    assert_eq!(s.chunk(30), (0..30).collect::<Vec<_>>());
    let full = s.computed(29);
    assert_eq!(full, [(0, (0..16).map(Token).collect())]);
    assert_eq!(s.chunk(30), (30..40).collect::<Vec<_>>());
    assert_eq!(indexes(s.computed(39)), [1]);
    assert!(!s.is_prefilling());
    for n in 0..8 {
        s.push(Token(100 + n));
        assert_eq!(s.decode_position(), 40 + n);
        assert_eq!(indexes(s.computed(40 + n)), if n == 7 { vec![2] } else { vec![] });
    }
    assert_eq!(s.sources(), PromptSources { computed: 40, ..Default::default() });
}

#[test]
fn ready_blocks_are_skipped_but_the_last_token_is_computed_without_writing() {
    let now = Instant::now();
    let given = Given { prompt: 32, slots: 3, ready: 2, arriving: vec![], max_tokens: 9 };
    let (mut s, _reader) = sequence(given, now);
    assert_eq!(s.chunk(64), [31]);
    assert!(!s.writes(31));
    assert_eq!(indexes(s.computed(31)), [] as [u32; 0]);
    assert!(s.writes(32));
    assert_eq!(s.sources(), PromptSources { gpu: 31, computed: 1, ..Default::default() });
}

#[test]
fn a_part_of_a_block_is_never_reused() {
    let now = Instant::now();
    let given = Given { prompt: 20, slots: 3, ready: 2, arriving: vec![], max_tokens: 9 };
    let (mut s, _reader) = sequence(given, now);
    assert_eq!(s.chunk(64), (16..20).collect::<Vec<_>>());
    assert!(s.writes(16) && s.writes(20));
    s.computed(19);
    assert_eq!(s.sources(), PromptSources { gpu: 16, computed: 4, ..Default::default() });
}

#[test]
fn it_waits_for_the_block_it_needs_next_until_the_deadline() {
    let epoch = Instant::now();
    let given = Given { prompt: 60, slots: 5, ready: 1, arriving: vec![1, 3], max_tokens: 9 };
    let (mut s, _reader) = sequence(given, epoch);
    let deadline = epoch + Duration::from_millis(1);
    assert_eq!(s.pause(epoch), Some(Pause::Block));
    assert_eq!(s.pause_ends(), Some(deadline));
    // Block 3 is not whole (60 tokens), so it is not awaited.
    assert_eq!(s.pause(deadline), None);
    assert_eq!(s.chunk(64), (16..60).collect::<Vec<_>>());
    assert_eq!(s.uncached(), 44);
}

#[test]
fn a_block_that_comes_while_earlier_ones_are_computed_is_skipped() {
    let epoch = Instant::now();
    let given = Given { prompt: 70, slots: 5, ready: 0, arriving: vec![1, 2], max_tokens: 9 };
    let (mut s, _reader) = sequence(given, epoch);
    let [to_one, to_two] = [1, 2].map(|i| slots(0..5)[i]);
    // The first awaited block ends the chunk.
    assert_eq!(s.chunk(64), (0..16).collect::<Vec<_>>());
    assert_eq!(indexes(s.computed(15)), [0]);
    assert!(s.importable(2, to_two) && !s.importable(2, to_one) && !s.importable(4, to_two));
    s.imported(2);
    s.missed(1);
    assert_eq!(s.pause(epoch), None);
    let expected: Vec<u32> = (16..32).chain(48..70).collect();
    assert_eq!(s.chunk(64), expected);
    // Begun: too late for the bytes of block 1.
    assert_eq!(s.chunk(5), (16..21).collect::<Vec<_>>());
    s.computed(20);
    assert!(!s.importable(1, to_one));
    assert_eq!(indexes(s.computed(69)), [1, 3]);
    assert_eq!(s.sources(), PromptSources { dram: 16, computed: 54, ..Default::default() });
}

#[test]
fn sources_name_where_blocks_came_from() {
    let epoch = Instant::now();
    let given = Given { prompt: 48, slots: 5, ready: 1, arriving: vec![1, 2], max_tokens: 9 };
    let (mut s, _reader) = sequence(given, epoch);
    [1, 2].into_iter().for_each(|block| s.imported(block));
    assert_eq!(s.chunk(64), [47]);
    s.computed(47);
    let expected = PromptSources { gpu: 16, dram: 15, nvme: 0, peer: 16, computed: 1 };
    assert_eq!(s.sources(), expected);
    assert_eq!(expected.total(), 48);
}

fn decode_until_asked(s: &mut Sequence, now: Instant) -> (usize, u32) {
    loop {
        if let Some(blocks) = s.room_wanted(now) {
            return (s.len(), blocks);
        }
        let position = s.decode_position();
        s.push(Token(1));
        s.computed(position);
    }
}

#[test]
fn room_is_asked_for_early_and_once() {
    let now = Instant::now();
    let given = Given { prompt: 16, slots: 3, ready: 0, arriving: vec![], max_tokens: 600 };
    let (mut s, _reader) = sequence(given, now);
    assert_eq!(s.room_wanted(now), None);
    s.computed(15);
    // One block left unused when the second is begun.
    assert_eq!(decode_until_asked(&mut s, now), (17, 16));
    assert_eq!(s.room_wanted(now), None);
    s.grant(slots(3..19), now);
    assert_eq!(s.room_wanted(now), None);
    // 616 tokens, of which 615 are fed: 39 blocks, 19 of them there.
    assert_eq!(decode_until_asked(&mut s, now), (273, 16));
    s.grant(slots(19..35), now);
    assert_eq!(decode_until_asked(&mut s, now), (529, 4));
}

#[test]
fn a_short_answer_asks_for_nothing() {
    let now = Instant::now();
    let given = Given { prompt: 16, slots: 2, ready: 0, arriving: vec![], max_tokens: 17 };
    let (mut s, _reader) = sequence(given, now);
    s.computed(15);
    for position in 16..32 {
        assert_eq!(s.room_wanted(now), None);
        s.push(Token(1));
        s.computed(position);
    }
    s.push(Token(1));
    assert!(s.is_full());
}

#[test]
fn without_room_it_pauses_asks_again_at_a_bounded_rate_and_is_stuck_in_the_end() {
    let mut now = Instant::now();
    let given = Given { prompt: 16, slots: 1, ready: 0, arriving: vec![], max_tokens: 100 };
    let (mut s, _reader) = sequence(given, now);
    s.computed(15);
    s.push(Token(1));
    let mut waits = Vec::new();
    for _ in 0..4 {
        assert_eq!(s.room_wanted(now), Some(7));
        assert_eq!(s.room_wanted(now), None);
        assert_eq!(s.pause(now), Some(Pause::Slot));
        s.grant(vec![], now);
        let again = s.pause_ends().unwrap();
        waits.push(again - now);
        assert_eq!(s.room_wanted(now), None);
        now = again;
    }
    assert_eq!(waits.iter().map(Duration::as_millis).collect::<Vec<_>>(), [20, 40, 80, 160]);
    assert_eq!(s.pause(now), Some(Pause::Stuck));
    assert_eq!(s.room_wanted(now), Some(7));
    s.grant(slots(1..8), now);
    assert_eq!(s.pause(now), None);
}

#[test]
fn a_slow_reader_pauses_it() {
    let now = Instant::now();
    let given = Given { prompt: 16, slots: 3, ready: 0, arriving: vec![], max_tokens: 100 };
    let (mut s, mut reader) = sequence(given, now);
    for n in 0..5 {
        assert_eq!(s.pause(now), None);
        s.outlet.send(StreamItem::Tokens(vec![Token(n)]));
    }
    assert_eq!(s.pause(now), Some(Pause::Reader));
    reader.try_recv().unwrap();
    assert_eq!(s.pause(now), None);
}
