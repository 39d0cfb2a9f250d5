use super::*;
use crate::api::Job;
use protocol::block::{Generation, SlotId, SlotRef};
use protocol::hash::Token;
use protocol::id::{NodeId, RequestId};
use protocol::op::{Arriving, ArrivingFrom, Grant};
use protocol::prompt::{Limits, Sampling};
use protocol::time::Time;
use std::time::Duration;

struct Given {
    lease: u64,
    prompt: usize,
    priority: i32,
    arrived_ms: u64,
    awaits: bool,
}

fn plain(lease: u64, prompt: usize) -> Given {
    Given { lease, prompt, priority: 0, arrived_ms: lease, awaits: false }
}

fn sequence(given: &Given, epoch: Instant) -> Sequence {
    // Nobody reads; the channel is never full.
    let (sink, reader) = tokio::sync::mpsc::channel(64);
    std::mem::forget(reader);
    let slot = |slot| SlotRef { slot: SlotId(slot), generation: Generation(1) };
    let arriving = Arriving { index: 0, from: ArrivingFrom::Dram, deadline: Time(1_000_000_000) };
    let job = Job {
        request: RequestId(1),
        grant: Grant {
            lease: LeaseId(given.lease),
            slots: (0..given.prompt.div_ceil(16) as u32).map(slot).collect(),
            ready: 0,
            arriving: if given.awaits { vec![arriving] } else { vec![] },
        },
        prompt: vec![Token(1); given.prompt].into(),
        resumed: 0,
        sampling: Sampling::GREEDY,
        limits: Limits { max_tokens: 100, stop_tokens: vec![] },
        constraint: None,
        priority: given.priority,
        arrived: epoch + Duration::from_millis(given.arrived_ms),
        serving_node: NodeId([0; 32]),
        sink,
        guard: Box::new(()),
    };
    Sequence::new(job, 1_000, |time| epoch + Duration::from_nanos(time.0))
}

fn schedule(given: &[Given], max_batch: usize, epoch: Instant) -> Schedule {
    let mut schedule = Schedule::new(max_batch, 64);
    given.iter().for_each(|given| schedule.add(sequence(given, epoch)));
    schedule.admit(epoch);
    schedule
}

fn leases(sequences: &[Sequence]) -> Vec<u64> {
    sequences.iter().map(|sequence| sequence.lease.0).collect()
}

fn compute(schedule: &mut Schedule, parts: &[Part]) {
    for part in parts {
        let sequence = &mut schedule.running_mut()[part.sequence];
        sequence.computed(*part.positions.last().unwrap());
        if !sequence.is_prefilling() {
            sequence.push(Token(2));
        }
    }
}

fn sizes(plan: &Plan) -> Vec<(usize, usize)> {
    let Plan::Step(parts) = plan else { panic!("{plan:?}") };
    parts.iter().map(|part| (part.sequence, part.positions.len())).collect()
}

#[test]
fn priority_then_arrival_decides_who_runs() {
    let epoch = Instant::now();
    let given = |lease, priority, arrived_ms| Given {
        lease,
        prompt: 20,
        priority,
        arrived_ms,
        awaits: false,
    };
    let all = [given(1, 0, 30), given(2, 0, 10), given(3, 5, 40), given(4, -1, 0)];
    let schedule = schedule(&all, 3, epoch);
    assert_eq!(leases(schedule.running()), [3, 2, 1]);
    assert_eq!(leases(schedule.waiting()), [4]);
}

#[test]
fn a_step_is_one_chunk_and_one_token_of_each_that_decodes() {
    let epoch = Instant::now();
    let mut s = schedule(&[plain(1, 20), plain(2, 100), plain(3, 50)], 8, epoch);
    let plan = s.plan(epoch);
    assert_eq!(sizes(&plan), [(0, 20), (1, 44)]);
    let Plan::Step(parts) = plan else { unreachable!() };
    compute(&mut s, &parts);
    let plan = s.plan(epoch);
    assert_eq!(sizes(&plan), [(0, 1), (1, 56), (2, 8)]);
    let Plan::Step(parts) = plan else { unreachable!() };
    compute(&mut s, &parts);
    assert_eq!(sizes(&s.plan(epoch)), [(0, 1), (1, 1), (2, 42)]);
}

#[test]
fn others_run_while_one_waits_for_a_block() {
    let epoch = Instant::now();
    let mut s = schedule(&[Given { awaits: true, ..plain(1, 40) }, plain(2, 20)], 8, epoch);
    assert_eq!(sizes(&s.plan(epoch)), [(1, 20)]);
    s.remove(1);
    let until = epoch + Duration::from_secs(1);
    assert_eq!(s.plan(epoch), Plan::Idle(Some(until)));
    assert_eq!(sizes(&s.plan(until)), [(0, 40)]);
}

#[test]
fn when_all_lack_slots_the_youngest_is_stuck() {
    let mut now = Instant::now();
    // The prompts fill their slots.
    let mut s = schedule(&[plain(1, 16), plain(2, 16)], 8, now);
    let Plan::Step(parts) = s.plan(now) else { panic!() };
    compute(&mut s, &parts);
    for round in 0..4 {
        let asks = s.running_mut().iter_mut().filter_map(|one| one.room_wanted(now)).count();
        assert_eq!(asks, 2, "round {round}");
        let Plan::Idle(_) = s.plan(now) else { panic!() };
        s.running_mut().iter_mut().for_each(|one| one.grant(vec![], now));
        now += Duration::from_millis(200);
    }
    assert_eq!(s.plan(now), Plan::Stuck(1));
    s.remove(1);
    // Alone it ends too.
    assert_eq!(s.plan(now), Plan::Stuck(0));
}
