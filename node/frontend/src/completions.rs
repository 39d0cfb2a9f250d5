//! The Completions dialect: text, or tokens, in and text out, without a template.

pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod stream;

use crate::stream::{Piece, Reason};
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
    /// The object; the stream sends many, each with a part of the text.
    fn object(&self, choices: &Value) -> Value {
        json!({
            "id": format!("cmpl-{}", self.request),
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": choices,
        })
    }
}

fn choice(text: &str, finish: Option<&Reason>) -> Value {
    let finish = finish.map(|reason| match reason {
        Reason::Stop | Reason::StopString(_) | Reason::ToolCalls => "stop",
        Reason::Length | Reason::ContextFull => "length",
    });
    json!([{ "index": 0, "text": text, "logprobs": null, "finish_reason": finish }])
}

/// The text of a piece: nothing else comes without a template.
fn text(piece: &Piece) -> &str {
    match piece {
        Piece::Text(text) | Piece::Reasoning(text) => text,
        Piece::CallStart { .. } | Piece::CallArguments { .. } => "",
    }
}
