//! The decoder: rows of tokens at positions in, logits out; keys and values go to the pool.

mod load;
#[cfg(test)]
mod tests;

pub(crate) use load::load;

use crate::math::attention::{Query, attend};
use crate::math::linear::Linear;
use crate::math::parallel::Threads;
use crate::math::simd::widest;
use crate::math::vector::{Add, GatedSilu, RmsNorm, rotate};
use crate::pool::{BLOCK, KvPool};
use protocol::hash::Token;

/// Llama or Qwen3, dense, in f32.
pub(crate) struct Decoder {
    heads: usize,
    kv_heads: usize,
    dim: usize,
    hidden: usize,
    intermediate: usize,
    vocab: usize,
    eps: f32,
    layers: Vec<Layer>,
    norm: Vec<f32>,
    /// The output layer, and the embedding too when they are tied.
    head: Linear,
    /// `[vocab, hidden]`, row by row, when not tied.
    embedding: Option<Vec<f32>>,
    rope: Rope,
    threads: Threads,
}

struct Layer {
    attention_norm: Vec<f32>,
    /// Queries, keys and values, one below the other.
    qkv: Linear,
    /// Norms of each head's query and key (Qwen3).
    qk_norms: Option<[Vec<f32>; 2]>,
    output: Linear,
    mlp_norm: Vec<f32>,
    /// Gate and up, one below the other.
    gate_up: Linear,
    down: Linear,
}

/// Cosines and sines of each position's rotary angles, half a head each.
struct Rope {
    half: usize,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl Rope {
    fn new(inv_freq: &[f32], positions: usize) -> Self {
        let angles =
            || (0..positions).flat_map(|p| inv_freq.iter().map(move |f| f64::from(p as f32 * f)));
        Self {
            half: inv_freq.len(),
            cos: angles().map(|angle| angle.cos() as f32).collect(),
            sin: angles().map(|angle| angle.sin() as f32).collect(),
        }
    }

    fn at(&self, position: u32) -> (&[f32], &[f32]) {
        let range = position as usize * self.half..(position as usize + 1) * self.half;
        (&self.cos[range.clone()], &self.sin[range])
    }
}

/// One sequence's part of a step.
pub(crate) struct Slice<'a> {
    /// New tokens.
    pub(crate) tokens: &'a [Token],
    /// Their positions, ascending; all keys before each must be in the pool or in this slice.
    pub(crate) positions: &'a [u32],
    /// For each token, whether its key and value are written. A token whose block is shared is
    /// computed for its logits only.
    pub(crate) write: &'a [bool],
    /// The sequence's slots, one per block.
    pub(crate) slots: &'a [usize],
    /// Whether the logits after the last token are wanted.
    pub(crate) logits: bool,
}

/// Buffers kept from step to step.
#[derive(Default)]
pub(crate) struct Scratch {
    x: Vec<f32>,
    normed: Vec<f32>,
    qkv: Vec<f32>,
    q: Vec<f32>,
    attended: Vec<f32>,
    delta: Vec<f32>,
    gate_up: Vec<f32>,
    gated: Vec<f32>,
    logits: Vec<f32>,
}

impl Decoder {
    pub(crate) fn vocab(&self) -> usize {
        self.vocab
    }

