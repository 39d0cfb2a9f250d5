//! When a target sends a placed request back.

use protocol::event::EngineLoad;
use protocol::plan::Estimate;

/// A target bounces a request only when it is this much busier than the chooser believed,
/// in milliseconds of waiting…
const SLACK_MS: f64 = 250.0;
/// … and by this factor.
const FACTOR: f64 = 2.0;

/// Whether the target should bounce a request once, so that it is placed again with fresh load:
/// the prefill work before it takes far longer than the chooser's estimate. Placing again costs a
/// round trip, so small differences are borne.
pub fn should_bounce(estimate: &Estimate, load: &EngineLoad) -> bool {
    let rate = f64::from(load.prefill_rate);
    if rate <= 0.0 {
        return false;
    }
    let wait_ms = f64::from(load.prefill_tokens) / rate * 1e3;
    let believed_ms = f64::from(estimate.queue_ms);
    wait_ms > believed_ms * FACTOR && wait_ms > believed_ms + SLACK_MS
}

#[cfg(test)]
mod tests;
