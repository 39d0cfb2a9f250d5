//! Nodes on loopback, with raw clients where a peer misbehaves, and nodes on a network in memory
//! under paused time. QUIC and TLS are real everywhere.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // real clocks and tasks
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)] // tests

mod blobs;
mod fetch;
mod join;
mod members;
mod net;
mod paths;
mod raw;
mod serve;
mod tls_tcp;
mod weather;
mod world;
