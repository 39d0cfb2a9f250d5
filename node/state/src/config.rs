//! What the machine is told at birth, and the limits it keeps.

use protocol::id::{Incarnation, NodeId};
use protocol::time::Span;

/// Owners of a record.
pub const OWNERS: usize = 3;
/// Owners that must have a write before it is safe.
pub const SAFE: usize = 2;
/// Members nearest to a place, living or not, of which all but one must deny a record.
pub const NEAR: usize = 2 * OWNERS;
/// Members nearest to a place that are asked before a record is absent.
pub const WIDE: usize = 16;
/// Reads and writes under way here; more are refused.
pub const OPS_MAX: usize = 1024;
/// Members known at once.
pub const MEMBERS_MAX: usize = 2048;
/// Holdings, ids or records in one frame; a longer list is refused.
pub const LIST_MAX: usize = 4096;
/// Bytes of records in one `Push`, unless one alone is larger.
pub const PUSH_BYTES: usize = 1 << 20;
/// Records that wait to be pushed, all peers together; the next comparison finds the rest.
pub const PUSHES_MAX: usize = 65_536;
/// How often a write is made again above a later one.
pub const BUMPS_MAX: u32 = 8;
/// Bytes that a record takes beside its value, about.
pub const RECORD_BYTES: u64 = 256;
/// Records remembered as refused or dropped for want of room, all kinds together; what is beyond is
/// pushed, and refused, again.
pub const REFUSED_MAX: usize = 65_536;
/// Operations that the disk has not answered; more wait here.
pub const DISK_OPS_MAX: usize = 4096;
/// Bytes of values in them, and one record more; a record waits in the table as it is.
pub const DISK_BYTES_MAX: u64 = 32 << 20;
/// Records that are to be erased while the disk is busy or fails; what is beyond stays on it until
/// the next start.
pub const ERASES_MAX: usize = 65_536;
/// Owners remembered, by place.
pub const PLACES_MAX: usize = 131_072;

/// Room for the records of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// Records, without deletions.
    pub records: u64,
    /// Their bytes: values and [`RECORD_BYTES`] each.
    pub bytes: u64,
    /// Deletions, of [`RECORD_BYTES`] each. Their room is their own: however much is deleted, what
    /// lives keeps its room.
    pub deletions: u64,
}

/// Identity, limits and timing of one node.
#[derive(Clone, Debug)]
pub struct Config {
    /// This node.
    pub node: NodeId,
    /// This life; its nonce begins the numbers of operations and writes.
    pub incarnation: Incarnation,
    /// For each kind alone (100,000 records, 256 MiB, 50,000 deletions).
    pub limit: Limit,
    /// Longest time of a call (2 s). One that must look before it writes looks for half of what is
    /// left of it at most.
    pub within: Span,
    /// When a write that is not safe yet is kept here too, owner or not (1 s, and no later than half
    /// of its time).
    pub fallback_after: Span,
    /// First pause before an owner is asked again; doubles (300 ms).
    pub retry_after: Span,
    /// How long after a change of members a write or a read looks at all living members near the
    /// place, not only at its owners of now: until everything was compared a few times (30 s).
    pub settle_after: Span,
    /// How long it waits for those that are silent (150 ms).
    pub hurry_after: Span,
    /// Between two comparisons of all that is shared (10 s).
    pub sync_every: Span,
    /// Between two steps of a comparison (50 ms).
    pub step_every: Span,
    /// Buckets compared in one step (16).
    pub step_buckets: usize,
    /// Bytes per second pushed to owners that lack them (16 MiB/s).
    pub push_bytes_s: u64,
    /// How long a copy is kept that all owners have (60 s).
    pub drop_after: Span,
    /// How long a dead member counts as one that may have records (10 min).
    pub forget_after: Span,
}

impl Config {
    /// The documented defaults.
    pub fn new(node: NodeId, incarnation: Incarnation) -> Self {
        Self {
            node,
            incarnation,
            limit: Limit { records: 100_000, bytes: 256 << 20, deletions: 50_000 },
            within: Span::secs(2),
            fallback_after: Span::secs(1),
            retry_after: Span::millis(300),
            settle_after: Span::secs(30),
            hurry_after: Span::millis(150),
            sync_every: Span::secs(10),
            step_every: Span::millis(50),
            step_buckets: 16,
            push_bytes_s: 16 << 20,
            drop_after: Span::secs(60),
            forget_after: Span::secs(600),
        }
    }
}
