//! Recorded loads. The caller reads the file; here its lines are parsed.
//!
//! Two formats, told apart by their first line; all are JSON lines, one value per line:
//! * **requests** (Mooncake's traces, and agentic ones in that form): `timestamp` (milliseconds from
//!   the start), `input_length`, `output_length` (tokens), `hash_ids` (one number per 512 tokens of
//!   the prompt; equal numbers after equal numbers mean equal text), optional `session_id`. Other keys
//!   are ignored.
//! * **sessions**: `session`, `block_size` (tokens per number) and `reqs`, a list of requests with `t`
//!   (seconds from the session's start), `i` and `o` (tokens in and out) and `h` (runs of numbers:
//!   first, count). Numbers of different sessions are unrelated. Requests of sub-agents (without `h`)
//!   are left out; sessions begin one after the other, a second apart.
//!
//! Text is not recorded: the tokens of a numbered piece are drawn from its number, so that equal
//! numbers give equal tokens.

use crate::clients::Question;
use crate::dice::Dice;
use crate::host::VOCABULARY;
use crate::mail::Event;
use crate::scenario::Workload;
use crate::world::World;
use protocol::hash::Token;
use protocol::time::{Span, Time};
use serde::Deserialize;

#[cfg(test)]
mod tests;

/// Tokens per number in the format of requests.
const REQUEST_BLOCK: u32 = 512;
/// Most tokens per number in the format of sessions.
const PIECE_MAX: u32 = 65_536;
/// Longest prompt or answer, in tokens.
const LENGTH_MAX: u32 = 16 << 20;
/// Between the starts of two sessions.
const SESSION_EVERY_MS: f64 = 1000.0;

/// A request of a trace.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct TraceRequest {
    /// From the start.
    pub(crate) at: Span,
    pub(crate) session: Option<String>,
    /// Numbers of its pieces, with the session's own number where they belong to it.
    pub(crate) pieces: Vec<(u64, u64)>,
    /// Tokens of a piece.
    pub(crate) piece: u32,
    pub(crate) input: u32,
    pub(crate) output: u32,
}

/// A trace, parsed.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Trace {
    pub(crate) requests: Vec<TraceRequest>,
}

/// Why a trace cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line} of the trace: {what}")]
pub struct TraceError {
    /// Which line, from 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

#[derive(Deserialize)]
struct RequestLine {
    timestamp: f64,
    input_length: u32,
    output_length: u32,
    hash_ids: Vec<u64>,
    session_id: Option<String>,
}

#[derive(Deserialize)]
struct SessionLine {
    session: String,
    block_size: u32,
    reqs: Vec<SessionRequest>,
}

#[derive(Deserialize)]
struct SessionRequest {
    #[serde(default)]
    t: f64,
    #[serde(default)]
    i: u32,
    #[serde(default)]
    o: u32,
    h: Option<Vec<(u64, u64)>>,
}

/// Refuses times and lengths that no recorder writes. Lines are counted from 0 here.
fn sound(line: usize, at: f64, input: u32, output: u32) -> Result<(), TraceError> {
    let what = if !(0.0..=1e12).contains(&at) {
        format!("the time {at} is none")
    } else if input > LENGTH_MAX || output > LENGTH_MAX {
        format!("a length is greater than {LENGTH_MAX} tokens")
    } else {
        return Ok(());
    };
    Err(TraceError { line: line + 1, what })
}

impl Trace {
    /// Parses the text of a trace.
    ///
    /// # Errors
    /// The first line that is none, and why.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let mut trace = Self::default();
        for (at, line) in lines {
            let wrong =
                |error: serde_json::Error| TraceError { line: at + 1, what: error.to_string() };
            let value: serde_json::Value = serde_json::from_str(line).map_err(wrong)?;
            if value.get("reqs").is_some() {
                let session: SessionLine = serde_json::from_value(value).map_err(wrong)?;
                if !(1..=PIECE_MAX).contains(&session.block_size) {
                    let what = format!("block_size must be 1 to {PIECE_MAX}");
                    return Err(TraceError { line: at + 1, what });
                }
                for request in &session.reqs {
                    sound(at, request.t, request.i, request.o)?;
                }
                trace.add_session(session, at);
            } else {
                let request: RequestLine = serde_json::from_value(value).map_err(wrong)?;
                sound(at, request.timestamp, request.input_length, request.output_length)?;
                trace.requests.push(TraceRequest {
                    at: Span::from_ms(request.timestamp),
                    session: request.session_id,
                    pieces: request.hash_ids.into_iter().map(|id| (0, id)).collect(),
                    piece: REQUEST_BLOCK,
                    input: request.input_length,
                    output: request.output_length,
                });
            }
        }
        if trace.requests.is_empty() {
            return Err(TraceError { line: 1, what: "there is no request in it".into() });
        }
        trace.requests.sort_by_key(|request| request.at);
        Ok(trace)
    }

