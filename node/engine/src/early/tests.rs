use super::*;
use protocol::block::SlotId;

fn slot(n: u32) -> SlotRef {
    SlotRef { slot: SlotId(n), generation: Default::default() }
}

#[test]
fn notes_wait_for_their_job_and_are_claimed_once() {
    let mut early = Early::default();
    early.notes(LeaseId(7)).unwrap().imported.push((0, slot(4)));
    early.notes(LeaseId(7)).unwrap().missed.push(1);
    let notes = early.claim(LeaseId(7));
    assert_eq!(notes.imported, [(0, slot(4))]);
    assert_eq!(notes.missed, [1]);
    assert_eq!(early.claim(LeaseId(7)), Notes::default());
}

#[test]
fn an_ended_lease_takes_no_notes() {
    let mut early = Early::default();
    early.ended(LeaseId(7));
    assert!(early.notes(LeaseId(7)).is_none());
}

#[test]
fn memory_is_bounded() {
    let mut early = Early::default();
    for lease in 0..2 * LEASES_MAX as u64 {
        early.ended(LeaseId(lease));
        early.notes(LeaseId(u64::MAX - lease));
    }
    assert_eq!(early.entries.len(), LEASES_MAX);
    assert_eq!(early.order.len(), LEASES_MAX);
}
