//! Figures of a run: per arm (policy and load) times, cached share and its ceiling.

use crate::client::{CachedTokens, Outcome};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::time::Duration;

/// Three significant digits.
const DIGITS: u8 = 3;

/// All arms, as `bench agents --json` prints them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// In the order of the runs.
    pub arms: Vec<Arm>,
}

/// One arm: one policy under one load on fresh nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Arm {
    /// Placement policy.
    pub policy: String,
    /// Agent sessions at once.
    pub sessions: u32,
    /// Calls of the plan.
    pub requests: u64,
    /// Calls without a whole answer, those left out when the arm's time was over included.
    pub failed: u64,
    /// Time to the first content, in milliseconds, as the clients saw it.
    pub ttft_ms: Percentiles,
    /// Between two events with content, in milliseconds, as the clients saw it.
    pub itl_ms: Percentiles,
    /// Prompt tokens of the answered calls.
    pub prompt_tokens: u64,
    /// Of these, cached ones by source.
    pub cached_tokens: CachedTokens,
    /// Cached share of the prompt tokens, 0 to 1.
    pub cached_share: f64,
    /// Share that a perfect cache would have reached: see [`crate::ceiling`].
    pub ceiling: f64,
}

/// Percentiles in milliseconds; none when nothing was measured.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Percentiles {
    /// Median.
    pub p50: Option<f64>,
    /// Nine in ten are faster.
    pub p90: Option<f64>,
    /// Ninety-nine in a hundred are faster.
    pub p99: Option<f64>,
}

/// Collects the outcomes of one arm.
#[derive(Debug)]
pub struct Recorder {
    policy: String,
    sessions: u32,
    planned: u64,
    answered: u64,
    ttft: Times,
    itl: Times,
    prompt_tokens: u64,
    cached: CachedTokens,
    reachable: u64,
}

impl Recorder {
    /// A recorder for an arm of `planned` calls.
    pub fn new(policy: impl Into<String>, sessions: u32, planned: u64) -> Self {
        Self {
            policy: policy.into(),
            sessions,
            planned,
            answered: 0,
            ttft: Times::default(),
            itl: Times::default(),
            prompt_tokens: 0,
            cached: CachedTokens::default(),
            reachable: 0,
        }
    }

    /// Adds a call with its ceiling in tokens. A failed one adds to nothing but the failures.
    pub fn add(&mut self, outcome: &Outcome, ceiling_tokens: u64) {
        if !outcome.ok() {
            return;
        }
        self.answered += 1;
        if let Some(ttft) = outcome.ttft {
            self.ttft.add(ttft);
        }
        for gap in &outcome.itl {
            self.itl.add(*gap);
        }
        self.prompt_tokens += outcome.prompt_tokens;
        self.cached.gpu += outcome.cached.gpu;
        self.cached.dram += outcome.cached.dram;
        self.cached.nvme += outcome.cached.nvme;
        self.cached.peer += outcome.cached.peer;
        self.reachable += ceiling_tokens;
    }

    /// The figures.
    pub fn arm(self) -> Arm {
        let share = |tokens: u64| {
            if self.prompt_tokens == 0 { 0.0 } else { tokens as f64 / self.prompt_tokens as f64 }
        };
        Arm {
            sessions: self.sessions,
            requests: self.planned,
            failed: self.planned.saturating_sub(self.answered),
            ttft_ms: self.ttft.percentiles(),
            itl_ms: self.itl.percentiles(),
            prompt_tokens: self.prompt_tokens,
            cached_tokens: self.cached,
            cached_share: rounded(share(self.cached.sum()), 4),
            ceiling: rounded(share(self.reachable), 4),
            policy: self.policy,
        }
    }
}

/// Times in microseconds.
#[derive(Debug)]
pub(crate) struct Times(Option<Histogram<u64>>);

impl Default for Times {
    fn default() -> Self {
        Self(Histogram::new(DIGITS).ok())
    }
}

impl Times {
    pub(crate) fn add(&mut self, time: Duration) {
        if let Some(histogram) = &mut self.0 {
            // The histogram grows by itself; an error would need a time of centuries.
            let _ = histogram.record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        if let (Some(histogram), Some(other)) = (&mut self.0, &other.0) {
            // As above.
            let _ = histogram.add(other);
        }
    }

    pub(crate) fn percentiles(&self) -> Percentiles {
        let histogram = self.0.as_ref().filter(|histogram| !histogram.is_empty());
        let at = |quantile: f64| {
            histogram.map(|h| rounded(h.value_at_quantile(quantile) as f64 / 1000.0, 3))
        };
        Percentiles { p50: at(0.5), p90: at(0.9), p99: at(0.99) }
    }
}

fn rounded(value: f64, digits: i32) -> f64 {
    let unit = 10f64.powi(digits);
    (value * unit).round() / unit
}

impl Report {
    /// A table of at most 100 columns.
    pub fn table(&self) -> String {
        let mut text = String::from(
            "policy          sess  calls fail  ttft ms p50    p90    p99  itl p50  p99  prompt tok \
             cached  ceil\n",
        );
        for arm in &self.arms {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{:<15} {:>4} {:>6} {:>4} {:>12} {:>6} {:>6} {:>8} {:>4} {:>11} {:>6.3} {:>5.3}",
                arm.policy,
                arm.sessions,
                arm.requests,
                arm.failed,
                whole(arm.ttft_ms.p50),
                whole(arm.ttft_ms.p90),
                whole(arm.ttft_ms.p99),
                whole(arm.itl_ms.p50),
                whole(arm.itl_ms.p99),
                arm.prompt_tokens,
                arm.cached_share,
                arm.ceiling,
            );
        }
        text.push_str("cached tokens by source:\n");
        for arm in &self.arms {
            let c = arm.cached_tokens;
            let _ = writeln!(
                text,
                "{:<15} {:>4}  gpu {}  dram {}  nvme {}  peer {}",
                arm.policy, arm.sessions, c.gpu, c.dram, c.nvme, c.peer
            );
        }
        text
    }
}

fn whole(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"))
}

#[cfg(test)]
mod tests;
