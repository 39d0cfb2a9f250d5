//! Bytes between nodes: streams of placed requests, blocks between regions, and the join, over QUIC
//! on one UDP port; where UDP is blocked, over TLS on the TCP port of the next number.
//!
//! * [`Transfer`] is the node's endpoint. It answers three protocols, told apart by ALPN:
//!   `dn-serve/1` (a placed prompt out, its stream back), `dn-blocks/1` (blocks out of DRAM slots)
//!   and `dn-join/1` (a stranger with a token).
//! * [`Host`] is what the node supplies: who is a member, and the answers.
//!
//! Invariants. Members authenticate both ways by their ed25519 identity in the TLS handshake; a
//! stranger gets no further than one join frame. Every fetched block is checked against its
//! producer's signature before it is reported. After [`Transfer::fetch`] returns, nothing more is
//! written into the slots it was given. Why a block moves, and whether it should, is not known
//! here.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // does I/O: clocks, tasks, entropy

mod accept;
mod alpn;
mod asked;
mod blobs;
mod blocks;
mod clock;
mod config;
mod connections;
mod credits;
mod dial;
mod error;
mod fetch;
mod frame;
mod hello;
mod host;
mod join;
mod paths;
mod quic;
mod serve;
mod sockets;
mod stream;
mod tcp;
mod throttle;
mod tls;
mod transfer;

pub use alpn::Alpn;
pub use config::{Limits, TransferConfig};
pub use error::{JoinError, TransferError};
pub use host::{Host, ReadBlock};
pub use join::{join, join_over, join_within};
pub use paths::{PathStats, Via};
pub use sockets::{BoxPipe, Pipe, Sockets, Tcp, tls_addr};
pub use transfer::Transfer;
