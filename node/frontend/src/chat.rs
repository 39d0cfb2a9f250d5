//! The Chat Completions dialect.

pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod stream;

use crate::stream::{Reason, Usage};
use serde_json::{Value, json};

/// What every part of one answer carries.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// Hexadecimal digits of the request.
    pub(crate) request: String,
    /// The model as the client named it.
    pub(crate) model: String,
    /// Seconds since the Unix epoch.
    pub(crate) created: u64,
}

impl Frame {
    pub(crate) fn id(&self) -> String {
        format!("chatcmpl-{}", self.request)
    }
}

fn finish_reason(reason: &Reason) -> &'static str {
    match reason {
        Reason::Stop | Reason::StopString(_) => "stop",
        Reason::ToolCalls => "tool_calls",
        Reason::Length | Reason::ContextFull => "length",
    }
}

/// Counts, as Chat Completions and Completions tell them.
pub(crate) fn usage(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.output,
        "total_tokens": usage.prompt.saturating_add(usage.output),
        "prompt_tokens_details": { "cached_tokens": usage.cached() },
        "completion_tokens_details": { "reasoning_tokens": usage.reasoning },
    })
}

/// The id of a call: unique by the request, and the same in both forms of the answer.
fn call_id(request: &str, index: u32) -> String {
    format!("call_{request}{index:02x}")
}
