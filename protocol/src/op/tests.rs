use super::*;

#[test]
fn slots_outside_the_pool_have_no_number() {
    assert_eq!(slot_index(SlotId(0), 0), None);
    assert_eq!(slot_index(SlotId(4), 5), Some(4));
    assert_eq!(slot_index(SlotId(5), 5), None);
    assert_eq!(slot_index(SlotId(u32::MAX), 5), None);
}
