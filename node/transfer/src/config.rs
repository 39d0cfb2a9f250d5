//! Settings of the endpoint, each with its default.

use protocol::id::NodeId;
use protocol::sign::Keypair;
use protocol::wire::handshake::Hello;
use std::net::SocketAddr;
use std::time::Duration;

/// What an endpoint is made of.
#[derive(Clone, Debug)]
pub struct TransferConfig {
    /// UDP address to listen on, with TCP on the next port number; port 0 takes two free ones.
    pub listen: SocketAddr,
    /// Whether QUIC over UDP is used. Without it everything goes over TLS-TCP at once: for networks
    /// of which it is known that they block UDP.
    pub udp: bool,
    /// The node's identity.
    pub keypair: Keypair,
    /// What the node says first on every connection; renewed with
    /// [`crate::Transfer::set_hello`].
    pub hello: Hello,
    /// Public key of the cluster's issuer, to check certificates of members.
    pub issuer: NodeId,
    /// Bounds.
    pub limits: Limits,
    /// Shapes the sending of block bytes to this many bytes per second, over all peers. `None`:
    /// as fast as the path allows. For links shared with other traffic, and for tests and
    /// demonstrations of slow peers.
    pub throttle_bytes_s: Option<u64>,
}

/// Bounds of an endpoint.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Block streams answered at once for one peer; beyond, `Busy`.
    pub block_streams_per_peer: usize,
    /// Block streams answered at once for all peers; beyond, `Busy`.
    pub block_streams: usize,
    /// Requests served at once over one connection; more wait at the sender.
    pub serve_streams_per_connection: u32,
    /// Prompts that are kept for the members who sent them, in bytes, for all peers together.
    pub prompts_kept: u64,
    /// Joins in progress at once.
    pub joins: usize,
    /// Longest time for a stranger's join frame, and for a member's Hello or request frame.
    pub first_frame: Duration,
    /// Longest attempt to reach a peer, per address and over all paths together.
    pub connect: Duration,
    /// TLS-TCP is tried beside QUIC when QUIC's handshake has brought nothing for so long.
    pub udp_patience: Duration,
    /// A peer that was reached over TLS-TCP only is tried over QUIC again after this; doubles with
    /// each try in vain, up to [`Self::udp_probe_max`].
    pub udp_probe: Duration,
    /// Longest pause between two such tries.
    pub udp_probe_max: Duration,
    /// TCP connections of members served at once, for all peers; beyond, they are closed.
    pub tcp_connections: usize,
    /// A connection without a sign of life is closed after this.
    pub idle: Duration,
    /// A quiet connection sends a sign of life this often.
    pub keep_alive: Duration,
    /// First quarantine of a peer that failed; doubles up to [`Self::quarantine_max`].
    pub quarantine: Duration,
    /// Longest quarantine.
    pub quarantine_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            block_streams_per_peer: 8,
            block_streams: 64,
            serve_streams_per_connection: 256,
            prompts_kept: 64 << 20,
            joins: 16,
            first_frame: Duration::from_secs(5),
            connect: Duration::from_millis(1500),
            udp_patience: Duration::from_millis(500),
            udp_probe: Duration::from_secs(30),
            udp_probe_max: Duration::from_secs(600),
            tcp_connections: 4096,
            idle: Duration::from_secs(15),
            keep_alive: Duration::from_secs(5),
            quarantine: Duration::from_secs(1),
            quarantine_max: Duration::from_secs(30),
        }
    }
}
