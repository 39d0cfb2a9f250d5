//! The load generator: node processes on loopback, agents over HTTP, and the demo.
//!
//! [`fleet`] starts and kills processes of the node binary; [`client`] makes one streamed call in
//! either dialect; [`agents`] says what agents send (pure, from a seed); [`drive`] lets them call;
//! [`report`] and [`ceiling`] turn outcomes into figures; [`mod@bench`], [`demo`] and [`mod@crash`]
//! join these; [`frontend`] measures what a request costs a node.
//!
//! It knows nodes only from outside: flags, the ready line, HTTP. No other crate of the node is
//! used but the vocabulary.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::indexing_slicing)] // does I/O

pub mod agents;
pub mod bench;
pub mod ceiling;
pub mod client;
pub mod crash;
pub mod demo;
pub mod drive;
pub mod error;
pub mod fleet;
pub mod frontend;
pub mod report;
pub mod talk;

#[cfg(test)]
mod fake;
