//! Each checker alone, on what it must take and what it must not.

use super::*;
use crate::clerks::Wish;
use protocol::block::{Generation, SlotId, SlotRef};
use protocol::event::{BlockEvent, Holder, MemberState, MemberView};
use protocol::hash::PrefixHash;
use protocol::id::{EngineId, Incarnation, NodeId, RequestId};
use protocol::op::{Grant, LeaseId, OpId};
use protocol::state::{Kept, Record, RecordId, RecordKey, RecordKind, Version};
use protocol::time::{Span, Time};
use router::admission::{Arrival, In, Out};
use state::{Answer, Deleted};

const ENGINE: EngineId = EngineId(0);

fn slot(slot: u32, generation: u32) -> SlotRef {
    SlotRef { slot: SlotId(slot), generation: Generation(generation) }
}

fn grant(lease: u64, slots: Vec<SlotRef>, ready: u32) -> Grant {
    Grant { lease: LeaseId(lease), slots, ready, arriving: Vec::new() }
}

#[test]
fn slots_are_shared_to_read_and_alone_to_write() {
    let mut slots = slots::Slots::default();
    slots.granted(0, ENGINE, &grant(1, vec![slot(5, 1), slot(6, 1)], 0)).unwrap();
    slots.granted(1, ENGINE, &grant(1, vec![slot(5, 1)], 0)).unwrap(); // another host
    assert!(slots.more(0, ENGINE, LeaseId(2), &[slot(5, 2)]).is_err(), "still written");
    slots.released(0, LeaseId(1));
    slots.granted(0, ENGINE, &grant(3, vec![slot(5, 1), slot(7, 1)], 1)).unwrap();
    slots.granted(0, ENGINE, &grant(4, vec![slot(5, 1), slot(8, 1)], 1)).unwrap();
    slots.released(0, LeaseId(3));
    assert!(slots.more(0, ENGINE, LeaseId(5), &[slot(5, 2)]).is_err(), "still read");
    slots.engine_died(0, ENGINE);
    assert_eq!(slots.leases(0), 0);
    assert!(slots.more(0, ENGINE, LeaseId(6), &[slot(5, 1)]).is_err(), "an old generation");
    slots.more(0, ENGINE, LeaseId(7), &[slot(5, 2)]).unwrap();
}

#[test]
fn memory_is_written_only_while_an_operation_has_it() {
    let mut writes = writes::Writes::default();
    assert!(writes.wrote(0, slot(1, 1)).is_err());
    writes.export(0, ENGINE, OpId(1), slot(1, 1)).unwrap();
    writes.wrote(0, slot(1, 1)).unwrap();
    assert!(writes.wrote(0, slot(1, 2)).is_err(), "another generation");
    assert!(writes.wrote(1, slot(1, 1)).is_err(), "another host");
    writes.end_all(0, OpId(1));
    assert!(writes.wrote(0, slot(1, 1)).is_err(), "late");
    writes.fetch(0, OpId(2), [slot(1, 2), slot(2, 1)].into_iter()).unwrap();
    writes.end(0, OpId(2), 0);
    assert!(writes.wrote(0, slot(1, 2)).is_err(), "this block was decided");
    writes.wrote(0, slot(2, 1)).unwrap();
    assert!(writes.read(0, OpId(3), slot(2, 2)).is_err(), "given away twice");
}

#[test]
fn the_order_of_admission_is_bounded() {
    let scenario = Scenario::default();
    let arrive =
        |id, strict| In::Arrive(Arrival { id: RequestId(id), strict, priority: 0, uncached: 1 });
    let mut order = queue::Order::new(&scenario);
    order.input(0, Time(0), &arrive(1, 0));
    order.input(0, Time::ZERO + Span::secs(5), &arrive(2, 0));
    order.input(0, Time::ZERO + Span::secs(6), &arrive(3, 1));
    order.input(0, Time::ZERO + Span::secs(6), &arrive(4, 0));
    assert!(order.output(0, &Out::Admit(RequestId(3))).is_ok(), "a higher tier");
    assert!(order.output(0, &Out::Admit(RequestId(2))).is_ok(), "within the bound");
    assert!(order.output(0, &Out::Admit(RequestId(4))).is_err());
}

