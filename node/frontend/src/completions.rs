//! The Completions dialect: text, or tokens, in and text out, without a template. Its frame and its
//! counts are those of Chat Completions.

pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod stream;

use crate::chat::Frame;
use crate::stream::{Piece, Reason};
use serde_json::{Value, json};

/// The object; the stream sends many, each with a part of the text.
fn object(frame: &Frame, choices: &Value) -> Value {
    json!({
        "id": format!("cmpl-{}", frame.request),
        "object": "text_completion",
        "created": frame.created,
        "model": frame.model,
        "choices": choices,
    })
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
