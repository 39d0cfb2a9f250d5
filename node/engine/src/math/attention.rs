//! Attention of query rows over paged keys and values.

#[cfg(test)]
mod tests;

use super::dots::dots;
use super::parallel::Threads;
use super::simd::{Vectorised, widest};
use super::vector::{exp, max, sum};
use crate::pool::{BLOCK, KvPool, VALUES};

/// Positions of one sequence that one task takes.
const TASK_POSITIONS: usize = 32;

/// Consecutive rows of one sequence: what each asks, and where its context lies.
pub(crate) struct Query<'a> {
    /// `[row, head, dimension]`, rotated and scaled.
    pub(crate) q: &'a [f32],
    /// Position of each row; a row sees the keys up to and including its own position.
    pub(crate) positions: &'a [u32],
    /// The sequence's slots, one per block.
    pub(crate) slots: &'a [usize],
}

/// Attention of all `queries` in one layer; `out` gets `[row, head, dimension]`, the queries' rows
/// one after another.
pub(crate) fn attend(
    pool: &KvPool,
    layer: usize,
    heads: usize,
    queries: &[Query<'_>],
    out: &mut [f32],
    threads: Threads,
) {
    let shape = pool.shape();
    let width = heads * shape.dim;
    let (tasks, work) = plan(pool, layer, heads, queries);
    let parts = threads.split(tasks.len(), work, |range| {
        let mut scores = Vec::new();
        let run = |(place, task): &(usize, Task<'_>)| {
            let mut part = vec![0f32; task.rows() * shape.dim];
            widest(Run { task, scores: &mut scores, out: &mut part });
            (*place, part)
        };
        tasks[range].iter().map(run).collect::<Vec<_>>()
    });
    let group = heads / shape.kv_heads * shape.dim;
    for (place, part) in parts.into_iter().flatten() {
        for (row, part) in part.chunks_exact(group).enumerate() {
            let place = place + row * width;
            out[place..place + group].copy_from_slice(part);
        }
    }
}

/// The tasks, each with the place of its first element in the output, and the number of
/// multiplications in all.
fn plan<'a>(
    pool: &'a KvPool,
    layer: usize,
    heads: usize,
    queries: &'a [Query<'a>],
) -> (Vec<(usize, Task<'a>)>, usize) {
    let shape = pool.shape();
    let width = heads * shape.dim;
    let group = heads / shape.kv_heads;
    let (mut tasks, mut first_row, mut work) = (Vec::new(), 0, 0);
    for query in queries {
        let chunks = query.positions.chunks(TASK_POSITIONS);
        for (positions, q) in chunks.zip(query.q.chunks(TASK_POSITIONS * width)) {
            for kv_head in 0..shape.kv_heads {
                let head = kv_head * group;
                let task = Task { pool, layer, kv_head, heads, q, positions, slots: query.slots };
                tasks.push((first_row * width + head * shape.dim, task));
            }
            let context: usize = positions.iter().map(|position| *position as usize + 1).sum();
            work += 2 * context * width;
            first_row += positions.len();
        }
    }
    (tasks, work)
}

/// Some rows of one sequence and one key-value head with the query heads that share it.
struct Task<'a> {
    pool: &'a KvPool,
    layer: usize,
    kv_head: usize,
    heads: usize,
    q: &'a [f32],
    positions: &'a [u32],
    slots: &'a [usize],
}

struct Run<'a> {
    task: &'a Task<'a>,
    /// Scratch memory: a tile's scores, row by row.
    scores: &'a mut Vec<f32>,
    out: &'a mut [f32],
}

impl Vectorised for Run<'_> {
    type Out = ();

    /// Rows are taken in tiles whose sums fit into the vector registers.
    #[inline(always)]
    fn run<const LANES: usize>(self) {
        let mut row = 0;
        if LANES >= 8 {
            row = self.task.tiles::<4>(row, self.scores, self.out);
            row = self.task.tiles::<3>(row, self.scores, self.out);
        }
        row = self.task.tiles::<2>(row, self.scores, self.out);
        self.task.tiles::<1>(row, self.scores, self.out);
    }
}

