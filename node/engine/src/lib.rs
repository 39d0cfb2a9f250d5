//! I/O: the [`Engine`] trait, the embedded engine, and the mock engine.
//!
//! An engine takes [`Job`]s (token ids in, a lease on slots, a channel out), runs them together and
//! tells the block manager which blocks it sealed. It never sees text, peers or the index, never
//! frees a slot, and never blocks a caller. [`Embedded`] is a decoder of its own for Llama and
//! Qwen3 on the CPU, on one OS thread; [`MockEngine`] is the pure machine of `mock` on one, which
//! computes nothing but takes as long.
//!
//! Invariants: a sequence's logits have equal bits however its prompt is cut into chunks, whatever
//! runs beside it, and whether its blocks were computed, reused or imported; a shared slot is never
//! written; a job's guard is dropped exactly when no more write to its slots can land; every job's
//! channel ends with one `Finished` or `Failed`, unless its reader left; a constrained answer that
//! ends by itself is of its form.

// Does I/O: it owns a thread and reads the clock. Shapes are checked when a model is loaded and
// when a job is taken, so the numeric loops index.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::indexing_slicing)]

mod api;
mod decoder;
mod early;
mod embedded;
mod guided;
mod inbox;
mod math;
mod meter;
mod mock_engine;
mod outlet;
mod pool;
mod sampler;
mod schedule;
mod sequence;
mod worker;

pub use api::{Engine, EngineError, Health, Job};
pub use embedded::{Embedded, EmbeddedConfig};
pub use mock_engine::{MockConfig, MockEngine, ScriptError, Scripts, Timing};
pub use pool::storage_namespace;
