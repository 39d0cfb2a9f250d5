//! What the machine has counted since its start, and what it holds; `node` registers them as metrics.

use protocol::state::RecordKind;

/// Plain counters, all since start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Writes (and deletions) that came in here.
    pub puts: u64,
    /// Reads that came in here.
    pub gets: u64,
    /// Deletions that came in here.
    pub deletes: u64,
    /// Writes acknowledged as safe.
    pub safe: u64,
    /// Writes acknowledged as degraded.
    pub degraded: u64,
    /// Writes that no node kept.
    pub not_kept: u64,
    /// Reads and deletions without an answer for want of owners.
    pub unavailable: u64,
    /// Reads answered from a copy while owners were silent.
    pub unconfirmed: u64,
    /// Writes made again above a later one.
    pub bumps: u64,
    /// Frames sent again.
    pub retries: u64,
    /// Acknowledgements given to other nodes, as an owner.
    pub acks: u64,
    /// Records pushed to owners that a read found to lack them.
    pub read_repairs: u64,
    /// Buckets in which an owner held something else.
    pub mismatches: u64,
    /// Records pushed to owners that lacked them.
    pub pushed: u64,
    /// Bytes of those.
    pub pushed_bytes: u64,
    /// Records taken over from a push.
    pub taken: u64,
    /// Copies let go of, since all owners have them.
    pub handed_over: u64,
    /// Records whose time was over.
    pub expired: u64,
    /// Records dropped for room before their time.
    pub evicted: u64,
    /// Records refused for want of room.
    pub refused: u64,
    /// Writes and erasures that the disk did not take.
    pub disk_failed: u64,
    /// Frames from nodes that are no members.
    pub strangers: u64,
    /// Frames over a limit, or that make no sense.
    pub improper: u64,
}

/// What the machine holds of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Held {
    /// Records, without deletions.
    pub records: u64,
    /// Remembered deletions.
    pub deletions: u64,
    /// Bytes of values.
    pub bytes: u64,
}

/// What the machine holds now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Records, without deletions.
    pub records: u64,
    /// Remembered deletions.
    pub deletions: u64,
    /// Bytes of values.
    pub bytes: u64,
    /// The same by kind, in the order of [`RecordKind::ALL`].
    pub kinds: [Held; RecordKind::ALL.len()],
    /// Calls under way, or waiting for their turn.
    pub ops: u64,
    /// Writes and erasures that the disk has not taken.
    pub unwritten: u64,
    /// Records that wait to be pushed.
    pub pushes: u64,
}
