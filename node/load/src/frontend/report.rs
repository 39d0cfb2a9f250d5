//! Figures of the frontend, as text and JSON.

use crate::report::Percentiles;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// What `bench frontend --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FrontendReport {
    /// How the binary was built: `development` or `release`.
    pub profile: String,
    /// CPUs of the machine.
    pub cpus: usize,
    /// CPU time of nodes without requests, in milliseconds per second.
    pub idle_ms_s: Idle,
    /// Short requests.
    pub short: Vec<Short>,
    /// New turns of long sessions.
    pub turns: Vec<Turns>,
    /// Resident memory over the run's last part.
    pub memory: Vec<Memory>,
    /// What the figures are to be held against.
    pub yardsticks: Yardsticks,
}

/// CPU time of idle nodes.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Idle {
    /// A node that only takes requests.
    pub entry: f64,
    /// A node with an engine.
    pub serving: f64,
}

/// Where a request goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    /// The node that is asked serves it.
    Local,
    /// Another node serves it.
    Hop,
    /// A process with the same HTTP stack takes as many bytes and gives as many back: the limit.
    Echo,
}

impl Path {
    fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Hop => "hop",
            Self::Echo => "echo",
        }
    }
}

/// Short requests at one concurrency.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Short {
    /// `whole` (4 tokens out) or `stream` (64 tokens out).
    pub answer: String,
    /// Where they went.
    pub path: Path,
    /// Requests at once.
    pub concurrency: u32,
    /// Answered ones.
    pub requests: u64,
    /// Failed ones.
    pub failed: u64,
    /// CPU time per request of the node that was asked (the engine's too, when it is local), in
    /// microseconds.
    pub entry_us: f64,
    /// CPU time per request of the node that served, behind a hop; engine and all.
    pub serving_us: Option<f64>,
    /// How many times the echo's CPU time at the same concurrency the node that was asked takes.
    pub of_echo: Option<f64>,
    /// From the first byte out to the last byte in, in milliseconds.
    pub latency_ms: Percentiles,
    /// Answers per second.
    pub per_s: f64,
}

/// Turns of a session with a long history; every request carries all of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Turns {
    /// Tokens of the prompt, at the end.
    pub tokens: u64,
    /// Bytes of the request body, at the end.
    pub body_bytes: usize,
    /// Measured turns; each adds four messages.
    pub turns: u32,
    /// Tokens that a turn adds.
    pub new_tokens: u64,
    /// CPU time of the entry node per new turn, in milliseconds.
    pub entry_ms: f64,
    /// … of the node that serves.
    pub serving_ms: f64,
    /// CPU time of the entry node for a request of about as many tokens as a turn adds, and no
    /// history, in milliseconds: what a turn takes beyond that, it takes for the history.
    pub alone_ms: f64,
    /// CPU time of the first request of the session on the entry node, in milliseconds: everything
    /// is read, tokenised and hashed.
    pub first_ms: f64,
    /// CPU time of the last turn on an entry node that has never seen the session, in milliseconds.
    pub unseen_ms: f64,
    /// CPU time of the echo that takes the same bytes, in milliseconds.
    pub echo_ms: f64,
    /// Latency of a turn, in milliseconds.
    pub latency_ms: Percentiles,
}

/// Resident memory at one point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Requests answered so far in this part.
    pub requests: u64,
    /// Streams abandoned so far.
    pub abandoned: u64,
    /// MiB of the entry node.
    pub entry_mib: f64,
    /// MiB of the serving node.
    pub serving_mib: f64,
}

/// Targets, and figures of others on like machines.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Yardsticks {
    /// Target: CPU per short local request, µs.
    pub local_us: f64,
    /// Target: CPU per short request with a hop, both nodes, µs.
    pub hop_us: f64,
    /// Target: CPU per new turn of a session of 100,000 tokens, beyond the new tokens, ms.
    pub turn_ms: f64,
    /// NVIDIA Dynamo 1.6.1, frontend with KV routing, c = 32, µs; its worker takes 350 more.
    pub dynamo_us: f64,
    /// sglang-router, c = 32, without tokenising, µs.
    pub sglang_router_us: f64,
}

impl Default for Yardsticks {
    fn default() -> Self {
        Self {
            local_us: 120.0,
            hop_us: 250.0,
            turn_ms: 2.0,
            dynamo_us: 360.0,
            sglang_router_us: 54.0,
        }
    }
}

pub(super) fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
}

impl FrontendReport {
    /// The echo's figure at a concurrency.
    pub(super) fn echo_us(&self, concurrency: u32) -> Option<f64> {
        let echo = |s: &&Short| s.path == Path::Echo && s.concurrency == concurrency;
        self.short.iter().find(echo).map(|short| short.entry_us)
    }

    /// Tables of at most 100 columns.
    pub fn table(&self) -> String {
        // Writing to a string cannot fail.
        let mut text = String::new();
        let y = &self.yardsticks;
        let _ = writeln!(
            text,
            "{} build, {} CPUs; idle nodes take {} (entry) and {} (serving) ms of CPU per second\n\n\
             Short requests, about 25 tokens in; whole: 4 out, stream: 64 out. CPU time.\n\
             answer path     c  requests fail  entry us  serving us  x echo  p50 ms  p99 ms     1/s",
            self.profile, self.cpus, self.idle_ms_s.entry, self.idle_ms_s.serving,
        );
        for s in &self.short {
            let _ = writeln!(
                text,
                "{:<6} {:<5} {:>4} {:>9} {:>4} {:>9.0} {:>11} {:>7} {:>7} {:>7} {:>7.0}",
                s.answer,
                s.path.name(),
                s.concurrency,
                s.requests,
                s.failed,
                s.entry_us,
                s.serving_us.map_or_else(|| "-".to_owned(), |us| format!("{us:.0}")),
                shown(s.of_echo),
                shown(s.latency_ms.p50),
                shown(s.latency_ms.p99),
                s.per_s,
            );
        }
        let _ = writeln!(
            text,
            "targets at c = 32: {} us local, {} us with a hop (both nodes); Dynamo 1.6.1: {} + 350 us; \
             sglang-router without tokenising: {} us\n\n\
             New turns, served behind a hop. CPU time in ms; the target is {} on the entry node beyond the\n\
             new tokens. alone: as many new tokens without a history; echo: the same bytes received.\n\
             tokens    body kB  turns  new tokens  entry  alone  serving  echo   first  unseen  p50 ms",
            y.local_us, y.hop_us, y.dynamo_us, y.sglang_router_us, y.turn_ms,
        );
        for t in &self.turns {
            let _ = writeln!(
                text,
                "{:>7} {:>9.0} {:>6} {:>11} {:>6.2} {:>6.2} {:>8.2} {:>5.2} {:>7.1} {:>7.1} {:>7}",
                t.tokens,
                t.body_bytes as f64 / 1000.0,
                t.turns,
                t.new_tokens,
                t.entry_ms,
                t.alone_ms,
                t.serving_ms,
                t.echo_ms,
                t.first_ms,
                t.unseen_ms,
                shown(t.latency_ms.p50),
            );
        }
        text.push_str("\nResident memory\n requests  abandoned  entry MiB  serving MiB\n");
        for m in &self.memory {
            let _ = writeln!(
                text,
                "{:>9} {:>10} {:>10.1} {:>12.1}",
                m.requests, m.abandoned, m.entry_mib, m.serving_mib
            );
        }
        text
    }
}