impl Task<'_> {
    fn group(&self) -> usize {
        self.heads / self.pool.shape().kv_heads
    }

    /// Rows are (position, query head of the group), the head running faster.
    fn rows(&self) -> usize {
        self.positions.len() * self.group()
    }

    /// Computes rows from `row` on, `R` at a time, as long as `R` are left; returns the next row.
    #[inline(always)]
    fn tiles<const R: usize>(
        &self,
        mut row: usize,
        scores: &mut Vec<f32>,
        out: &mut [f32],
    ) -> usize {
        let dim = self.pool.shape().dim;
        while row + R <= self.rows() {
            self.tile::<R>(row, scores, &mut out[row * dim..(row + R) * dim]);
            row += R;
        }
        row
    }

    /// Whole rows of scores first, then softmax, then the weighted values: each sum runs over the
    /// keys in order of position, and keys that a row must not see add exactly nothing.
    #[inline(always)]
    fn tile<const R: usize>(&self, row: usize, scores: &mut Vec<f32>, out: &mut [f32]) {
        let group = self.group();
        let seen: [usize; R] =
            std::array::from_fn(|r| self.positions[(row + r) / group] as usize + 1);
        let keys = seen.iter().copied().fold(0, usize::max);
        let stride = keys.next_multiple_of(BLOCK);
        // What earlier tiles left behind is overwritten whole.
        if scores.len() < R * stride {
            scores.resize(R * stride, 0.0);
        }
        self.scores::<R>(row, stride, scores);
        let mut shares = [0f32; R];
        for (r, share) in shares.iter_mut().enumerate() {
            *share = softmax(&mut scores[r * stride..(r + 1) * stride], seen[r]);
        }
        self.weigh::<R>(keys, scores, &shares, out);
    }

    /// Dot products of a tile with all keys of the blocks that hold the first `stride` tokens.
    #[inline(always)]
    fn scores<const R: usize>(&self, row: usize, stride: usize, scores: &mut [f32]) {
        let (dim, group) = (self.pool.shape().dim, self.group());
        let q: [&[f32]; R] = std::array::from_fn(|r| {
            let (position, head) = ((row + r) / group, (row + r) % group);
            &self.q[(position * self.heads + self.kv_head * group + head) * dim..][..dim]
        });
        for (block, slot) in self.slots[..stride / BLOCK].iter().enumerate() {
            let keys = self.pool.keys(*slot, self.layer, self.kv_head);
            let sums = dots([[0.0; BLOCK]; R], q, keys.as_chunks::<BLOCK>().0);
            for (r, sums) in sums.iter().enumerate() {
                scores[r * stride + block * BLOCK..][..BLOCK].copy_from_slice(sums);
            }
        }
    }

    /// `out = share · Σ weight · value` over the first `keys` keys.
    #[inline(always)]
    fn weigh<const R: usize>(
        &self,
        keys: usize,
        weights: &[f32],
        shares: &[f32; R],
        out: &mut [f32],
    ) {
        let dim = self.pool.shape().dim;
        let stride = keys.next_multiple_of(BLOCK);
        for (part, from) in (0..dim).step_by(VALUES).enumerate() {
            let mut sums = [[0f32; VALUES]; R];
            for (block, slot) in self.slots[..stride / BLOCK].iter().enumerate() {
                let first = block * BLOCK;
                let here = BLOCK.min(keys - first);
                let weights = std::array::from_fn(|r| &weights[r * stride + first..][..here]);
                let values = self.pool.values(*slot, self.layer, self.kv_head, part);
                sums = dots(sums, weights, &values.as_chunks::<VALUES>().0[..here]);
            }
            for (r, sums) in sums.iter().enumerate() {
                for (place, sum) in out[r * dim + from..][..VALUES].iter_mut().zip(sums) {
                    *place = sum * shares[r];
                }
            }
        }
    }
}

/// Turns scores into weights relative to the largest, zero beyond the first `seen`; returns one
/// over the sum of the weights.
#[inline(always)]
fn softmax(scores: &mut [f32], seen: usize) -> f32 {
    let largest = max(&scores[..seen]);
    for score in scores.iter_mut() {
        *score = exp(*score - largest);
    }
    scores[seen..].fill(0.0);
    1.0 / sum(scores)
}