#[test]
fn pins_hold_in_the_node_not_in_each_tier() {
    let mut pins = pins::Pins::new(&Scenario::default());
    let (prefix, storage) = (PrefixHash(7), Default::default());
    let stored = |holder| BlockEvent::Stored { prefix, tokens: 64, storage, holder };
    let removed = |holder| BlockEvent::Removed { prefix, tokens: 64, storage, holder };
    pins.pinned(0, Time(0), &[prefix], Span::secs(2));
    let (soon, later) = (Time::ZERO + Span::secs(1), Time::ZERO + Span::secs(3));
    for holder in [Holder::Dram, Holder::Engine(ENGINE)] {
        pins.event(0, soon, &stored(holder)).unwrap();
    }
    pins.event(0, soon, &removed(Holder::Engine(ENGINE))).unwrap();
    assert!(pins.event(0, soon, &removed(Holder::Dram)).is_err());
    pins.event(0, later, &stored(Holder::Dram)).unwrap();
    pins.event(0, later, &removed(Holder::Dram)).unwrap();
}

#[test]
fn only_lives_that_are_over_are_forgotten() {
    let (node, life) = (NodeId([1; 32]), |counter, nonce| Incarnation { counter, nonce });
    let mut lives = members::Lives::default();
    lives.begins(Time(0), (node, life(1, 5)));
    assert!(lives.forgotten(&node, life(1, 5)).is_err());
    assert!(lives.forgotten(&node, life(0, 3)).is_ok());
    lives.begins(Time(1), (node, life(1, 9)));
    assert!(lives.forgotten(&node, life(1, 5)).is_ok(), "it has a twin");
    lives.ends(Time(2), (node, life(1, 9)));
    let view = |state| MemberView {
        node,
        incarnation: life(1, 9),
        state,
        contact: Default::default(),
        engines: Vec::new(),
        owed_bytes: 0,
        blocks: [0; 3],
    };
    assert_eq!(lives.seen(Time(5), &view(MemberState::Alive)), (None, false));
    assert_eq!(lives.seen(Time(5), &view(MemberState::Dead)), (Some(Span(3)), false));
    assert_eq!(lives.seen(Time(6), &view(MemberState::Dead)), (None, false), "noticed once");
}

#[test]
fn regret_is_the_share_above_the_best() {
    let mut regret = regret::Regret::default();
    assert_eq!(regret.share(), 0.0);
    regret.add(30.0, 20.0);
    regret.add(20.0, 20.0);
    assert_eq!(regret.share(), 0.25);
    let load = protocol::event::EngineLoad { prefill_rate: 1000.0, ..Default::default() };
    let offer = regret::Offer { local: 0, anywhere: 900, bytes_per_token: 1.0, bytes_s: 1e6, load };
    assert_eq!(offer.cost_ms(1000), 0.9 + 100.0, "fetching is cheaper than computing");
}

#[test]
fn the_limit_of_a_disk_is_a_limit() {
    assert!(disk::Disks::room(4096, 4096).is_ok());
    assert!(disk::Disks::room(4097, 4096).is_err());
}

/// A write and its deletion, both safe; `copies` are left when a disk is lost, then the old write is
/// found at rest.
fn revived_after(copies: &[Record]) -> Result<(), String> {
    let mut book = records::Book::new(&Scenario { nodes: 3, ..Scenario::default() });
    let (old, gone) = (copy(1, false), copy(2, true));
    book.begins(Time(10), 1, old.id, &Wish::Put(old.value.clone()));
    let two = [old.clone(), old.clone()];
    book.ends(Time(20), 1, &Answer::Put(Ok(Kept::Safe)), &two, true).unwrap();
    book.begins(Time(30), 2, old.id, &Wish::Delete);
    let answer = Answer::Deleted(Ok(Deleted::Gone(Kept::Safe)));
    book.ends(Time(40), 2, &answer, &[gone.clone(), gone], true).unwrap();
    book.disk_lost(Time(50), |_| copies.to_vec());
    book.at_rest(&old.id, std::slice::from_ref(&old))
}

fn copy(counter: u64, deleted: bool) -> Record {
    let key = RecordKey { place: [1; 16], name: [2; 16] };
    Record {
        id: RecordId { key, kind: RecordKind::Response },
        version: Version { counter, writer: NodeId([1; 32]), write: 1 },
        deleted,
        ttl: Span::secs(60),
        value: if deleted { Vec::new() } else { vec![7; 9] },
    }
}

#[test]
fn a_deletion_is_promised_while_a_disk_has_it_or_nothing_is_left() {
    revived_after(&[]).unwrap_err();
    revived_after(&[copy(2, true)]).unwrap_err();
    revived_after(&[copy(2, true), copy(1, false)]).unwrap_err();
    // It is lost, and the old write is not.
    revived_after(&[copy(1, false)]).unwrap();
}
