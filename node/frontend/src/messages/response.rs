//! A whole Messages answer.

use super::{Frame, stop_reason, usage};
use crate::stream::{Ending, Piece};
use serde_json::{Value, json};

/// The body, from all pieces of an answer.
pub(crate) fn body(
    frame: &Frame,
    pieces: &[Piece],
    ending: &Ending,
    nvext: Option<Value>,
) -> Value {
    let (reason, sequence) = stop_reason(&ending.reason);
    let mut body = json!({
        "id": frame.id(),
        "type": "message",
        "role": "assistant",
        "model": frame.model,
        "content": content(frame, pieces),
        "stop_reason": reason,
        "stop_sequence": sequence,
        "usage": usage(&ending.usage),
    });
    if let (Some(nvext), Some(body)) = (nvext, body.as_object_mut()) {
        body.insert("nvext".into(), nvext);
    }
    body
}

/// A block while it grows.
enum Open<'a> {
    Text(String),
    Thinking(String),
    Call { index: u32, name: &'a str, arguments: String },
}

/// The blocks, cut where the kind of piece changes, exactly as the stream cuts them.
fn content(frame: &Frame, pieces: &[Piece]) -> Vec<Value> {
    let mut blocks: Vec<Open<'_>> = Vec::new();
    for piece in pieces {
        match (piece, blocks.last_mut()) {
            (Piece::Text(more), Some(Open::Text(text))) => text.push_str(more),
            (Piece::Reasoning(more), Some(Open::Thinking(text))) => text.push_str(more),
            (Piece::CallArguments { fragment, .. }, Some(Open::Call { arguments, .. })) => {
                arguments.push_str(fragment);
            }
            (Piece::Text(text), _) => blocks.push(Open::Text(text.clone())),
            (Piece::Reasoning(text), _) => blocks.push(Open::Thinking(text.clone())),
            (Piece::CallStart { index, name }, _) => {
                blocks.push(Open::Call { index: *index, name, arguments: String::new() });
            }
            (Piece::CallArguments { .. }, _) => {}
        }
    }
    let close = |block| match block {
        Open::Text(text) => json!({ "type": "text", "text": text }),
        Open::Thinking(text) => {
            json!({ "type": "thinking", "thinking": text, "signature": frame.signature() })
        }
        Open::Call { index, name, arguments } => {
            let input = serde_json::from_str(&arguments).unwrap_or_else(|_| json!({}));
            json!({ "type": "tool_use", "id": frame.call_id(index), "name": name, "input": input })
        }
    };
    blocks.into_iter().map(close).collect()
}
