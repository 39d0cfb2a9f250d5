use super::{DramError, dram_pool, dram_slots};
use protocol::block::StorageNamespace;

fn namespace(block_bytes: u64) -> StorageNamespace {
    StorageNamespace {
        block_tokens: 16,
        kv_dtype: "f32".into(),
        layout: "test-1".into(),
        block_bytes,
        parts: vec![],
        groups: vec![],
    }
}

#[test]
fn blocks_take_whole_pages() {
    assert_eq!(dram_slots(10 * 4096, &namespace(4096)).unwrap(), 10);
    assert_eq!(dram_slots(10 * 4096, &namespace(4097)).unwrap(), 5);
    assert_eq!(dram_slots(u64::MAX, &namespace(1)).unwrap(), u32::MAX);
    let pool = dram_pool(1 << 20, &namespace(100_000)).unwrap();
    assert_eq!((pool.slots(), pool.slot_bytes()), (10, 100_000));
}

#[test]
fn a_limit_below_one_block_says_what_to_do() {
    for block_bytes in [4097, u64::MAX, 1 << 40] {
        let error = dram_slots(4096, &namespace(block_bytes)).unwrap_err();
        assert!(matches!(error, DramError::TooSmall { .. }));
        assert!(error.to_string().contains("raise it"), "{error}");
    }
    assert!(dram_pool(1 << 20, &namespace(0)).is_err());
}
