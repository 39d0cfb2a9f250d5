//! A mock engine as a pure machine: a real engine's scheduler, timing, block events and bytes,
//! without a model.
//!
//! [`Engine`] takes jobs and operations of the block manager ([`In`]) and answers with stream items,
//! events and orders to move bytes ([`Out`]). It batches continuously, cuts prompts into chunks,
//! waits for blocks on their way, asks for slots and gives up the youngest sequence when there are
//! none, as the embedded engine does; a step takes virtual time ([`Timing`]) and its results appear
//! at its end.
//!
//! The bytes of a block follow from a [`Pattern`], which follows from the block's tokens and its
//! parent. Each slot remembers the pattern of what it holds, and each new token is a pure function of
//! the patterns that its sequence really used. So equal prompts give equal answers whether their
//! blocks were computed, reused or brought, and a wrong, torn or misplaced block changes the answer;
//! [`Stats`] counts each one.
//!
//! Invariants: equal inputs give equal outputs; each job ends with exactly one `Finished`, `Failed`
//! or [`Out::Refused`] (none when its reader left) and one [`Out::Done`], which is the last word
//! about its lease; a slot is written only by a sequence whose lease holds it, and never while it is
//! shared.

mod config;
mod early;
mod engine;
mod messages;
mod pattern;
mod script;
mod sequence;
mod slots;
mod stats;
mod timing;

pub use config::{Config, ConfigError, storage_namespace};
pub use engine::Engine;
pub use messages::{In, Job, Out};
pub use pattern::Pattern;
pub use script::Script;
pub use stats::Stats;
pub use timing::{FitError, Sample, Timing, TimingError};
