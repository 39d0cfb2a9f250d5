use super::*;
use protocol::block::StorageId;
use protocol::hash::PrefixHash;

fn key(n: u128) -> BlockKey {
    BlockKey { prefix: PrefixHash(n), storage: StorageId(1) }
}

fn evicts(n: u128, read: bool) -> Room {
    Room::Evicts { key: key(n), pinned: false, read }
}

#[test]
fn all_classes_but_reasoning_may_wait_while_the_queue_is_short() {
    for class in [BlockClass::System, BlockClass::Tools, BlockClass::Context, BlockClass::Output] {
        assert_eq!(Admission::may_wait(Some(class), 3, 4), Ok(()));
    }
    assert_eq!(Admission::may_wait(None, 3, 4), Ok(()));
    assert_eq!(Admission::may_wait(None, 4, 4), Err(Refused::Busy));
    assert_eq!(Admission::may_wait(Some(BlockClass::Reasoning), 0, 4), Err(Refused::Class));
}

#[test]
fn pins_and_blocks_in_use_are_not_displaced() {
    let mut filter = Admission::new(8);
    let pinned = Room::Evicts { key: key(1), pinned: true, read: true };
    assert_eq!(filter.may_write(&key(2), pinned), Err(Refused::Pinned));
    assert_eq!(filter.may_write(&key(2), Room::None), Err(Refused::Pinned));
    assert_eq!(filter.may_write(&key(2), Room::Free), Ok(()));
}

#[test]
fn what_left_unread_is_refused_once_and_only_under_pressure() {
    let mut filter = Admission::new(8);
    assert_eq!(filter.may_write(&key(2), evicts(1, false)), Ok(()));
    assert_eq!(filter.may_write(&key(3), evicts(2, true)), Ok(()));
    assert_eq!(filter.may_write(&key(1), evicts(3, false)), Err(Refused::Unread));
    assert_eq!(filter.may_write(&key(2), evicts(3, false)), Ok(()), "it was of use");
    assert_eq!(filter.may_write(&key(1), evicts(9, false)), Ok(()), "it has come back twice");
    assert_eq!(filter.may_write(&key(3), Room::Free), Ok(()), "there is room");
    assert_eq!(filter.may_write(&key(3), evicts(8, false)), Ok(()), "forgotten when written");
}

#[test]
fn the_filter_remembers_no_more_than_it_may() {
    let mut filter = Admission::new(3);
    for n in 0..100 {
        assert_eq!(filter.may_write(&key(1000), evicts(n, false)), Ok(()));
        assert!(filter.ghosts.len() <= 3 && filter.order.len() <= 3);
    }
    assert_eq!(filter.may_write(&key(96), evicts(1, true)), Ok(()));
    assert_eq!(filter.may_write(&key(97), evicts(1, true)), Err(Refused::Unread));
    let mut none = Admission::new(0);
    assert_eq!(none.may_write(&key(1), evicts(2, false)), Ok(()));
    assert_eq!(none.may_write(&key(2), evicts(3, false)), Ok(()));
}
