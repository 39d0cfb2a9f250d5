//! What can go wrong, told so that the reader knows what to do.

use crate::frame::FrameError;
use protocol::id::NodeId;
use protocol::wire::handshake::Mismatch;
use protocol::wire::join::JoinRefusal;
use std::net::SocketAddr;

/// Why an endpoint or a call to a peer failed.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The UDP port is taken.
    #[error("UDP port {0} is in use by another program; choose another with --listen")]
    InUse(SocketAddr),
    /// The UDP address cannot be bound.
    #[error("cannot listen on UDP {0}: {1}")]
    Bind(SocketAddr, std::io::Error),
    /// The TCP port of the TLS-TCP path, one above the cluster port, is taken.
    #[error(
        "TCP port {0}, one above the cluster port, is in use by another program; choose another \
         cluster port with --listen"
    )]
    TcpInUse(SocketAddr),
    /// The TCP address of the TLS-TCP path cannot be bound.
    #[error("cannot listen on TCP {0}, one above the cluster port: {1}")]
    TcpBind(SocketAddr, std::io::Error),
    /// The cluster port has no next one.
    #[error("{0}: the cluster port must be below 65535, as the next one is used too")]
    LastPort(SocketAddr),
    /// The identity cannot be made into a TLS certificate.
    #[error("the node's key cannot be used for TLS: {0}")]
    Identity(String),
    /// Nobody told where the peer is.
    #[error("no address of {0:?} is known")]
    NoAddress(NodeId),
    /// No address answered on any path. The peer may be down, or the ports blocked.
    #[error("{node:?} cannot be reached: {reason}")]
    Unreachable {
        /// Who.
        node: NodeId,
        /// What the last address answered.
        reason: String,
    },
    /// The peer was reached and did not give the bytes that were asked for.
    #[error("{node:?} did not give the bytes asked for: {reason}")]
    NoBlob {
        /// Who.
        node: NodeId,
        /// Why.
        reason: String,
    },
    /// The peer failed lately and is left alone until its next probe.
    #[error("{node:?} is in quarantine for another {for_ms} ms")]
    Quarantined {
        /// Who.
        node: NodeId,
        /// Until the next try, in milliseconds.
        for_ms: u64,
    },
    /// The peer speaks another version or belongs to another cluster.
    #[error("{node:?} cannot talk to us: {mismatch}")]
    Mismatch {
        /// Who.
        node: NodeId,
        /// The field that differs.
        mismatch: Mismatch,
    },
    /// The peer's first words were wrong, or it did not like ours; names the field.
    #[error("the first exchange with {node:?} failed: {reason}")]
    Hello {
        /// Who.
        node: NodeId,
        /// Why.
        reason: String,
    },
    /// The peer is not on the member list.
    #[error("{0:?} is not a member of this cluster")]
    NotMember(NodeId),
    /// A frame could not be written or read.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The endpoint is closed.
    #[error("the endpoint is closed")]
    Closed,
}

/// Why a join did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// Nobody answers there.
    #[error(
        "no member answers at {addr} (UDP), nor at the next TCP port: {reason}; check the address, \
         that the node runs, and that a firewall lets one of the two through"
    )]
    Unreachable {
        /// Where.
        addr: SocketAddr,
        /// What happened.
        reason: String,
    },
    /// The member said no.
    #[error(transparent)]
    Refused(#[from] JoinRefusal),
    /// The answer does not come from a holder of the cluster's key: nothing of it was believed.
    #[error(
        "the node at {addr} is not a member of the token's cluster ({what}); do not trust this \
         address"
    )]
    FakeMember {
        /// Where.
        addr: SocketAddr,
        /// What did not fit.
        what: &'static str,
    },
    /// The member closed the connection or answered nonsense.
    #[error("the node at {addr} broke off the join: {reason}")]
    Broken {
        /// Where.
        addr: SocketAddr,
        /// Why.
        reason: String,
    },
    /// The own key cannot be used.
    #[error("the node's key cannot be used for TLS: {0}")]
    Identity(String),
}
