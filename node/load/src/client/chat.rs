//! The Chat Completions dialect.

use super::CallError;
use super::assemble::Piece;
use crate::talk::{Conversation, Message};
use serde_json::{Map, Value, json};

/// Messages and tools of the body.
pub(super) fn body(conversation: &Conversation) -> Map<String, Value> {
    let preamble = &conversation.preamble;
    let mut messages = Vec::new();
    if !preamble.system.is_empty() {
        messages.push(json!({ "role": "system", "content": preamble.system }));
    }
    messages.extend(conversation.messages.iter().map(message));
    let mut body = Map::new();
    body.insert("messages".into(), Value::Array(messages));
    if !preamble.tools.is_empty() {
        let tools = preamble.tools.iter().map(|tool| {
            json!({ "type": "function", "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
            }})
        });
        body.insert("tools".into(), Value::Array(tools.collect()));
    }
    body
}

fn message(message: &Message) -> Value {
    match message {
        Message::User(text) => json!({ "role": "user", "content": text }),
        Message::Assistant { text, calls } if calls.is_empty() => {
            json!({ "role": "assistant", "content": text })
        }
        Message::Assistant { text, calls } => {
            let calls: Vec<Value> = calls
                .iter()
                .map(|call| {
                    json!({ "id": call.id, "type": "function", "function": {
                        "name": call.name, "arguments": call.arguments } })
                })
                .collect();
            json!({ "role": "assistant", "content": text, "tool_calls": calls })
        }
        Message::ToolResult { call, text } => {
            json!({ "role": "tool", "tool_call_id": call, "content": text })
        }
    }
}

/// Reads the data of one event.
pub(super) fn read(data: &str) -> Result<Vec<Piece>, CallError> {
    if data.trim() == "[DONE]" {
        return Ok(vec![Piece::End]);
    }
    let chunk: Value = serde_json::from_str(data)
        .map_err(|error| CallError::Malformed(format!("{error} in {data}")))?;
    if let Some(error) = chunk.get("error") {
        let message = error["message"].as_str().unwrap_or("no message");
        return Ok(vec![Piece::Error(message.to_owned())]);
    }
    let mut pieces = Vec::new();
    for choice in chunk["choices"].as_array().into_iter().flatten() {
        delta(&choice["delta"], &mut pieces);
        if let Some(reason) = choice["finish_reason"].as_str() {
            pieces.push(Piece::Finish(reason.to_owned()));
        }
    }
    if let Some(usage) = chunk.get("usage").filter(|usage| usage.is_object()) {
        pieces.push(Piece::Usage {
            prompt: usage["prompt_tokens"].as_u64(),
            completion: usage["completion_tokens"].as_u64(),
        });
    }
    if let Some(nvext) = chunk.get("nvext").filter(|nvext| nvext.is_object()) {
        pieces.push(Piece::Nvext(nvext.clone()));
    }
    Ok(pieces)
}

fn delta(delta: &Value, pieces: &mut Vec<Piece>) {
    if let Some(text) = delta["content"].as_str() {
        pieces.push(Piece::Text(text.to_owned()));
    }
    if let Some(text) = delta["reasoning_content"].as_str() {
        pieces.push(Piece::Reasoning(text.to_owned()));
    }
    for call in delta["tool_calls"].as_array().into_iter().flatten() {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        pieces.push(Piece::Call {
            index: call["index"].as_u64().unwrap_or_default(),
            id: text(&call["id"]),
            name: text(&call["function"]["name"]),
            arguments: text(&call["function"]["arguments"]),
        });
    }
}
