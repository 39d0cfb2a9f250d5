//! Files to entries: safetensors and GGUF.

use super::{Entry, Stored, Weights, names};
use crate::gguf::{GgufError, Header};
use crate::{Arch, ModelConfig, ModelError};
use candle_core::quantized::GgmlDType;
use kernels::MappedFile;
use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Files read and located, not yet held against a configuration.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    files: Vec<MappedFile>,
    entries: BTreeMap<String, Entry>,
}

pub(crate) fn map(path: &Path) -> Result<MappedFile, ModelError> {
    MappedFile::open(path).map_err(|e| ModelError::read(path, e))
}

impl Opened {
    /// The tensors of safetensors files; a name in two files is damage.
    pub(crate) fn safetensors(paths: &[PathBuf]) -> Result<Self, ModelError> {
        let mut opened = Self::default();
        for path in paths {
            opened.add_safetensors(path)?;
        }
        Ok(opened)
    }

    fn add_safetensors(&mut self, path: &Path) -> Result<(), ModelError> {
        let file = map(path)?;
        let index = self.files.len();
        let bytes = file.bytes();
        let damaged = |detail: String| ModelError::damaged(path, detail);
        let (header, metadata) =
            SafeTensors::read_metadata(bytes).map_err(|e| damaged(format!("its header: {e}")))?;
        let data = header.saturating_add(8); // the header follows its own length
        for (name, info) in metadata.tensors() {
            let stored = match info.dtype {
                Dtype::F32 => Stored::F32,
                Dtype::F16 => Stored::F16,
                Dtype::BF16 => Stored::BF16,
                // Buffers that decoders do not use may have any type.
                _ if !name.ends_with(".weight") => continue,
                other => {
                    let field = format!("the type of the tensor {name}");
                    let found = format!("{other:?}");
                    return Err(ModelError::unsupported(path, field, found, "F32, F16, BF16"));
                }
            };
            let (from, to) = info.data_offsets;
            let within = data + to <= bytes.len() && from <= to;
            let elements = info.shape.iter().try_fold(1usize, |n, size| n.checked_mul(*size));
            let width = if stored == Stored::F32 { 4 } else { 2 };
            if !within || elements.and_then(|n| n.checked_mul(width)) != Some(to - from) {
                return Err(damaged(format!("the tensor {name} does not lie inside the file")));
            }
            let entry = Entry {
                file: index,
                start: data + from,
                len: to - from,
                stored,
                shape: info.shape.clone(),
                interleaved_heads: None,
            };
            if self.entries.insert(name.clone(), entry).is_some() {
                return Err(damaged(format!("the tensor {name} is in an earlier file too")));
            }
        }
        self.files.push(file);
        Ok(())
    }

    /// The tensors of a mapped GGUF file whose header was read, by Hugging Face names.
    pub(crate) fn gguf(file: MappedFile, header: &Header) -> Self {
        let mut entries = BTreeMap::new();
        for (name, info) in &header.tensors {
            let Some(name) = names::hugging_face_name(name) else {
                continue;
            };
            let stored = match info.dtype {
                GgmlDType::F32 => Stored::F32,
                GgmlDType::F16 => Stored::F16,
                GgmlDType::BF16 => Stored::BF16,
                dtype => Stored::Blocks(dtype),
            };
            let shape = info.shape.clone();
            let (start, len) = (info.start, info.len);
            let entry = Entry { file: 0, start, len, stored, shape, interleaved_heads: None };
            entries.insert(name, entry);
        }
        Self { files: vec![file], entries }
    }

    /// Marks the query and key projections as interleaved (GGUF files of Llama models).
    pub(crate) fn interleaved(mut self, config: &ModelConfig) -> Self {
        if config.arch != Arch::Llama {
            return self;
        }
        for (name, entry) in &mut self.entries {
            if name.ends_with("self_attn.q_proj.weight") {
                entry.interleaved_heads = Some(config.heads);
            } else if name.ends_with("self_attn.k_proj.weight") {
                entry.interleaved_heads = Some(config.kv_heads);
            }
        }
        self
    }

    /// Checks that the decoder of `config` finds each tensor, in its shape; `path` is for messages.
    pub(crate) fn check(self, config: &ModelConfig, path: &Path) -> Result<Weights, ModelError> {
        let of_layers = |name: &&String| name.starts_with("model.layers.");
        if let Some(bias) = self.entries.keys().filter(of_layers).find(|n| n.ends_with(".bias")) {
            return Err(ModelError::unsupported(path, bias, "present", "layers without biases"));
        }
        for (name, expected) in names::needed(config) {
            let Some(entry) = self.entries.get(&name) else {
                return Err(ModelError::TensorMissing { path: path.to_owned(), name });
            };
            if entry.shape != expected {
                let (path, found) = (path.to_owned(), entry.shape.clone());
                return Err(ModelError::TensorShape { path, name, expected, found });
            }
        }
        Ok(Weights { files: self.files, entries: self.entries, tied: config.tie_word_embeddings })
    }
}

/// What a broken GGUF header means for the user.
pub(crate) fn gguf_error(path: &Path, error: GgufError) -> ModelError {
    match error {
        GgufError::Magic => ModelError::NotAModel {
            path: path.to_owned(),
            looked_for: "GGUF at the beginning of the file".into(),
        },
        GgufError::Unsupported { field, found, supported } => {
            ModelError::unsupported(path, field, found, supported)
        }
        other => ModelError::damaged(path, other.to_string()),
    }
}
