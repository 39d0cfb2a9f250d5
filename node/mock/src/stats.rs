//! Counters.

/// What an engine did since it was made; plain counters for metrics and checkers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Steps.
    pub steps: u64,
    /// Prompt tokens computed.
    pub prefill_tokens: u64,
    /// Decode positions computed.
    pub decode_tokens: u64,
    /// Jobs taken.
    pub jobs: u64,
    /// Jobs refused.
    pub refused: u64,
    /// Sequences that ended with `Finished`, cancelled ones not among them.
    pub finished: u64,
    /// Sequences that were aborted or whose reader left.
    pub cancelled: u64,
    /// Sequences that failed in a restart.
    pub failed: u64,
    /// Sequences that gave up for want of slots.
    pub gave_up: u64,
    /// Blocks copied in.
    pub imported: u64,
    /// Blocks copied out.
    pub exported: u64,
    /// Blocks copied in whose bytes were not what the sequence's own tokens imply. Must stay 0.
    pub wrong_bytes: u64,
    /// Blocks reused in place that were not what the sequence's own tokens imply. Must stay 0.
    pub wrong_slots: u64,
    /// Slots written by another while a sequence relied on them. Must stay 0.
    pub overwritten: u64,
    /// Inputs that break the contract: a slot outside the pool or of an older generation, an unsealed
    /// block reused or exported, a lease used twice. Must stay 0 (an export may meet an empty slot
    /// after a restart).
    pub violations: u64,
}