    fn add_session(&mut self, session: SessionLine, line: usize) {
        let number = line as u64 + 1;
        for request in session.reqs {
            let Some(runs) = request.h else { continue };
            let pieces = runs.iter().flat_map(|(first, count)| {
                (*first..first.saturating_add((*count).min(1 << 20))).map(|id| (number, id))
            });
            self.requests.push(TraceRequest {
                at: Span::from_ms(request.t * 1e3 + line as f64 * SESSION_EVERY_MS),
                session: Some(session.session.clone()),
                pieces: pieces.collect(),
                piece: session.block_size.max(1),
                input: request.i,
                output: request.o,
            });
        }
    }

    /// Number of requests.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}

/// The prompt of a request, its lengths divided by `shrink`.
fn tokens(request: &TraceRequest, shrink: u32) -> Vec<Token> {
    let piece = (request.piece / shrink).max(1) as usize;
    let length = (request.input / shrink).max(1) as usize;
    let mut tokens = Vec::with_capacity(length);
    let text = |(owner, id): (u64, u64)| {
        let mut dice = Dice::new(owner, &format!("piece {id}"));
        (0..piece).map(move |_| Token(1 + dice.below(u64::from(VOCABULARY) - 1) as u32))
    };
    for at in 0.. {
        // What has no number belongs to this request alone.
        let own = (u64::MAX - request.at.0, at as u64);
        tokens.extend(text(request.pieces.get(at).copied().unwrap_or(own)));
        if tokens.len() >= length {
            break;
        }
    }
    tokens.truncate(length);
    tokens
}

fn due(workload: &Workload, request: &TraceRequest) -> Time {
    Time(2_000_000_000) + Span::from_ms(request.at.as_ms() * workload.trace_time_scale)
}

impl World {
    /// Begins to play the trace.
    pub(crate) fn start_trace(&mut self, trace: &Trace) {
        let most = self.scenario.workload.trace_requests as usize;
        self.clients.trace = trace.requests.iter().take(most).cloned().collect();
        self.plan_trace();
    }

    fn plan_trace(&mut self) {
        if let Some(next) = self.clients.trace.get(self.clients.trace_at) {
            let at = due(&self.scenario.workload, next);
            self.plan(at, Event::Trace);
        }
    }

    /// The next request of the trace is asked.
    pub(crate) fn trace_asks(&mut self) {
        if !self.stormy {
            return;
        }
        let Some(request) = self.clients.trace.get(self.clients.trace_at).cloned() else { return };
        self.clients.trace_at += 1;
        let shrink = self.scenario.workload.trace_shrink;
        let max_tokens = (request.output / shrink).max(1);
        let room = self.scenario.cluster.context.saturating_sub(max_tokens.saturating_add(1));
        let mut tokens = tokens(&request, shrink);
        tokens.truncate(room.max(1) as usize);
        let session = request.session.as_deref();
        let question = Question { session, tokens, known: Vec::new(), max_tokens, pinned: None };
        self.ask(None, None, question);
        self.plan_trace();
    }
}
