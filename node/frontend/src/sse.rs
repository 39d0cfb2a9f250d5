//! Server-sent events: an answer written by a dialect, with heartbeats.
//!
//! The body is pulled by the connection: a slow reader holds at most one batch of pieces here,
//! the rest waits in the cluster's bounded channel. A client that goes away drops the body, the
//! answer in it, and with that the request.

use crate::ahead::Ahead;
use crate::answer::{Answer, Next};
use crate::error::ApiError;
use crate::keeper::{Keeper, Standing};
use crate::responses::record::Record;
use crate::stream::{Ending, Piece, Usage};
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use futures::future::BoxFuture;
use serde_json::Value;
use std::convert::Infallible;
use std::time::Duration;

/// A dialect's stream: pure functions from events to text.
pub(crate) trait Writer: Send {
    /// At once, before anything is known.
    fn open(&mut self, out: &mut String);
    /// Prefill is done.
    fn began(&mut self, usage: &Usage, out: &mut String);
    fn piece(&mut self, piece: &Piece, out: &mut String);
    /// Nothing has come for a while; must carry data.
    fn heartbeat(&mut self, out: &mut String);
    /// All pieces have come. What shall be kept of the answer is kept before its end is told.
    fn settle(&mut self, _ending: &Ending, _out: &mut String) -> Option<Record> {
        None
    }
    /// How it is kept.
    fn kept(&mut self, _standing: Standing) {}
    fn ended(&mut self, ending: &Ending, nvext: Option<Value>, out: &mut String);
    fn failed(&mut self, error: &ApiError, usage: &Usage, out: &mut String);
}

/// Writes one event.
pub(crate) fn event(name: Option<&str>, data: &Value, out: &mut String) {
    if let Some(name) = name {
        out.push_str("event: ");
        out.push_str(name);
        out.push('\n');
    }
    out.push_str("data: ");
    out.push_str(&data.to_string());
    out.push_str("\n\n");
}

enum Phase {
    Opening,
    Running,
    /// The answer is being kept; then comes its end.
    Keeping(BoxFuture<'static, Standing>, Ending, Option<Value>),
    Over,
}

/// What came within a heartbeat.
enum Step {
    Next(Next),
    Kept(Standing),
}

struct State {
    answer: Answer,
    writer: Box<dyn Writer>,
    heartbeat: Duration,
    keeper: Keeper,
    ahead: Option<Ahead>,
    phase: Phase,
}

impl State {
    /// The next bytes of the body.
    async fn advance(&mut self) -> Option<String> {
        let mut out = String::new();
        match self.phase {
            Phase::Over => return None,
            Phase::Opening => {
                self.phase = Phase::Running;
                self.writer.open(&mut out);
                if !out.is_empty() {
                    return Some(out);
                }
            }
            Phase::Running | Phase::Keeping(..) => {}
        }
        while out.is_empty() && !matches!(self.phase, Phase::Over) {
            let step = async {
                match &mut self.phase {
                    Phase::Keeping(keeping, ..) => Step::Kept(keeping.await),
                    _ => Step::Next(self.answer.next().await),
                }
            };
            match tokio::time::timeout(self.heartbeat, step).await {
                Err(_) => self.writer.heartbeat(&mut out),
                Ok(Step::Next(next)) => self.write(next, &mut out),
                Ok(Step::Kept(standing)) => {
                    self.writer.kept(standing);
                    let phase = std::mem::replace(&mut self.phase, Phase::Over);
                    if let Phase::Keeping(_, ending, nvext) = phase {
                        self.writer.ended(&ending, nvext, &mut out);
                    }
                }
            }
        }
        Some(out)
    }

    fn write(&mut self, next: Next, out: &mut String) {
        match next {
            Next::Began(usage) => self.writer.began(&usage, out),
            Next::Piece(piece) => {
                if let Some(ahead) = &mut self.ahead {
                    ahead.piece(&piece);
                }
                self.writer.piece(&piece, out);
            }
            Next::Ended(ending, nvext) => {
                if let Some(ahead) = self.ahead.take() {
                    ahead.ended(&ending);
                }
                self.settle(ending, nvext, out);
            }
            Next::Failed(refusal, usage) => {
                self.phase = Phase::Over;
                self.writer.failed(&refusal.into(), &usage, out);
            }
        }
    }

    /// All pieces have come.
    fn settle(&mut self, ending: Ending, nvext: Option<Value>, out: &mut String) {
        match self.writer.settle(&ending, out) {
            Some(record) => {
                let keeper = self.keeper.clone();
                let keeping = async move { keeper.keep(record).await };
                self.phase = Phase::Keeping(Box::pin(keeping), ending, nvext);
            }
            None => {
                self.phase = Phase::Over;
                self.writer.ended(&ending, nvext, out);
            }
        }
    }
}

/// The streaming response.
pub(crate) fn response(
    answer: Answer,
    writer: Box<dyn Writer>,
    keeper: Keeper,
    ahead: Option<Ahead>,
    heartbeat: Duration,
) -> Response {
    let state = State { answer, writer, heartbeat, keeper, ahead, phase: Phase::Opening };
    let body = futures::stream::unfold(state, |mut state| async move {
        let bytes = state.advance().await?;
        Some((Ok::<_, Infallible>(Bytes::from(bytes)), state))
    });
    let mut response = Response::new(Body::from_stream(body));
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, "text/event-stream; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
        // Proxies that buffer would undo the streaming.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod fuzz;
