//! What a gossip machine is told at birth, and the limits it keeps.

use protocol::event::Contact;
use protocol::id::{ClusterId, Incarnation, NodeId};
use protocol::sign::Keypair;
use protocol::time::Span;
use protocol::trust::MemberCert;

/// Most members known at once, this node excluded.
pub const MEMBERS_MAX: usize = 1024;
/// Hashes in one batch; more pending changes make more batches (about 300 KB each).
pub const BATCH_HASHES: usize = 16_384;
/// Batches of one origin that wait for an earlier one.
pub const PENDING_COUNT: usize = 2048;
/// Bytes of those.
pub const PENDING_BYTES: usize = 8 << 20;
/// Hashes in one frame of snapshots (about 1.2 MB).
pub const PART_HASHES: usize = 65_536;
/// Entries in one origin's snapshot; a larger claim is refused.
pub const SNAPSHOT_ENTRIES: u64 = 16 << 20;
/// Bytes of batches in one frame.
pub const FRAME_BYTES: usize = 1 << 20;
/// Bytes of batches sent for one `Want`; the rest is asked for again.
pub const ANSWER_BYTES: usize = 4 << 20;
/// Most batches asked for by one `Want`.
pub const WANT_MAX: u64 = 2048;
/// Certificates in one `Members` frame.
pub const CERTS_PER_FRAME: usize = 256;
/// Probes under way.
pub const PROBES_MAX: usize = 1024;

/// How much of a history is kept for others to catch up from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keep {
    /// Batches.
    pub count: usize,
    /// Bytes, payloads and fixed parts together.
    pub bytes: usize,
}

/// Identity, place and timing of one node.
#[derive(Clone, Debug)]
pub struct Config {
    /// The identity; also signs batches and heartbeats.
    pub keypair: Keypair,
    /// This life.
    pub incarnation: Incarnation,
    /// The cluster.
    pub cluster: ClusterId,
    /// Public key of the cluster's issuing key.
    pub issuer: NodeId,
    /// This node's right to belong.
    pub cert: MemberCert,
    /// Where this node can be reached.
    pub contact: Contact,
    /// Longest wait of a change before it is sent (50 ms; sensible 50–100 ms).
    pub batch_every: Span,
    /// Between two heartbeats (500 ms).
    pub heartbeat_every: Span,
    /// Silence after which a member is unroutable (2 s).
    pub suspect_after: Span,
    /// Silence after which a member is dead whose stream was closed and is not to be had again
    /// (4 s; half of the suspicion more while nobody confirms it).
    pub dead_after: Span,
    /// How long a silent member is only suspect while its stream stands (12 s; twice that while
    /// nobody confirms it): longer than any stall that a living machine is granted.
    pub patience: Span,
    /// Silence after which a dead member's entries go (10 min).
    pub forget_after: Span,
    /// Own batches kept for repair: ten minutes and more of a busy node.
    pub keep_own: Keep,
    /// Batches kept of each other origin, for those whom the origin itself cannot reach.
    pub keep_others: Keep,
    /// Bytes per second that all sets handed out together may take (32 MiB/s).
    pub donate_bytes_s: u64,
    /// Seed of the machine's random choices.
    pub seed: u64,
    /// For tests: a seed of rare bad luck inside the machine (see `buggify.rs`). Off by default.
    pub buggify: Option<u64>,
}

impl Config {
    /// The documented defaults.
    pub fn new(
        keypair: Keypair,
        incarnation: Incarnation,
        cert: MemberCert,
        issuer: NodeId,
        contact: Contact,
        seed: u64,
    ) -> Self {
        Self {
            keypair,
            incarnation,
            cluster: cert.cluster,
            issuer,
            cert,
            contact,
            batch_every: Span::millis(50),
            heartbeat_every: Span::millis(500),
            suspect_after: Span::secs(2),
            dead_after: Span::secs(4),
            patience: Span::secs(12),
            forget_after: Span::secs(600),
            keep_own: Keep { count: 16_384, bytes: 64 << 20 },
            keep_others: Keep { count: 1024, bytes: 2 << 20 },
            donate_bytes_s: 32 << 20,
            seed,
            buggify: None,
        }
    }

    /// The node, from its key.
    pub fn node(&self) -> NodeId {
        self.keypair.node()
    }
}
