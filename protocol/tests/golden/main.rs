#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)] // a test
//! What leaves a process, byte for byte: golden frames, and what decoders make of bad ones.
//!
//! `tests/fixtures/v1/NAME.hex` holds the encoding of each value of [`cases`]. The files are a
//! promise to nodes of other releases: a changed file is a changed format (docs/formats.md). Files
//! of new frames are written by
//!
//! ```text
//! DYNAMO_WRITE_FIXTURES=missing cargo test -p protocol --test golden
//! ```
//!
//! and `=all` replaces those that differ, which is right only before their format was released.
//! Both end in failure, so that no automatic run can pass by writing what it should compare.

mod cases;
mod fixtures;
mod fuzz;
mod gossip;
mod serve;
mod state;
mod values;
