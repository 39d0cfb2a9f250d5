#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)] // a test
#![allow(clippy::disallowed_methods)] // spawns its cluster
//! The HTTP surface over a scripted cluster: all dialects, streams, errors, disconnects.

mod ahead;
mod chat;
mod cluster;
mod completions;
mod disconnect;
mod errors;
mod formats;
mod fuzz;
mod kept;
mod keys;
mod messages;
mod models;
mod recorded;
mod responses;
mod sse;
mod streams;
