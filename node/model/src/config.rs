//! What the decoder must know about the model, the same for both file formats.

mod gguf;
mod json;
#[cfg(test)]
mod tests;

pub(crate) use gguf::{FromTensors, from_gguf};
pub(crate) use json::from_json;

use crate::ModelError;
use std::path::Path;

/// The decoder families that can be run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arch {
    /// Llama 2 and 3 and their kin (SmolLM2): no biases, no norms on queries and keys.
    Llama,
    /// Qwen3, dense: as Llama, with an RMS norm on each head's query and key.
    Qwen3,
}

impl Arch {
    /// As in GGUF's `general.architecture`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen3 => "qwen3",
        }
    }
}

/// How rotary frequencies are stretched for long contexts.
#[derive(Clone, PartialEq, Debug)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// All frequencies divided by a factor.
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// Llama 3.1's rule: low frequencies divided, high ones kept, a ramp in between.
    Llama3 {
        /// Divisor of low frequencies.
        factor: f64,
        /// Wavelengths above `original_context / low_freq_factor` are divided.
        low_freq_factor: f64,
        /// Wavelengths below `original_context / high_freq_factor` are kept.
        high_freq_factor: f64,
        /// Context length before stretching, in tokens.
        original_context: usize,
    },
    /// One divisor per frequency, as GGUF files carry in `rope_freqs.weight`.
    Factors(Vec<f32>),
}

/// Sizes and constants of a decoder.
#[derive(Clone, PartialEq, Debug)]
pub struct ModelConfig {
    /// Family.
    pub arch: Arch,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Decoder layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of one head; even.
    pub head_dim: usize,
    /// Width of the feed-forward layer.
    pub intermediate: usize,
    /// Rows of the embedding; at least the tokenizer's size.
    pub vocab: usize,
    /// Added to the mean square in RMS norms.
    pub rms_eps: f64,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Stretching of the rotary frequencies.
    pub rope_scaling: RopeScaling,
    /// Longest context in tokens, prompt and answer together.
    pub max_position: usize,
    /// The output layer is the embedding; [`crate::Weights`] then answers for `lm_head.weight` too.
    pub tie_word_embeddings: bool,
    /// Beginning of sequence, when the model has one.
    pub bos: Option<u32>,
    /// End of sequence, from all files that name one; sorted.
    pub eos: Vec<u32>,
}

/// Sizes beyond these are taken for damage: they keep products far from overflow.
const MAX_WIDTH: usize = 1 << 20;
const MAX_LAYERS: usize = 1 << 12;
const MAX_CONTEXT: usize = 1 << 28;

impl ModelConfig {
    /// Rotary frequencies, one for each pair of a head's dimensions (`head_dim / 2`), scaling
    /// included. Dimension `i` is paired with `i + head_dim / 2`, in every file format.
    pub fn inv_freq(&self) -> Vec<f32> {
        let pairs = self.head_dim / 2;
        let base = |i: usize| self.rope_theta.powf(-((2 * i) as f64) / self.head_dim as f64);
        let plain = (0..pairs).map(base);
        match &self.rope_scaling {
            RopeScaling::None => plain.map(|f| f as f32).collect(),
            RopeScaling::Linear { factor } => plain.map(|f| (f / factor) as f32).collect(),
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
                let context = *original_context as f64;
                let (low, high) = (*low_freq_factor, *high_freq_factor);
                plain.map(|f| llama3(f, *factor, low, high, context) as f32).collect()
            }
            RopeScaling::Factors(factors) => {
                plain.zip(factors).map(|(f, factor)| (f / f64::from(*factor)) as f32).collect()
            }
        }
    }

    /// What decides the keys and values of a token, in a fixed form. Limits and stop tokens are not
    /// part of it.
    pub(crate) fn identity(&self) -> [String; 3] {
        let (kv, dim) = (self.kv_heads, self.head_dim);
        [
            format!("{} {} {} {kv} {dim}", self.arch.name(), self.layers, self.heads),
            format!("{:e} {:e}", self.rms_eps, self.rope_theta),
            format!("{:?}", self.rope_scaling),
        ]
    }

    /// Checks what any decoder needs; `path` is for the message.
    fn check(self, path: &Path) -> Result<Self, ModelError> {
        let sizes = [
            ("hidden size", self.hidden, MAX_WIDTH),
            ("number of layers", self.layers, MAX_LAYERS),
            ("number of attention heads", self.heads, MAX_WIDTH),
            ("number of key-value heads", self.kv_heads, MAX_WIDTH),
            ("head dimension", self.head_dim, MAX_WIDTH),
            ("intermediate size", self.intermediate, MAX_WIDTH),
            ("vocabulary size", self.vocab, 16 * MAX_WIDTH),
            ("context length", self.max_position, MAX_CONTEXT),
        ];
        for (field, size, most) in sizes {
            if size == 0 || size > most {
                let problem = format!("is {size}, expected 1 to {most}");
                return Err(ModelError::field(path, field, problem));
            }
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            let problem = format!("is {}, which does not divide {}", self.kv_heads, self.heads);
            return Err(ModelError::field(path, "number of key-value heads", problem));
        }
        if !self.head_dim.is_multiple_of(2) {
            let problem = format!("is {}, expected an even number", self.head_dim);
            return Err(ModelError::field(path, "head dimension", problem));
        }
        let constants = [("rms norm epsilon", self.rms_eps), ("rope theta", self.rope_theta)];
        for (field, value) in constants {
            if !(value.is_finite() && value > 0.0) {
                let problem = format!("is {value}, expected a number above 0");
                return Err(ModelError::field(path, field, problem));
            }
        }
        Ok(self)
    }
}

/// Frequency scaling of Llama 3.1, after Meta's `apply_scaling` (models/llama3/reference_impl).
fn llama3(frequency: f64, factor: f64, low: f64, high: f64, context: f64) -> f64 {
    let wavelength = 2.0 * std::f64::consts::PI / frequency;
    if wavelength < context / high {
        frequency
    } else if wavelength > context / low {
        frequency / factor
    } else {
        let smooth = (context / wavelength - low) / (high - low);
        (1.0 - smooth) * frequency / factor + smooth * frequency
    }
}
