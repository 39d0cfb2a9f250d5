//! What the machine has counted since its start; `node` registers them as metrics.

/// Plain counters, all since start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Own block events that changed something at an index granule.
    pub events: u64,
    /// Own block events left out: between granules, or no change.
    pub events_skipped: u64,
    /// Own batches made.
    pub batches_made: u64,
    /// Batches of others handed on.
    pub batches_learned: u64,
    /// Batches and heartbeats already known.
    pub duplicates: u64,
    /// Frames whose signature is not their author's.
    pub forged: u64,
    /// Frames from or about nodes that are no members.
    pub strangers: u64,
    /// Frames of a life that is over.
    pub old_lives: u64,
    /// Frames over a limit, or sent before `Hello`.
    pub improper: u64,
    /// Batches that waited for an earlier one and were let go for room.
    pub pending_dropped: u64,
    /// Batches that do not continue the chain.
    pub chain_breaks: u64,
    /// Ranges asked for.
    pub wants: u64,
    /// Ranges served.
    pub wants_served: u64,
    /// Snapshots asked for.
    pub snapshot_wants: u64,
    /// Snapshots sent (one per origin).
    pub snapshots_served: u64,
    /// Snapshots taken over.
    pub snapshots_learned: u64,
    /// Snapshots refused: not asked for, of another life, or incomplete.
    pub snapshots_refused: u64,
    /// Buckets asked for.
    pub bucket_wants: u64,
    /// Answers with buckets sent.
    pub buckets_served: u64,
    /// Answers with buckets taken over.
    pub buckets_learned: u64,
    /// Parts refused: not asked for, out of order, or contradicting the origin.
    pub buckets_refused: u64,
    /// Bytes of sets and buckets sent, about.
    pub donated_bytes: u64,
    /// An origin's signed digest and the set told for it differ.
    pub digest_mismatch: u64,
    /// Times this node was itself stalled, so that silence of others did not count.
    pub stalls: u64,
    /// Members that became suspect.
    pub suspicions: u64,
    /// Suspicions told to others.
    pub accusations: u64,
    /// Suspicions of this node or of others that were contradicted with proof.
    pub refutations: u64,
    /// Members that became dead.
    pub deaths: u64,
    /// Certificates refused: not the issuer's, run out, or no room.
    pub certs_refused: u64,
    /// Connections refused at `Hello`.
    pub refused: u64,
}
