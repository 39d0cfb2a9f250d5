//! A model as files: a Hugging Face folder or one GGUF file, read and checked.
//!
//! [`Model::open`] reads everything that is not arithmetic: the configuration, the map of weights,
//! the tokenizer and the chat template, and the digests that name prefixes. Both formats come out
//! the same: Hugging Face tensor names, split-half rotary order, one [`ModelConfig`].
//!
//! Promised: what can be wrong with the files is found at open and said with a remedy; foreign
//! bytes never make it panic or take memory out of proportion to the file. It knows no engine and
//! no HTTP, and reads no clock: the date that templates may ask for is handed in.

mod config;
mod error;
mod fields;
mod folder;
mod gguf;
mod grammar;
mod model;
mod processor;
mod template;
mod tokenizer;
mod weights;

pub use config::{Arch, ModelConfig, RopeScaling};
pub use error::ModelError;
pub use grammar::{Grammar, GrammarError, Grammars, Guide, Mask, SCHEMA_DEPTH_MAX};
pub use model::{Model, OpenOptions};
pub use processor::Processor;
pub use template::{
    AsMessage, ChatTemplate, Date, Message, RenderRequest, Shape, TOOL_CALL, TOOL_RESPONSE,
    TemplateError,
};
pub use tokenizer::{DecodeStream, Tokenizer};
pub use weights::Weights;
