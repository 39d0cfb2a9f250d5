//! Calibration: coefficients from measurements, by least squares.

use super::Timing;

/// One measured prefill step of one sequence.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// Prompt tokens computed.
    pub new: u32,
    /// Tokens before them that were cached.
    pub context: u32,
    /// How long it took, in milliseconds.
    pub ms: f64,
}

/// Why a timing cannot be fitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FitError {
    /// Nothing to fit.
    #[error("no sample has prompt tokens: measure prompts of several lengths and contexts")]
    Empty,
    /// A sample is not a number of milliseconds.
    #[error("a sample's time is negative or not a number")]
    NotATime,
}

/// Columns: base, linear, quadratic, attention.
const TERMS: usize = 4;
type Row = [f64; TERMS];
type Matrix = [Row; TERMS];

/// Scales that bring the columns to about one size, so that the normal equations stay sound.
const SCALE: Row = [1.0, 1e3, 1e6, 1e7];
/// A pivot below this part of its column's own square sum says that the column tells nothing new.
const INDEPENDENT: f64 = 1e-9;

impl Timing {
    /// Finds the prefill coefficients that fit `samples` best (least squares, none negative: a
    /// coefficient that would be is 0 and the rest is fitted again). A term about which the samples
    /// say nothing, such as attention when all had the same context of 0, is 0. Decoding and ratios
    /// are the defaults.
    ///
    /// # Errors
    /// No sample with prompt tokens, or times that are none.
    pub fn fit(samples: &[Sample]) -> Result<Self, FitError> {
        if samples.iter().any(|sample| !(sample.ms.is_finite() && sample.ms >= 0.0)) {
            return Err(FitError::NotATime);
        }
        let rows: Vec<(Row, f64)> =
            samples.iter().filter(|sample| sample.new > 0).map(terms).collect();
        if rows.is_empty() {
            return Err(FitError::Empty);
        }
        let mut used = [true; TERMS];
        let solution = loop {
            let solution = solve(&rows, &mut used);
            let least = solution.iter().enumerate().filter(|(_, value)| **value < 0.0);
            match least.min_by(|a, b| a.1.total_cmp(b.1)) {
                None => break solution,
                Some((column, _)) => used.iter_mut().skip(column).take(1).for_each(|u| *u = false),
            }
        };
        let [base, linear, quadratic, attention] = solution;
        let [scale_base, scale_linear, scale_quadratic, scale_attention] = SCALE;
        Ok(Self {
            prefill_base_ms: base / scale_base,
            prefill_linear_ms: linear / scale_linear,
            prefill_quadratic_ms: quadratic / scale_quadratic,
            attention_ms: attention / scale_attention,
            ..Self::default()
        })
    }
}

fn terms(sample: &Sample) -> (Row, f64) {
    let n = f64::from(sample.new);
    let plain = [1.0, n, n * n, n * f64::from(sample.context)];
    let mut row = [0.0; TERMS];
    row.iter_mut().zip(plain).zip(SCALE).for_each(|((place, value), scale)| *place = value / scale);
    (row, sample.ms)
}

/// Solves the normal equations for the used columns; columns that depend on earlier ones are taken
/// out of `used`, and unused ones are 0.
fn solve(rows: &[(Row, f64)], used: &mut [bool; TERMS]) -> Row {
    let mut matrix: Matrix = [[0.0; TERMS]; TERMS];
    let mut right: Row = [0.0; TERMS];
    for (row, ms) in rows {
        for ((line, place), a) in matrix.iter_mut().zip(&mut right).zip(row) {
            *place += a * ms;
            line.iter_mut().zip(row).for_each(|(cell, b)| *cell += a * b);
        }
    }
    let own: Vec<f64> = (0..TERMS).map(|i| at(matrix.get(i), i)).collect();
    let mut lines: Vec<(Row, f64)> = matrix.into_iter().zip(right).collect();
    for ((column, used), own) in used.iter_mut().enumerate().zip(own) {
        let pivot = at(lines.get(column).map(|(line, _)| line), column);
        *used = *used && own > 0.0 && pivot > INDEPENDENT * own;
        if *used {
            eliminate(&mut lines, column, pivot);
        }
    }
    let mut solution = [0.0; TERMS];
    for (column, place) in solution.iter_mut().enumerate() {
        if let Some((line, right)) = lines.get(column)
            && used.get(column) == Some(&true)
        {
            *place = right / at(Some(line), column);
        }
    }
    solution
}

fn at(line: Option<&Row>, column: usize) -> f64 {
    line.and_then(|line| line.get(column)).copied().unwrap_or(0.0)
}

/// One column of Gauss-Jordan elimination: takes it out of every other line.
fn eliminate(lines: &mut [(Row, f64)], column: usize, pivot: f64) {
    let Some((pivot_line, pivot_right)) = lines.get(column).copied() else { return };
    for (_, (line, right)) in lines.iter_mut().enumerate().filter(|(i, _)| *i != column) {
        let factor = at(Some(line), column) / pivot;
        line.iter_mut().zip(pivot_line).for_each(|(cell, value)| *cell -= factor * value);
        *right -= factor * pivot_right;
    }
}
