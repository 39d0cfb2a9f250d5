//! Products of activations with fixed weights.

#[cfg(test)]
mod tests;

use super::dots::dots;
use super::parallel::Threads;
use super::simd::{Vectorised, widest};
use std::ops::Range;

/// Output columns that are stored and computed together.
const PANEL: usize = 32;

/// A weight matrix, stored in panels of 32 outputs: within a panel the 32 weights of one input
/// lie side by side. A single row reads the panels once from end to end; many rows reuse a panel
/// while it is in the cache. Nothing is repacked at run time.
pub(crate) struct Linear {
    panels: Vec<f32>,
    inputs: usize,
    outputs: usize,
}

impl Linear {
    /// Packs matrices of `[outputs, inputs]`, row by row as model files hold them, one below the
    /// other. Each must be a whole number of rows.
    pub(crate) fn pack(inputs: usize, matrices: &[&[f32]]) -> Self {
        let rows = || matrices.iter().flat_map(|matrix| matrix.chunks_exact(inputs));
        let outputs = rows().count();
        let mut panels = vec![0f32; outputs.div_ceil(PANEL) * PANEL * inputs];
        kernels::prefer_huge_pages(&mut panels);
        for (output, row) in rows().enumerate() {
            let panel = output / PANEL * PANEL * inputs;
            for (input, weight) in row.iter().enumerate() {
                panels[panel + input * PANEL + output % PANEL] = *weight;
            }
        }
        Self { panels, inputs, outputs }
    }

    /// Outputs of one row.
    pub(crate) fn outputs(&self) -> usize {
        self.outputs
    }

    /// Copies the weights of one output, `inputs` of them, to `into`.
    pub(crate) fn row(&self, output: usize, into: &mut [f32]) {
        let panel = &self.panels[output / PANEL * PANEL * self.inputs..];
        let weights = panel.iter().skip(output % PANEL).step_by(PANEL);
        for (place, weight) in into.iter_mut().zip(weights) {
            *place = *weight;
        }
    }

    /// `x · weightsᵀ` for each row of `x` (`inputs` long), written to `out` (`outputs` each).
    pub(crate) fn apply(&self, x: &[f32], out: &mut Vec<f32>, threads: Threads) {
        let rows = x.len() / self.inputs;
        out.clear();
        out.resize(rows * self.outputs, 0.0);
        let panels = self.outputs.div_ceil(PANEL);
        let work = rows * self.inputs * self.outputs;
        if threads.count(panels, work) == 1 {
            widest(Multiply { linear: self, x, panels: 0..panels, out });
            return;
        }
        let parts = threads.split(panels, work, |range| {
            let columns = self.columns(&range);
            let mut part = vec![0f32; rows * columns.len()];
            widest(Multiply { linear: self, x, panels: range, out: &mut part });
            (columns, part)
        });
        for (columns, part) in parts {
            let rows = out.chunks_exact_mut(self.outputs);
            for (row, part) in rows.zip(part.chunks_exact(columns.len())) {
                row[columns.clone()].copy_from_slice(part);
            }
        }
    }

    fn columns(&self, panels: &Range<usize>) -> Range<usize> {
        panels.start * PANEL..(panels.end * PANEL).min(self.outputs)
    }
}

struct Multiply<'a> {
    linear: &'a Linear,
    x: &'a [f32],
    panels: Range<usize>,
    out: &'a mut [f32],
}

impl Vectorised for Multiply<'_> {
    type Out = ();

    /// A panel against all rows, then the next panel. Rows are taken in tiles whose sums fit into
    /// the vector registers.
    #[inline(always)]
    fn run<const LANES: usize>(self) {
        let inputs = self.linear.inputs;
        let rows = self.x.len() / inputs;
        let columns = self.linear.columns(&self.panels);
        for panel in self.panels {
            let weights = &self.linear.panels[panel * PANEL * inputs..][..PANEL * inputs];
            let panel = Panel {
                x: self.x,
                inputs,
                weights: weights.as_chunks::<PANEL>().0,
                from: panel * PANEL - columns.start,
                stride: columns.len(),
            };
            let mut row = 0;
            if LANES >= 16 {
                row = panel.tiles::<4>(row, rows, self.out);
            }
            if LANES >= 8 {
                row = panel.tiles::<2>(row, rows, self.out);
            }
            panel.tiles::<1>(row, rows, self.out);
        }
    }
}

/// One panel and the rows it is multiplied with.
struct Panel<'a> {
    x: &'a [f32],
    inputs: usize,
    weights: &'a [[f32; PANEL]],
    /// Column of the output where the panel begins.
    from: usize,
    /// Columns of the output.
    stride: usize,
}

impl Panel<'_> {
    /// Computes rows from `row` on, `R` at a time, as long as `R` are left; returns the next row.
    #[inline(always)]
    fn tiles<const R: usize>(&self, mut row: usize, rows: usize, out: &mut [f32]) -> usize {
        // The last panel is cut where the outputs end.
        let width = PANEL.min(self.stride - self.from);
        while row + R <= rows {
            let x = std::array::from_fn(|r| &self.x[(row + r) * self.inputs..][..self.inputs]);
            let sums = dots([[0.0; PANEL]; R], x, self.weights);
            for (r, sums) in sums.iter().enumerate() {
                let place = (row + r) * self.stride + self.from;
                out[place..place + width].copy_from_slice(&sums[..width]);
            }
            row += R;
        }
        row
    }
}
