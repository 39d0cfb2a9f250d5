//! How long a step takes.

mod fit;
#[cfg(test)]
mod tests;

pub use fit::{FitError, Sample};

use protocol::time::Span;
use serde::{Deserialize, Serialize};

/// The timing model of a step, in milliseconds.
///
/// ```text
/// n       prompt tokens that the step computes, over all sequences
/// pairs   Σ over sequences of (new prompt tokens × tokens before them)
/// u       min(1, Σ contexts of the decoding sequences ÷ capacity of the pool), tokens
/// prefill = 0 if n = 0, else prefill_quadratic·n² + prefill_linear·n + prefill_base
///           + attention·pairs
/// decode  = 0 if nobody decodes, else
///           max(decode_min, decode_quadratic·u² + decode_linear·u + decode_base)
/// step    = (prefill + decode ÷ decode_speedup_ratio) ÷ speedup_ratio · (1 ± jitter)
/// ```
///
/// Source: the polynomials and their coefficients are those of NVIDIA Dynamo's mocker
/// (`aisimulate-core`, its default without a profile: a GPU of the data-centre class with a model of
/// about 8 B parameters). Theirs does not charge for the context that new tokens look back at; the
/// attention term does. Its default is twice the quadratic coefficient, because a prompt of n tokens
/// has n²/2 pairs: so the quadratic cost of a prompt is the same however it is cut into chunks.
///
/// [`Timing::fit`] finds the prefill coefficients from measurements of another engine. As a TOML
/// table each field is a key of its own and may be left out.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct Timing {
    /// Milliseconds per square of a step's prompt tokens.
    pub prefill_quadratic_ms: f64,
    /// Milliseconds per prompt token.
    pub prefill_linear_ms: f64,
    /// Milliseconds per step with prompt tokens.
    pub prefill_base_ms: f64,
    /// Milliseconds per new prompt token and token before it.
    pub attention_ms: f64,
    /// Milliseconds per square of the pool's utilisation (0 to 1).
    pub decode_quadratic_ms: f64,
    /// Milliseconds per utilisation of the pool (0 to 1).
    pub decode_linear_ms: f64,
    /// Milliseconds per decode step with an empty pool.
    pub decode_base_ms: f64,
    /// The shortest decode step.
    pub decode_min_ms: f64,
    /// Everything is so many times faster.
    pub speedup_ratio: f64,
    /// Decoding is so many times faster again.
    pub decode_speedup_ratio: f64,
    /// Steps vary by up to this share, evenly and seeded; 0 to 0.9.
    pub jitter: f64,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            prefill_quadratic_ms: 4.209_989e-7,
            prefill_linear_ms: 1.518_344e-2,
            prefill_base_ms: 16.501_42,
            attention_ms: 2.0 * 4.209_989e-7,
            decode_quadratic_ms: -25.74,
            decode_linear_ms: 54.01,
            decode_base_ms: 5.74,
            decode_min_ms: 1.0,
            speedup_ratio: 1.0,
            decode_speedup_ratio: 1.0,
            jitter: 0.0,
        }
    }
}

/// What makes a timing useless.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("timing: {field} is {value}, must be {must}")]
pub struct TimingError {
    /// Which field.
    pub field: &'static str,
    /// Its value.
    pub value: f64,
    /// What it must be.
    pub must: &'static str,
}

/// Prompt tokens of the warm-up prompt from which an engine knows its prefill rate.
const WARM_UP: u32 = 2048;

impl Timing {
    /// Milliseconds of prompt computation: `new` prompt tokens in one step with `pairs` pairs of a
    /// new token and a token before the step. Without the speed-up.
    pub fn prefill_ms(&self, new: u64, pairs: u64) -> f64 {
        if new == 0 {
            return 0.0;
        }
        let n = new as f64;
        self.prefill_quadratic_ms * n * n
            + self.prefill_linear_ms * n
            + self.prefill_base_ms
            + self.attention_ms * pairs as f64
    }

    /// Milliseconds of a decode step at a utilisation of the pool from 0 to 1. Without the speed-up.
    pub fn decode_ms(&self, utilisation: f64) -> f64 {
        let u = utilisation.clamp(0.0, 1.0);
        let ms = self.decode_quadratic_ms * u * u + self.decode_linear_ms * u + self.decode_base_ms;
        ms.max(self.decode_min_ms)
    }

    /// How long a step takes: prompt part as in [`Self::prefill_ms`], and a decode part when
    /// `utilisation` is given. Without jitter; never zero, so that time goes on.
    pub fn step(&self, new: u64, pairs: u64, utilisation: Option<f64>) -> Span {
        let decode = utilisation.map_or(0.0, |u| self.decode_ms(u) / self.decode_speedup_ratio);
        let ms = (self.prefill_ms(new, pairs) + decode) / self.speedup_ratio;
        Span(Span::from_ms(ms).0.max(1))
    }

    /// Prompt tokens per second at short context, as an engine measures it with a warm-up prompt of
    /// up to 2,048 tokens; its attention is left out.
    pub fn prefill_rate(&self, max_batched_tokens: u32) -> f64 {
        let n = f64::from(WARM_UP.min(max_batched_tokens).max(1));
        let ms = (self.prefill_linear_ms * n + self.prefill_base_ms) / self.speedup_ratio;
        if ms > 0.0 { n * 1e3 / ms } else { 1e9 }
    }

    /// Extra nanoseconds per new token and context token.
    pub fn attention_ns(&self) -> f64 {
        self.attention_ms * 1e6 / self.speedup_ratio
    }

    /// Finds what makes it useless.
    pub fn check(&self) -> Result<(), TimingError> {
        let not_negative = [
            ("prefill_quadratic_ms", self.prefill_quadratic_ms),
            ("prefill_linear_ms", self.prefill_linear_ms),
            ("prefill_base_ms", self.prefill_base_ms),
            ("attention_ms", self.attention_ms),
            ("decode_min_ms", self.decode_min_ms),
        ];
        let finite = [
            ("decode_quadratic_ms", self.decode_quadratic_ms),
            ("decode_linear_ms", self.decode_linear_ms),
            ("decode_base_ms", self.decode_base_ms),
        ];
        let ratios = [
            ("speedup_ratio", self.speedup_ratio),
            ("decode_speedup_ratio", self.decode_speedup_ratio),
        ];
        let wrong = |fields: &[(&'static str, f64)], must, good: fn(f64) -> bool| {
            let found = fields.iter().find(|(_, value)| !good(*value))?;
            Some(TimingError { field: found.0, value: found.1, must })
        };
        let found = wrong(&not_negative, "0 or more", |v| v.is_finite() && v >= 0.0)
            .or_else(|| wrong(&finite, "a number", f64::is_finite))
            .or_else(|| wrong(&ratios, "above 0", |v| v.is_finite() && v > 0.0))
            .or_else(|| {
                wrong(&[("jitter", self.jitter)], "0 to 0.9", |v| (0.0..=0.9).contains(&v))
            });
        found.map_or(Ok(()), Err)
    }
}
