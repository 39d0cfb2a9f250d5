use super::*;

const SHAPE: BlockShape = BlockShape { layers: 3, kv_heads: 2, dim: 32 };

#[test]
fn a_block_moves_as_bytes_and_nothing_else_changes() {
    let mut from = KvPool::new(SHAPE, 4);
    for layer in 0..3 {
        for token in 0..BLOCK {
            let row = |salt: usize| -> Vec<f32> {
                (0..64).map(|i| (salt + layer * 10_000 + token * 100 + i) as f32).collect()
            };
            from.write(2, layer, token, &row(0), &row(1_000_000));
        }
    }
    assert_eq!(from.keys(2, 1, 1)[5 * BLOCK + 3], 10_337.0);
    assert_eq!(from.values(2, 2, 1, 1)[7 * 16 + 4], 1_020_752.0);
    let mut bytes = vec![0; from.block_bytes()];
    assert!(from.export(2, &mut bytes));
    let mut to = KvPool::new(SHAPE, 4);
    assert!(to.import(1, &bytes));
    for layer in 0..3 {
        for head in 0..2 {
            assert_eq!(to.keys(1, layer, head), from.keys(2, layer, head));
            for part in 0..2 {
                let moved = to.values(1, layer, head, part);
                assert_eq!(moved, from.values(2, layer, head, part));
            }
        }
    }
    let empty = KvPool::new(SHAPE, 1);
    for slot in [0, 2, 3] {
        assert_eq!(to.keys(slot, 0, 0), empty.keys(0, 0, 0));
        assert_eq!(to.values(slot, 2, 1, 1), empty.values(0, 2, 1, 1));
    }
}

#[test]
fn what_does_not_fit_is_refused_whole() {
    let mut pool = KvPool::new(SHAPE, 2);
    let mut short = vec![0; pool.block_bytes() - 1];
    assert!(!pool.export(0, &mut short));
    assert!(!pool.import(0, &short));
    let bytes = vec![1; pool.block_bytes()];
    assert!(!pool.import(2, &bytes));
    assert_eq!(pool.keys(0, 0, 0)[0], 0.0);
}
