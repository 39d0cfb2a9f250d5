//! The Messages dialect.

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
}

impl Frame {
    pub(crate) fn id(&self) -> String {
        format!("msg_{}", self.request)
    }

    /// The signature of a thinking block. Opaque; nothing is checked when it comes back.
    fn signature(&self) -> String {
        format!("dn1{}", self.request)
    }

    /// The id of a call: unique by the request, and the same in both forms of the answer.
    fn call_id(&self, index: u32) -> String {
        format!("toolu_{}{index:02x}", self.request)
    }
}

/// `stop_reason` and `stop_sequence`.
fn stop_reason(reason: &Reason) -> (&'static str, Option<&str>) {
    match reason {
        Reason::Stop => ("end_turn", None),
        Reason::StopString(text) => ("stop_sequence", Some(text)),
        Reason::ToolCalls => ("tool_use", None),
        Reason::Length => ("max_tokens", None),
        Reason::ContextFull => ("model_context_window_exceeded", None),
    }
}

/// The three input counters always sum to the prompt's length.
fn usage(usage: &Usage) -> Value {
    let cached = usage.cached();
    json!({
        "input_tokens": usage.prompt.saturating_sub(cached),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.output,
    })
}
