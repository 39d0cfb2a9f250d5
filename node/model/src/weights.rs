//! The map from tensor names to bytes, and tensors made from them on demand.
//!
//! Names are those of Hugging Face for both formats, and so is the order of rows in the query and
//! key projections: the rotary embedding pairs dimension `i` with `i + head_dim / 2`.

mod layout;
mod names;
mod open;
#[cfg(test)]
mod tests;

pub(crate) use open::{Opened, gguf_error, map};

use crate::{ModelConfig, ModelError};
use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use candle_core::{Device, Tensor};
use kernels::MappedFile;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// How the elements of a tensor are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stored {
    F32,
    F16,
    BF16,
    /// Blocks of a quantised GGUF type.
    Blocks(GgmlDType),
}

/// One tensor's place, inside its file for certain.
#[derive(Clone, PartialEq, Debug)]
struct Entry {
    file: usize,
    start: usize,
    len: usize,
    stored: Stored,
    shape: Vec<usize>,
    /// Heads whose rows are to be brought back from llama.cpp's interleaved order.
    interleaved_heads: Option<usize>,
}

/// The weights of a model, mapped from their files; nothing is decoded before it is asked for.
#[derive(Debug)]
pub struct Weights {
    files: Vec<MappedFile>,
    entries: BTreeMap<String, Entry>,
    tied: bool,
}

const HEAD: &str = "lm_head.weight";
const EMBEDDING: &str = "model.embed_tokens.weight";

impl Weights {
    /// No weights at all, of a model that nobody computes with.
    pub(crate) fn none() -> Self {
        Self { files: Vec::new(), entries: BTreeMap::new(), tied: false }
    }

    /// Whether the model's files hold this tensor (or, for `lm_head.weight`, its tied embedding).
    pub fn has(&self, name: &str) -> bool {
        self.entry(name).is_some()
    }

    /// The names of all tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// The tensor in f32 on the CPU; quantised ones are dequantised. With tied embeddings
    /// `lm_head.weight` is the embedding. The decoder's tensors were checked at open; any other
    /// name that is not there is an error.
    pub fn tensor(&self, name: &str) -> Result<Tensor, ModelError> {
        let failed = |detail: String| ModelError::Tensor { name: name.to_owned(), detail };
        let entry =
            self.entry(name).ok_or_else(|| failed("the model has no such tensor".into()))?;
        let bytes = self.bytes(entry);
        let candle = |e: candle_core::Error| failed(e.to_string());
        let values: Vec<f32> = match entry.stored {
            Stored::F32 => words(&bytes, f32::from_le_bytes),
            Stored::F16 => words(&bytes, |word| half::f16::from_le_bytes(word).to_f32()),
            Stored::BF16 => words(&bytes, |word| half::bf16::from_le_bytes(word).to_f32()),
            Stored::Blocks(dtype) => {
                let quantised = blocks(&bytes, dtype, &entry.shape).map_err(candle)?;
                return quantised.dequantize(&Device::Cpu).map_err(candle);
            }
        };
        Tensor::from_vec(values, entry.shape.as_slice(), &Device::Cpu).map_err(candle)
    }

    /// The tensor in its quantised form, when it has one (GGUF block types).
    pub fn qtensor(&self, name: &str) -> Option<QTensor> {
        let entry = self.entry(name)?;
        let Stored::Blocks(dtype) = entry.stored else {
            return None;
        };
        blocks(&self.bytes(entry), dtype, &entry.shape).ok()
    }

    /// Bytes of all tensors as stored.
    pub fn stored_bytes(&self) -> u64 {
        self.entries.values().map(|entry| entry.len as u64).sum()
    }

    fn entry(&self, name: &str) -> Option<&Entry> {
        let own = self.entries.get(name).filter(|_| !(self.tied && name == HEAD));
        let stand_in = (self.tied && name == HEAD).then_some(EMBEDDING);
        own.or_else(|| self.entries.get(stand_in?))
    }

    fn raw(&self, entry: &Entry) -> &[u8] {
        let file = self.files.get(entry.file).map(MappedFile::bytes).unwrap_or_default();
        file.get(entry.start..entry.start + entry.len).unwrap_or_default()
    }

    fn bytes(&self, entry: &Entry) -> Cow<'_, [u8]> {
        let raw = self.raw(entry);
        match entry.interleaved_heads {
            Some(heads) => Cow::Owned(layout::split_halves(raw, &entry.shape, heads)),
            None => Cow::Borrowed(raw),
        }
    }

    /// Digest of what decides the keys and values: configuration, names, types, shapes, bytes.
    pub(crate) fn digest(&self, config: &ModelConfig) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key("dynamo-node 2026-11 weights");
        for text in config.identity() {
            framed(&mut hasher, text.as_bytes());
        }
        for (name, entry) in &self.entries {
            framed(&mut hasher, name.as_bytes());
            framed(&mut hasher, format!("{:?} {:?}", entry.stored, entry.shape).as_bytes());
            framed(&mut hasher, self.raw(entry));
        }
        *hasher.finalize().as_bytes()
    }
}

fn framed(hasher: &mut blake3::Hasher, bytes: &[u8]) {
    hasher.update(&(bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}

fn words<const N: usize>(bytes: &[u8], read: impl Fn([u8; N]) -> f32) -> Vec<f32> {
    let word = |chunk: &[u8]| chunk.try_into().map(&read).unwrap_or_default();
    bytes.chunks_exact(N).map(word).collect()
}

/// candle insists on aligned blocks, and files are only promised to align to eight bytes.
fn blocks(bytes: &[u8], dtype: GgmlDType, shape: &[usize]) -> candle_core::Result<QTensor> {
    const ALIGN: usize = 8;
    let aligned: Cow<'_, [u8]> = if bytes.as_ptr().align_offset(ALIGN) == 0 {
        Cow::Borrowed(bytes)
    } else {
        Cow::Owned(bytes.to_vec())
    };
    if aligned.as_ptr().align_offset(ALIGN) != 0 {
        candle_core::bail!("the allocator gave memory that is not aligned to {ALIGN} bytes");
    }
    QTensor::new(QStorage::from_data(aligned, &Device::Cpu, dtype)?, shape)
}
