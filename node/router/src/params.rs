//! The numbers of the cost.

use protocol::time::Span;

/// Weights, defaults for what is not measured yet, and settings that force a decision.
///
/// A rate that a node has not measured yet is taken as the best measured one among the candidates
/// (so that a newcomer is tried and thereby measured), else as the default here.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Params {
    /// λ: weight of decode pressure (milliseconds of decoding on a full pool count this much).
    pub decode_weight: f64,
    /// μ: price of a millisecond of engine time. At 0.5 a prompt waits for a busy holder up to
    /// half as long again as computing the prefix elsewhere would take.
    pub gpu_weight: f64,
    /// Prefill rate in tokens per second where nobody has measured one.
    pub prefill_tokens_s: f64,
    /// Milliseconds per decode step where nobody has measured one.
    pub decode_ms: f64,
    /// Bandwidth between two nodes in bytes per second until measured.
    pub bandwidth_bytes_s: f64,
    /// Round trip between two nodes in milliseconds until measured.
    pub rtt_ms: f64,
    /// Copy rate from DRAM into an engine's pool, bytes per second.
    pub dram_bytes_s: f64,
    /// Read rate of a node's NVMe, bytes per second (1 GB/s): dearer than DRAM, and for a peer's
    /// blocks added to the way over the network.
    pub nvme_bytes_s: f64,
    /// Expected answer length in tokens when the caller gives none.
    pub osl: u32,
    /// Candidates whose costs differ by less than this many milliseconds count as equal.
    pub tie_ms: f64,
    /// … or by less than this share of the best cost.
    pub tie_share: f64,
    /// A placement is contained in a heartbeat that arrives this much later.
    pub covered_after: Span,
    /// How long a prompt that began to run counts as cached at its target before its events come.
    pub linger: Span,
    /// A placement that was not answered stops counting after this long.
    pub forgotten_after: Span,
    /// A fetch may take this many times the recompute estimate.
    pub deadline_margin: f64,
    /// … and at least this many milliseconds.
    pub deadline_min_ms: f64,
    /// Forces the bandwidth between any two nodes, bytes per second.
    pub assume_bandwidth_bytes_s: Option<f64>,
    /// Forces every engine's prefill rate, tokens per second; the quadratic term is then 0.
    pub assume_prefill_tokens_s: Option<f64>,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            decode_weight: 0.05,
            gpu_weight: 0.5,
            prefill_tokens_s: 1_000.0,
            decode_ms: 20.0,
            bandwidth_bytes_s: 100e6,
            rtt_ms: 1.0,
            dram_bytes_s: 4e9,
            nvme_bytes_s: 1e9,
            osl: 256,
            tie_ms: 0.05,
            tie_share: 0.005,
            covered_after: Span::millis(100),
            linger: Span::millis(1_000),
            forgotten_after: Span::secs(60),
            deadline_margin: 1.25,
            deadline_min_ms: 20.0,
            assume_bandwidth_bytes_s: None,
            assume_prefill_tokens_s: None,
        }
    }
}
