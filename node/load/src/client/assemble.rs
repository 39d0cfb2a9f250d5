//! Puts the pieces of a stream together, whatever the dialect.

use super::{CachedTokens, CallError, Outcome, Timing};
use crate::talk::ToolCall;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// What one event can carry.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Piece {
    /// More text.
    Text(String),
    /// More reasoning.
    Reasoning(String),
    /// More of the tool call at this index; empty parts are unchanged.
    Call {
        /// Position among the answer's calls.
        index: u64,
        /// Its id.
        id: String,
        /// Its name.
        name: String,
        /// More of its arguments.
        arguments: String,
    },
    /// Prompt and completion tokens; a later value replaces an earlier one.
    Usage {
        /// Length of the prompt, cached tokens included.
        prompt: Option<u64>,
        /// Tokens generated so far.
        completion: Option<u64>,
    },
    /// The `nvext` object.
    Nvext(Value),
    /// Finish or stop reason.
    Finish(String),
    /// An error event.
    Error(String),
    /// The terminal event.
    End,
}

/// Collects pieces into an [`Outcome`].
#[derive(Debug, Default)]
pub(super) struct Assembler {
    outcome: Outcome,
    calls: BTreeMap<u64, ToolCall>,
    last_content: Option<Duration>,
}

impl Assembler {
    /// Notes the HTTP status.
    pub(super) fn status(&mut self, status: u16) {
        self.outcome.status = Some(status);
    }

    /// Takes a piece that arrived `at` after sending; true at the terminal event.
    pub(super) fn take(&mut self, piece: Piece, at: Duration) -> Result<bool, CallError> {
        match piece {
            Piece::Text(text) => {
                self.content(!text.is_empty(), at);
                self.outcome.text.push_str(&text);
            }
            Piece::Reasoning(text) => {
                self.content(!text.is_empty(), at);
                self.outcome.reasoning.push_str(&text);
            }
            Piece::Call { index, id, name, arguments } => {
                self.content(true, at);
                let call = self.calls.entry(index).or_default();
                if !id.is_empty() {
                    call.id = id;
                }
                if !name.is_empty() {
                    call.name = name;
                }
                call.arguments.push_str(&arguments);
            }
            Piece::Usage { prompt, completion } => {
                self.outcome.prompt_tokens = prompt.unwrap_or(self.outcome.prompt_tokens);
                self.outcome.completion_tokens =
                    completion.unwrap_or(self.outcome.completion_tokens);
            }
            Piece::Nvext(value) => self.nvext(&value)?,
            Piece::Finish(reason) => self.outcome.finish = reason,
            Piece::Error(message) => return Err(CallError::Failed(message)),
            Piece::End => return Ok(true),
        }
        Ok(false)
    }

    fn content(&mut self, any: bool, at: Duration) {
        if !any {
            return;
        }
        match self.last_content {
            None => self.outcome.ttft = Some(at),
            Some(last) => self.outcome.itl.push(at.saturating_sub(last)),
        }
        self.last_content = Some(at);
    }

    fn nvext(&mut self, value: &Value) -> Result<(), CallError> {
        let bad = |what: &str| CallError::Malformed(format!("nvext.{what} in {value}"));
        let outcome = &mut self.outcome;
        if let Some(ids) = value.get("completion_token_ids") {
            outcome.token_ids =
                serde_json::from_value(ids.clone()).map_err(|_| bad("completion_token_ids"))?;
        }
        if let Some(tokens) = value.get("prompt_tokens").and_then(Value::as_u64) {
            outcome.prompt_tokens = tokens;
        }
        if let Some(timing) = value.get("timing") {
            let timing: Timing =
                serde_json::from_value(timing.clone()).map_err(|_| bad("timing"))?;
            outcome.timing = Some(timing);
        }
        if let Some(route) = value.get("route") {
            let text = |key: &str| route[key].as_str().unwrap_or_default().to_owned();
            outcome.entry_node = text("entry_node");
            outcome.serving_node = text("serving_node");
            outcome.outcome = text("outcome");
            outcome.cached = serde_json::from_value::<CachedTokens>(route["cached_tokens"].clone())
                .map_err(|_| bad("route.cached_tokens"))?;
            outcome.computed =
                route["computed_tokens"].as_u64().ok_or_else(|| bad("route.computed_tokens"))?;
        }
        Ok(())
    }

    /// The outcome, with the reason for a failure and the whole time.
    pub(super) fn finish(mut self, error: Option<CallError>, total: Duration) -> Outcome {
        self.outcome.error = error;
        self.outcome.total = total;
        self.outcome.calls = self.calls.into_values().collect();
        if self.outcome.completion_tokens == 0 {
            self.outcome.completion_tokens = self.outcome.token_ids.len() as u64;
        }
        // An answer without content (the model ended at once) has its end as first sign of life.
        if self.outcome.ttft.is_none() && self.outcome.error.is_none() {
            self.outcome.ttft = Some(total);
        }
        self.outcome
    }
}
