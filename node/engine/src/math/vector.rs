//! Element-wise work and short reductions.

#[cfg(test)]
mod tests;

use super::simd::Vectorised;

/// Terms of a sum are dealt out to so many partial sums, whatever the processor's vectors.
const LANES_FIXED: usize = 16;

/// e^x to within two units in the last place, for finite `x` and −∞ alike at least 1e-38.
///
/// Range reduction by ln 2 in two parts and a polynomial of degree five, with the coefficients of
/// Cephes' `expf` (S. Moshier, public domain). No table, no branch: it vectorises.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // Adding this rounds to an integer and leaves it in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let x = if x > 88.0 { 88.0 } else { x };
    let x = if x < -87.0 { -87.0 } else { x };
    let rounded = x * std::f32::consts::LOG2_E + ROUND;
    let n = rounded - ROUND;
    let r = x - n * 0.693_359_4 - n * -2.121_944_4e-4;
    let p = 1.987_569_2e-4 * r + 1.398_199_9e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_5e-1;
    let p = p * r + 0.5;
    let p = p * (r * r) + r + 1.0;
    p * f32::from_bits((rounded.to_bits() << 23).wrapping_add(0x3F80_0000))
}

/// Adds up the partial sums in a fixed tree.
#[inline(always)]
fn fold(mut lanes: [f32; LANES_FIXED]) -> f32 {
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            lanes[i] += lanes[i + half];
        }
    }
    lanes[0]
}

/// Sum of `values`; the length must be a multiple of 16.
#[inline(always)]
pub(crate) fn sum(values: &[f32]) -> f32 {
    let mut lanes = [0f32; LANES_FIXED];
    for chunk in values.chunks_exact(LANES_FIXED) {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane += value;
        }
    }
    fold(lanes)
}

/// Largest of `values`, −∞ when there are none.
#[inline(always)]
pub(crate) fn max(values: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES_FIXED];
    let chunks = values.chunks_exact(LANES_FIXED);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane = if *value > *lane { *value } else { *lane };
        }
    }
    let larger = |a: f32, b: &f32| if *b > a { *b } else { a };
    rest.iter().fold(lanes.iter().fold(f32::NEG_INFINITY, larger), larger)
}

/// Root-mean-square norm of one row, in place: `x · weight / sqrt(mean(x²) + eps)`.
#[inline(always)]
fn rms_norm_row(row: &mut [f32], weight: &[f32], eps: f32) {
    let mut lanes = [0f32; LANES_FIXED];
    let chunks = row.chunks_exact(LANES_FIXED);
    for (lane, value) in lanes.iter_mut().zip(chunks.remainder()) {
        *lane += value * value;
    }
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane += value * value;
        }
    }
    let scale = 1.0 / (fold(lanes) / row.len() as f32 + eps).sqrt();
    for (value, weight) in row.iter_mut().zip(weight) {
        *value = *value * scale * weight;
    }
}

/// RMS norm of each row of `rows`, in place; a row is as long as `weight`.
pub(crate) struct RmsNorm<'a> {
    pub(crate) rows: &'a mut [f32],
    pub(crate) weight: &'a [f32],
    pub(crate) eps: f32,
}

impl Vectorised for RmsNorm<'_> {
    type Out = ();

    #[inline(always)]
    fn run<const LANES: usize>(self) {
        for row in self.rows.chunks_exact_mut(self.weight.len()) {
            rms_norm_row(row, self.weight, self.eps);
        }
    }
}

/// `silu(gate) · up` for rows that hold gate and up side by side, `width` each.
pub(crate) struct GatedSilu<'a> {
    pub(crate) gate_up: &'a [f32],
    pub(crate) width: usize,
    pub(crate) out: &'a mut [f32],
}

impl Vectorised for GatedSilu<'_> {
    type Out = ();

    #[inline(always)]
    fn run<const LANES: usize>(self) {
        let rows = self.gate_up.chunks_exact(2 * self.width);
        for (row, out) in rows.zip(self.out.chunks_exact_mut(self.width)) {
            let (gate, up) = row.split_at(self.width);
            for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
                *out = gate / (1.0 + exp(-gate)) * up;
            }
        }
    }
}

/// Adds `delta` to `x`.
pub(crate) struct Add<'a> {
    pub(crate) x: &'a mut [f32],
    pub(crate) delta: &'a [f32],
}

impl Vectorised for Add<'_> {
    type Out = ();

    #[inline(always)]
    fn run<const LANES: usize>(self) {
        for (x, delta) in self.x.iter_mut().zip(self.delta) {
            *x += delta;
        }
    }
}

/// Turns each head of one row by its position's angles: dimension `i` is paired with
/// `i + dim / 2`. `cos` and `sin` hold `dim / 2` values.
#[inline(always)]
pub(crate) fn rotate(heads: &mut [f32], cos: &[f32], sin: &[f32]) {
    let half = cos.len();
    for head in heads.chunks_exact_mut(2 * half) {
        let (low, high) = head.split_at_mut(half);
        for (((low, high), cos), sin) in low.iter_mut().zip(high).zip(cos).zip(sin) {
            let (a, b) = (*low, *high);
            *low = a * cos - b * sin;
            *high = b * cos + a * sin;
        }
    }
}
