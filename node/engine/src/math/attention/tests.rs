use super::*;
use crate::pool::BlockShape;

const HEADS: usize = 6;
const SHAPE: BlockShape = BlockShape { layers: 2, kv_heads: 2, dim: 32 };
const WIDTH: usize = HEADS * SHAPE.dim;

fn value(i: usize, scale: f32) -> f32 {
    ((i as f32 * 12.9898).sin() * 43_758.547).fract() * scale
}

/// A pool in which blocks of one sequence lie at `slots`; foreign slots hold what is no number.
fn filled(slots: &[usize], tokens: usize) -> KvPool {
    let mut pool = KvPool::new(SHAPE, 40);
    let poison = f32::NAN.to_le_bytes().repeat(SHAPE.floats());
    for slot in 0..40 {
        assert!(pool.import(slot, &poison));
    }
    for token in 0..tokens {
        let row = |salt: usize| -> Vec<f32> {
            (0..SHAPE.kv_heads * SHAPE.dim)
                .map(|i| value(token * 977 + i * 31 + salt, 2.0))
                .collect()
        };
        pool.write(slots[token / BLOCK], 1, token % BLOCK, &row(1), &row(2));
    }
    pool
}

fn queries(positions: &[u32]) -> Vec<f32> {
    let row = |p: u32| (0..WIDTH).map(move |i| value(p as usize * 7919 + i, 1.0));
    positions.iter().copied().flat_map(row).collect()
}

fn truth(pool: &KvPool, slots: &[usize], q: &[f32], position: usize, head: usize) -> Vec<f64> {
    let kv = head / (HEADS / SHAPE.kv_heads);
    let q = &q[head * SHAPE.dim..][..SHAPE.dim];
    let score = |token: usize| -> f64 {
        let keys = pool.keys(slots[token / BLOCK], 1, kv);
        let key = |d: usize| f64::from(keys[d * BLOCK + token % BLOCK]);
        (0..SHAPE.dim).map(|d| f64::from(q[d]) * key(d)).sum()
    };
    let weights: Vec<f64> = (0..=position).map(|token| score(token).exp()).collect();
    let total: f64 = weights.iter().sum();
    let dimension = |d: usize| {
        let value = |token: usize| {
            let values = pool.values(slots[token / BLOCK], 1, kv, d / VALUES);
            f64::from(values[token % BLOCK * VALUES + d % VALUES])
        };
        weights.iter().enumerate().map(|(t, weight)| weight * value(t)).sum::<f64>() / total
    };
    (0..SHAPE.dim).map(dimension).collect()
}

#[test]
fn equals_softmax_attention_in_double_precision() {
    let slots = [7, 3, 30, 11, 2];
    let pool = filled(&slots, 75);
    for position in [0u32, 1, 14, 15, 16, 17, 40, 74] {
        let q = queries(&[position]);
        let mut out = vec![0.0; WIDTH];
        let query = Query { q: &q, positions: &[position], slots: &slots };
        attend(&pool, 1, HEADS, &[query], &mut out, Threads::new(1));
        for head in 0..HEADS {
            let truth = truth(&pool, &slots, &q, position as usize, head);
            for (out, truth) in out[head * SHAPE.dim..].iter().zip(truth) {
                assert!((f64::from(*out) - truth).abs() < 1e-5, "{position} {head}: {out} {truth}");
            }
        }
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn a_row_has_the_same_bits_alone_and_among_others_in_any_tile_on_any_thread() {
    let slots = [7, 3, 30, 11, 2];
    let pool = filled(&slots, 75);
    let positions: Vec<u32> = (0..75).collect();
    let alone: Vec<u32> = positions
        .iter()
        .flat_map(|position| {
            let mut out = vec![0.0; WIDTH];
            let q = queries(&[*position]);
            let query = Query { q: &q, positions: &[*position], slots: &slots };
            attend(&pool, 1, HEADS, &[query], &mut out, Threads::new(1));
            bits(&out)
        })
        .collect();
    for threads in [1, 3] {
        let q = queries(&positions);
        let (first, second) = q.split_at(20 * WIDTH);
        let queries = [
            Query { q: first, positions: &positions[..20], slots: &slots },
            Query { q: second, positions: &positions[20..], slots: &slots },
        ];
        let mut out = vec![0.0; 75 * WIDTH];
        attend(&pool, 1, HEADS, &queries, &mut out, Threads::new(threads));
        assert!(bits(&out) == alone);
    }
    let q = queries(&positions);
    let task = Task {
        pool: &pool,
        layer: 1,
        kv_head: 1,
        heads: HEADS,
        q: &q,
        positions: &positions,
        slots: &slots,
    };
    let mut scores = Vec::new();
    let mut tiles = [(); 3].map(|()| vec![0.0; task.rows() * SHAPE.dim]);
    let [four, eight, sixteen] = &mut tiles;
    Run { task: &task, scores: &mut scores, out: four }.run::<4>();
    Run { task: &task, scores: &mut scores, out: eight }.run::<8>();
    Run { task: &task, scores: &mut scores, out: sixteen }.run::<16>();
    assert!(bits(&tiles[0]) == bits(&tiles[1]) && bits(&tiles[0]) == bits(&tiles[2]));
}