    /// Runs one step. Answers the logits of the slices that want them, `vocab` each, in order.
    pub(crate) fn forward<'s>(
        &self,
        pool: &mut KvPool,
        slices: &[Slice<'_>],
        scratch: &'s mut Scratch,
    ) -> &'s [f32] {
        let s = scratch;
        s.x.clear();
        for token in slices.iter().flat_map(|slice| slice.tokens) {
            self.embed(*token, &mut s.x);
        }
        let last = self.layers.len().saturating_sub(1);
        for (index, layer) in self.layers.iter().enumerate() {
            self.project(layer, index, pool, slices, s);
            let queries = if index < last { whole(slices) } else { ends(slices) };
            self.attend(layer, index, pool, &queries, s);
            self.mlp(layer, s);
        }
        widest(RmsNorm { rows: &mut s.x, weight: &self.norm, eps: self.eps });
        self.head.apply(&s.x, &mut s.logits, self.threads);
        &s.logits
    }

    fn embed(&self, token: Token, x: &mut Vec<f32>) {
        let from = x.len();
        x.resize(from + self.hidden, 0.0);
        let into = &mut x[from..];
        match &self.embedding {
            Some(rows) => {
                into.copy_from_slice(&rows[token.0 as usize * self.hidden..][..self.hidden]);
            }
            None => self.head.row(token.0 as usize, into),
        }
    }

    /// Queries, keys and values of all rows; keys and values go to the pool, queries to `s.q`.
    fn project(
        &self,
        layer: &Layer,
        index: usize,
        pool: &mut KvPool,
        slices: &[Slice<'_>],
        s: &mut Scratch,
    ) {
        s.normed.clone_from(&s.x);
        widest(RmsNorm { rows: &mut s.normed, weight: &layer.attention_norm, eps: self.eps });
        layer.qkv.apply(&s.normed, &mut s.qkv, self.threads);
        s.q.clear();
        let scale = 1.0 / (self.dim as f32).sqrt();
        let mut rows = s.qkv.chunks_exact_mut(layer.qkv.outputs());
        for slice in slices {
            for ((position, write), row) in slice.positions.iter().zip(slice.write).zip(&mut rows) {
                let (q, rest) = row.split_at_mut(self.heads * self.dim);
                let (k, v) = rest.split_at_mut(self.kv_heads * self.dim);
                if let Some([q_norm, k_norm]) = &layer.qk_norms {
                    widest(RmsNorm { rows: q, weight: q_norm, eps: self.eps });
                    widest(RmsNorm { rows: k, weight: k_norm, eps: self.eps });
                }
                let (cos, sin) = self.rope.at(*position);
                rotate(q, cos, sin);
                rotate(k, cos, sin);
                s.q.extend(q.iter().map(|element| element * scale));
                if *write {
                    let position = *position as usize;
                    let slot = slice.slots[position / BLOCK];
                    pool.write(slot, index, position % BLOCK, k, v);
                }
            }
        }
    }

    /// Attention and its output layer, added to the rows that `queries` name; others are dropped.
    fn attend(
        &self,
        layer: &Layer,
        index: usize,
        pool: &KvPool,
        queries: &[Wanted<'_>],
        s: &mut Scratch,
    ) {
        let width = self.heads * self.dim;
        keep_rows(&mut s.x, self.hidden, queries);
        let asked: Vec<Query<'_>> = queries
            .iter()
            .map(|wanted| Query {
                q: &s.q[wanted.first * width..][..wanted.positions.len() * width],
                positions: wanted.positions,
                slots: wanted.slots,
            })
            .collect();
        let rows: usize = queries.iter().map(|wanted| wanted.positions.len()).sum();
        s.attended.clear();
        s.attended.resize(rows * width, 0.0);
        attend(pool, index, self.heads, &asked, &mut s.attended, self.threads);
        layer.output.apply(&s.attended, &mut s.delta, self.threads);
        widest(Add { x: &mut s.x, delta: &s.delta });
    }

    fn mlp(&self, layer: &Layer, s: &mut Scratch) {
        s.normed.clone_from(&s.x);
        widest(RmsNorm { rows: &mut s.normed, weight: &layer.mlp_norm, eps: self.eps });
        layer.gate_up.apply(&s.normed, &mut s.gate_up, self.threads);
        s.gated.clear();
        s.gated.resize(s.gate_up.len() / 2, 0.0);
        widest(GatedSilu { gate_up: &s.gate_up, width: self.intermediate, out: &mut s.gated });
        layer.down.apply(&s.gated, &mut s.delta, self.threads);
        widest(Add { x: &mut s.x, delta: &s.delta });
    }
}

/// Rows of a step whose attention is wanted.
struct Wanted<'a> {
    /// Index of the first row.
    first: usize,
    positions: &'a [u32],
    slots: &'a [usize],
}

/// All rows.
fn whole<'a>(slices: &[Slice<'a>]) -> Vec<Wanted<'a>> {
    let mut first = 0;
    let wanted = |slice: &Slice<'a>| {
        let here = first;
        first += slice.positions.len();
        Wanted { first: here, positions: slice.positions, slots: slice.slots }
    };
    slices.iter().map(wanted).collect()
}

/// The last row of each slice that wants logits: after the last layer's keys and values nothing
/// else is needed.
fn ends<'a>(slices: &[Slice<'a>]) -> Vec<Wanted<'a>> {
    let last = |(slice, rows): (&Slice<'a>, Wanted<'a>)| {
        let before = slice.positions.len().checked_sub(1).filter(|_| slice.logits)?;
        let positions = &slice.positions[before..];
        Some(Wanted { first: rows.first + before, positions, slots: slice.slots })
    };
    slices.iter().zip(whole(slices)).filter_map(last).collect()
}

/// Moves the wanted rows of `x` together, in order, and drops the others.
fn keep_rows(x: &mut Vec<f32>, width: usize, wanted: &[Wanted<'_>]) {
    let mut kept = 0;
    for rows in wanted {
        let from = rows.first * width;
        let len = rows.positions.len() * width;
        x.copy_within(from..from + len, kept);
        kept += len;
    }
    x.truncate(kept);
}
