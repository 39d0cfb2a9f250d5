use super::*;
use crate::nvme::tests::storage;
use proptest::prelude::*;

proptest! {
    #[test]
    fn slots_lie_apart_and_within_the_limit(
        block in 1u64..100_000, limit in 0u64..10_000_000, extent in 1u64..1_000_000,
    ) {
        let Ok(layout) = Layout::new(&storage(block), limit, extent) else {
            prop_assert!(limit < block.next_multiple_of(SECTOR) + PROBE_BYTES);
            return Ok(());
        };
        let mut ends = std::collections::BTreeMap::<FileId, u64>::new();
        for slot in 0..layout.slots {
            let (extent, offset) = layout.place(SlotId(slot)).unwrap();
            let end = ends.entry(extent).or_default();
            prop_assert_eq!(*end, offset);
            *end += layout.stride;
        }
        prop_assert_eq!(layout.place(SlotId(layout.slots)), None);
        for (extent, end) in &ends {
            prop_assert_eq!(layout.extent_bytes(*extent), *end);
        }
        prop_assert_eq!(ends.len() as u64, u64::from(layout.extents()));
        prop_assert_eq!(layout.extent_bytes(FileId(layout.extents())), 0);
        prop_assert!(ends.values().sum::<u64>() + PROBE_BYTES <= limit);
    }
}

#[test]
fn a_limit_below_one_block_says_what_to_do() {
    let error = nvme_slots(4096, &storage(4096)).unwrap_err();
    assert!(error.to_string().contains("raise it"), "{error}");
    assert_eq!(nvme_slots(1 << 20, &storage(4097)).unwrap(), 127);
}
