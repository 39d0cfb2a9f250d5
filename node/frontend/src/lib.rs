#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::indexing_slicing)] // does I/O
//! I/O: HTTP dialects to [`protocol::prompt::Prompt`] and its stream back; detokenising, stop
//! strings, tool calls, reasoning.
//!
//! Four dialects (Chat Completions, Completions, Responses, Messages) meet in one neutral request
//! (`ask::Ask`) and one neutral stream (`stream::Piece`); a dialect is a pair of pure functions around them, so
//! that streaming and unary answers are made of the same pieces. Where a request runs is behind
//! [`Cluster`], the only thing this crate knows of the node.
//!
//! Invariants: dropping a response drops the cluster's channel, which cancels; every stream ends
//! with its dialect's end or error event; `cache_control`, ids and metadata never reach a prompt.

mod ahead;
mod answer;
mod ask;
mod bodies;
mod chat;
mod cluster;
mod completions;
mod constraint;
mod content;
mod error;
mod explain;
mod format;
mod json;
mod keeper;
mod keys;
mod limits;
mod lru;
mod markup;
mod messages;
mod misses;
mod nvext;
mod pairs;
mod prefill;
mod prompt;
mod responses;
mod seal;
mod server;
mod sse;
mod stop;
mod stream;
#[cfg(test)]
mod testing;
mod text_format;
mod tokenize;
mod tools;
mod weight;

pub use cluster::{Cluster, Kept, RecordName, Served, ServedModel, Unkept, Want};
pub use explain::prompt_of;
pub use format::{Format, UnknownFormat};
pub use keys::{KEY_MIN, KeyError, Keys, TenantSpec};
pub use server::{Limits, router};
