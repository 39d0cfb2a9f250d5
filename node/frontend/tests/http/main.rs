#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)] // a test
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // spawns its cluster
//! The HTTP surface over a scripted cluster: all dialects, streams, errors, disconnects.

mod ahead;
mod answers;
mod cases;
mod chat;
mod cluster;
mod completions;
mod constraints;
mod disconnect;
mod errors;
mod formats;
mod fuzz;
mod histories;
mod kept;
mod keys;
mod messages;
mod models;
mod pairs;
mod prefill;
mod recorded;
mod responses;
mod sse;
mod streams;
mod templates;
mod tokens;
mod tool_choices;
mod turns;
