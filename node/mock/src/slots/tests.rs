use super::*;
use protocol::block::SlotId;

fn slot(number: u32, generation: u32) -> SlotRef {
    SlotRef { slot: SlotId(number), generation: Generation(generation) }
}

const A: LeaseId = LeaseId(1);
const B: LeaseId = LeaseId(2);

#[test]
fn a_slot_holds_what_was_sealed_last() {
    let (mut slots, mut stats) = (Slots::new(2), Stats::default());
    assert_eq!(slots.pattern(slot(0, 1)), None);
    slots.begin(slot(0, 1), A, &mut stats);
    slots.begin(slot(0, 1), A, &mut stats);
    assert_eq!(slots.pattern(slot(0, 1)), None);
    slots.seal(slot(0, 1), A, Pattern(5), &mut stats);
    assert_eq!(slots.pattern(slot(0, 1)), Some(Pattern(5)));
    // The next life of the slot.
    slots.import(slot(0, 2), Pattern(6), &mut stats);
    slots.begin(slot(0, 3), B, &mut stats);
    slots.seal(slot(0, 3), B, Pattern(7), &mut stats);
    assert_eq!(slots.pattern(slot(0, 3)), Some(Pattern(7)));
    assert_eq!(stats, Stats::default());
    assert!(slots.contains(slot(1, 0)) && !slots.contains(slot(2, 0)));
}

#[test]
fn writes_that_must_not_be_are_counted() {
    let (mut slots, mut stats) = (Slots::new(2), Stats::default());
    slots.begin(slot(0, 2), A, &mut stats);
    slots.begin(slot(0, 2), B, &mut stats);
    assert_eq!(stats.violations, 1, "two leases in one life");
    slots.seal(slot(0, 2), A, Pattern(1), &mut stats);
    assert_eq!(stats.overwritten, 1, "the other wrote in between");
    slots.begin(slot(0, 1), A, &mut stats);
    assert_eq!(stats.violations, 2, "a write of an older life");
    slots.import(slot(1, 4), Pattern(1), &mut stats);
    slots.import(slot(1, 4), Pattern(1), &mut stats);
    assert_eq!(stats.violations, 3, "a full block is not written again");
}

#[test]
fn users_are_counted_by_slot() {
    let mut slots = Slots::new(3);
    slots.hold(&[slot(0, 1), slot(1, 1)]);
    slots.hold(&[slot(1, 1), slot(2, 1)]);
    assert_eq!(slots.active(), 3);
    slots.let_go(&[slot(0, 1), slot(1, 1)]);
    assert_eq!(slots.active(), 2);
    slots.let_go(&[slot(1, 1), slot(2, 1)]);
    slots.let_go(&[slot(1, 1)]);
    assert_eq!(slots.active(), 0);
    slots.hold(&[slot(0, 1)]);
    slots.clear();
    assert_eq!((slots.active(), slots.len()), (0, 3));
}
