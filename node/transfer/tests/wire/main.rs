//! Nodes on loopback: real QUIC, real TLS, raw clients where a peer misbehaves.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // real clocks and tasks
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)] // tests

mod fetch;
mod join;
mod members;
mod raw;
mod serve;
mod world;
