//! Why a model cannot be used, and what to do about it.

use std::path::{Path, PathBuf};

/// Why a model could not be opened or one of its tensors not read.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// Nothing is at the path.
    #[error("no model at {}: the path does not exist; give a folder with config.json or a .gguf file", path.display())]
    Missing {
        /// The path asked for.
        path: PathBuf,
    },
    /// Something is there, but it does not look like a model.
    #[error("{} is not a model: looked for {looked_for}; give a folder with config.json and *.safetensors, or a .gguf file", path.display())]
    NotAModel {
        /// The path asked for.
        path: PathBuf,
        /// What was looked for and not found.
        looked_for: String,
    },
    /// A file could not be read at all.
    #[error("cannot read {}: {source}; check that the file exists and its permissions", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's word.
        source: std::io::Error,
    },
    /// The model is sound but of a kind that this program does not run.
    #[error("{} cannot be run: {field} is {found}; supported: {supported}", path.display())]
    Unsupported {
        /// The file that says so.
        path: PathBuf,
        /// The field.
        field: String,
        /// Its value.
        found: String,
        /// What would work.
        supported: String,
    },
    /// The file's structure is broken: truncated, or changed after it was written.
    #[error("{} is damaged: {detail}; compare its size and checksum with the source and download it again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        detail: String,
    },
    /// A field of a configuration file cannot be used.
    #[error("{}: the field `{field}` {problem}; correct it or download the file again", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// The field.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A tensor that the configuration calls for is not there.
    #[error("{}: the tensor {name} is missing; the download is incomplete or the configuration belongs to another model", path.display())]
    TensorMissing {
        /// The model.
        path: PathBuf,
        /// The tensor.
        name: String,
    },
    /// A tensor's shape contradicts the configuration.
    #[error("{}: the tensor {name} has shape {found:?}, but the configuration needs {expected:?}; the configuration belongs to another model", path.display())]
    TensorShape {
        /// The model.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// The shape that the configuration calls for.
        expected: Vec<usize>,
        /// The shape in the file.
        found: Vec<usize>,
    },
    /// The tokenizer cannot be used.
    #[error("{}: the tokenizer cannot be used: {detail}", path.display())]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// The chat template does not compile.
    #[error("{}: the chat template cannot be used: {detail}", path.display())]
    Template {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the line.
        detail: String,
    },
    /// A tensor's bytes could not be turned into a tensor.
    #[error("the tensor {name} cannot be read: {detail}")]
    Tensor {
        /// The tensor.
        name: String,
        /// What candle said.
        detail: String,
    },
}

impl ModelError {
    pub(crate) fn damaged(path: &Path, detail: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), detail: detail.into() }
    }

    pub(crate) fn field(path: &Path, field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Field { path: path.to_owned(), field: field.into(), problem: problem.into() }
    }

    pub(crate) fn unsupported(
        path: &Path,
        field: impl Into<String>,
        found: impl Into<String>,
        supported: impl Into<String>,
    ) -> Self {
        Self::Unsupported {
            path: path.to_owned(),
            field: field.into(),
            found: found.into(),
            supported: supported.into(),
        }
    }

    pub(crate) fn tokenizer(path: &Path, detail: impl std::fmt::Display) -> Self {
        Self::Tokenizer { path: path.to_owned(), detail: detail.to_string() }
    }

    pub(crate) fn read(path: &Path, source: std::io::Error) -> Self {
        Self::Read { path: path.to_owned(), source }
    }
}
