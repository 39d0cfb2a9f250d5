//! A whole Chat Completions answer.

use super::{Frame, call_id, finish_reason, usage};
use crate::stream::{Ending, Piece};
use serde_json::{Map, Value, json};

/// The body, from all pieces of an answer.
pub(crate) fn body(
    frame: &Frame,
    pieces: &[Piece],
    ending: &Ending,
    nvext: Option<Value>,
) -> Value {
    let mut body = json!({
        "id": frame.id(),
        "object": "chat.completion",
        "created": frame.created,
        "model": frame.model,
        "choices": [{
            "index": 0,
            "message": message(frame, pieces),
            "logprobs": null,
            "finish_reason": finish_reason(&ending.reason),
        }],
        "usage": usage(&ending.usage),
    });
    if let (Some(nvext), Some(body)) = (nvext, body.as_object_mut()) {
        body.insert("nvext".into(), nvext);
    }
    body
}

fn message(frame: &Frame, pieces: &[Piece]) -> Value {
    let (mut text, mut reasoning) = (String::new(), String::new());
    let mut calls: Vec<(&str, String)> = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Text(more) => text.push_str(more),
            Piece::Reasoning(more) => reasoning.push_str(more),
            Piece::CallStart { name, .. } => calls.push((name, String::new())),
            Piece::CallArguments { fragment, .. } => {
                if let Some((_, arguments)) = calls.last_mut() {
                    arguments.push_str(fragment);
                }
            }
        }
    }
    let mut message = Map::new();
    message.insert("role".into(), "assistant".into());
    let content = if text.is_empty() && !calls.is_empty() { Value::Null } else { text.into() };
    message.insert("content".into(), content);
    message.insert("refusal".into(), Value::Null);
    if !reasoning.is_empty() {
        message.insert("reasoning_content".into(), reasoning.into());
    }
    if !calls.is_empty() {
        let calls = calls.into_iter().zip(0..).map(|((name, arguments), index)| {
            json!({
                "id": call_id(&frame.request, index),
                "type": "function",
                "function": { "name": name, "arguments": arguments },
            })
        });
        message.insert("tool_calls".into(), calls.collect());
    }
    Value::Object(message)
}
