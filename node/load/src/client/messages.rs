//! The Anthropic Messages dialect.

use super::CallError;
use super::assemble::Piece;
use crate::talk::{Conversation, Message};
use serde_json::{Map, Value, json};

/// System prompt, messages and tools of the body.
pub(super) fn body(conversation: &Conversation) -> Map<String, Value> {
    let preamble = &conversation.preamble;
    let mut body = Map::new();
    if !preamble.system.is_empty() {
        body.insert("system".into(), json!(preamble.system));
    }
    if !preamble.tools.is_empty() {
        let tools = preamble.tools.iter().map(|tool| {
            json!({
                "name": tool.name,
                "description": tool.description,
                "input_schema": tool.parameters,
            })
        });
        body.insert("tools".into(), Value::Array(tools.collect()));
    }
    let messages = conversation.messages.iter().map(message).collect();
    body.insert("messages".into(), Value::Array(messages));
    body
}

fn message(message: &Message) -> Value {
    match message {
        Message::User(text) => json!({ "role": "user", "content": text }),
        Message::Assistant { text, calls } if calls.is_empty() => {
            json!({ "role": "assistant", "content": text })
        }
        Message::Assistant { text, calls } => {
            let mut blocks = Vec::new();
            if !text.is_empty() {
                blocks.push(json!({ "type": "text", "text": text }));
            }
            for call in calls {
                let input: Value = serde_json::from_str(&call.arguments).unwrap_or(json!({}));
                blocks.push(json!({
                    "type": "tool_use", "id": call.id, "name": call.name, "input": input
                }));
            }
            json!({ "role": "assistant", "content": blocks })
        }
        Message::ToolResult { call, text } => json!({ "role": "user", "content": [
            { "type": "tool_result", "tool_use_id": call, "content": text }
        ]}),
    }
}

/// Reads the data of one event.
pub(super) fn read(data: &str) -> Result<Vec<Piece>, CallError> {
    let event: Value = serde_json::from_str(data)
        .map_err(|error| CallError::Malformed(format!("{error} in {data}")))?;
    let mut pieces = Vec::new();
    for holder in [&event, &event["message"]] {
        if let Some(nvext) = holder.get("nvext").filter(|nvext| nvext.is_object()) {
            pieces.push(Piece::Nvext(nvext.clone()));
        }
    }
    let kind = event["type"].as_str().unwrap_or_default();
    match kind {
        "message_start" => pieces.push(usage(&event["message"]["usage"])),
        "content_block_start" => {
            let block = &event["content_block"];
            if block["type"] == "tool_use" {
                pieces.push(call(&event, &block["id"], &block["name"], &Value::Null));
            }
        }
        "content_block_delta" => pieces.extend(delta(&event)),
        "message_delta" => {
            pieces.push(usage(&event["usage"]));
            if let Some(reason) = event["delta"]["stop_reason"].as_str() {
                pieces.push(Piece::Finish(reason.to_owned()));
            }
        }
        "error" => {
            let message = event["error"]["message"].as_str().unwrap_or("no message");
            pieces.push(Piece::Error(message.to_owned()));
        }
        "message_stop" => pieces.push(Piece::End),
        "ping" | "content_block_stop" => {}
        other => return Err(CallError::Malformed(format!("event of type {other:?}"))),
    }
    Ok(pieces)
}

fn delta(event: &Value) -> Option<Piece> {
    let delta = &event["delta"];
    let text = |key: &str| delta[key].as_str().unwrap_or_default().to_owned();
    match delta["type"].as_str()? {
        "text_delta" => Some(Piece::Text(text("text"))),
        "thinking_delta" => Some(Piece::Reasoning(text("thinking"))),
        "input_json_delta" => Some(call(event, &Value::Null, &Value::Null, &delta["partial_json"])),
        _ => None,
    }
}

fn call(event: &Value, id: &Value, name: &Value, arguments: &Value) -> Piece {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Piece::Call {
        index: event["index"].as_u64().unwrap_or_default(),
        id: text(id),
        name: text(name),
        arguments: text(arguments),
    }
}

/// `input_tokens` leaves cached tokens out; the prompt is the sum of the three.
fn usage(usage: &Value) -> Piece {
    let prompt = usage["input_tokens"].as_u64().map(|fresh| {
        fresh
            + usage["cache_read_input_tokens"].as_u64().unwrap_or_default()
            + usage["cache_creation_input_tokens"].as_u64().unwrap_or_default()
    });
    Piece::Usage { prompt, completion: usage["output_tokens"].as_u64() }
}
