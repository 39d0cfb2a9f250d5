//! How fast the engine is, as measured.

#[cfg(test)]
mod tests;

use std::time::Duration;

/// Weight of a new sample in the smoothed figures.
const WEIGHT: f64 = 0.2;
/// A new sample counts as at most this many times the smoothed figure, and at least this part of
/// it. A stall (a stopped or swapped-out process) is no news about the engine, and an idle engine
/// would have nothing to forget it with. So one sample moves a figure to between 0.85 and 1.6 times
/// what it was; a lasting change still gets through, a hundredfold one within about 30 steps.
const OUTLIER: f64 = 4.0;
/// Seconds below which a figure bounds new samples no further: from zero it could never grow.
const BOUND_MIN: f64 = 1e-10;
/// Steps with fewer prompt tokens say little about the prefill rate.
const ROWS_MIN: usize = 16;
/// Up to so much context per row on average, attention is a small part of a step.
const SHORT: u64 = 256;
/// Tokens whose intervals are remembered.
const INTERVALS: usize = 256;

/// What one step did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// Prompt tokens computed.
    pub(crate) prefill: usize,
    /// Generated tokens fed back.
    pub(crate) decode: usize,
    /// Sum over all rows of the keys they saw.
    pub(crate) context: u64,
    /// How long it took.
    pub(crate) elapsed: Duration,
}

/// Smoothed rates and the distribution of intervals between tokens.
#[derive(Default)]
pub(crate) struct Meter {
    /// Seconds per prompt token without attention.
    token_s: Option<f64>,
    /// Seconds per row and key.
    key_s: Option<f64>,
    /// Seconds per decode step.
    decode_s: Option<f64>,
    /// The last intervals, oldest overwritten first.
    intervals: Vec<Duration>,
    oldest: usize,
}

fn smooth(value: &mut Option<f64>, sample: f64) {
    *value = Some(value.map_or(sample, |value| {
        let most = value.max(BOUND_MIN) * OUTLIER;
        value + WEIGHT * (sample.min(most).max(value / OUTLIER) - value)
    }));
}

impl Meter {
    /// Takes a step into account. Steps with little context tell the cost of a token, the others
    /// what the context adds to it.
    pub(crate) fn step(&mut self, step: Step) {
        let rows = step.prefill + step.decode;
        let elapsed = step.elapsed.as_secs_f64();
        if step.prefill == 0 && step.decode > 0 {
            smooth(&mut self.decode_s, elapsed);
        }
        if step.prefill < ROWS_MIN {
            return;
        }
        let attention = self.key_s.unwrap_or(0.0) * step.context as f64;
        if step.context <= SHORT * rows as u64 {
            smooth(&mut self.token_s, (elapsed - attention).max(elapsed * 0.1) / rows as f64);
        } else if let Some(token_s) = self.token_s {
            let rest = (elapsed - token_s * rows as f64).max(0.0);
            smooth(&mut self.key_s, rest / step.context as f64);
        }
    }

    /// Takes the time between two tokens of one sequence into account.
    pub(crate) fn interval(&mut self, interval: Duration) {
        if self.intervals.len() < INTERVALS {
            self.intervals.push(interval);
        } else if let Some(place) = self.intervals.get_mut(self.oldest) {
            *place = interval;
        }
        self.oldest = (self.oldest + 1) % INTERVALS;
    }

    /// The 99th percentile of the last intervals between tokens.
    pub(crate) fn interval_p99(&self) -> Duration {
        let mut sorted = self.intervals.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() * 99 / 100).copied().unwrap_or_default()
    }

    /// Prompt tokens per second at short context; 0 until measured.
    pub(crate) fn prefill_rate(&self) -> f32 {
        self.token_s.filter(|s| *s > 0.0).map_or(0.0, |s| (1.0 / s) as f32)
    }

    /// Extra nanoseconds per new token and context token.
    pub(crate) fn attention_ns(&self) -> f32 {
        (self.key_s.unwrap_or(0.0) * 1e9) as f32
    }

    /// Milliseconds per decode step; 0 until measured.
    pub(crate) fn decode_ms(&self) -> f32 {
        (self.decode_s.unwrap_or(0.0) * 1e3) as f32
    }
}
