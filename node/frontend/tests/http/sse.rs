//! Reads event streams as clients do, and puts answers together again.

use serde_json::{Map, Value, json};

/// The events: name (empty when absent) and data.
pub(crate) fn events(text: &str) -> Vec<(String, String)> {
    assert!(text.ends_with("\n\n"), "the last event is complete: {text:?}");
    let event = |block: &str| {
        let field = |name: &str| {
            let line = block.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().trim_start().to_owned()
        };
        (field("event:"), field("data:"))
    };
    text.trim_end().split("\n\n").map(event).collect()
}

fn parsed(data: &str) -> Value {
    serde_json::from_str(data).unwrap_or_else(|e| panic!("{e}: {data}"))
}

/// A Chat Completions stream as the unary body it stands for.
pub(crate) fn chat_body(text: &str) -> Value {
    let events = events(text);
    let (last, chunks) = events.split_last().unwrap();
    assert_eq!(last.1, "[DONE]");
    let mut message = Map::new();
    let mut calls: Vec<Value> = Vec::new();
    let mut body = json!({});
    let mut finish = Value::Null;
    let mut role_seen = false;
    for (name, data) in chunks {
        assert_eq!(name, "", "chat events have no name");
        let chunk = parsed(data);
        assert_eq!(chunk["object"], "chat.completion.chunk");
        for key in ["id", "created", "model"] {
            body[key] = chunk[key].clone();
        }
        for key in ["usage", "nvext"] {
            if chunk.get(key).is_some_and(|v| !v.is_null()) {
                body[key] = chunk[key].clone();
            }
        }
        let Some(choice) = chunk["choices"].get(0) else {
            continue;
        };
        assert!(finish.is_null(), "nothing follows the finish");
        finish = choice["finish_reason"].clone();
        let delta = &choice["delta"];
        if !role_seen {
            assert_eq!(delta["role"], "assistant", "the first delta has the role");
            role_seen = true;
        }
        for key in ["content", "reasoning_content"] {
            if let Some(more) = delta[key].as_str() {
                let so_far = message.entry(key).or_insert(json!(""));
                *so_far = json!(format!("{}{more}", so_far.as_str().unwrap()));
            }
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let index = call["index"].as_u64().unwrap() as usize;
            if index == calls.len() {
                assert_eq!(call["function"]["arguments"], "");
                assert_eq!(call["type"], "function");
                let mut call = call.clone();
                call.as_object_mut().unwrap().remove("index");
                calls.push(call);
            } else {
                assert!(call.get("id").is_none() && call["function"].get("name").is_none());
                let arguments = &mut calls[index]["function"]["arguments"];
                let more = call["function"]["arguments"].as_str().unwrap();
                *arguments = json!(format!("{}{more}", arguments.as_str().unwrap()));
            }
        }
    }
    if !calls.is_empty() {
        message.insert("tool_calls".into(), calls.into());
    }
    assert!(!finish.is_null(), "an end came");
    body["message"] = Value::Object(message);
    body["finish_reason"] = finish;
    body
}

/// A Messages stream as the unary body it stands for.
pub(crate) fn message_body(text: &str) -> Value {
    let mut body = Value::Null;
    let mut blocks: Vec<Value> = Vec::new();
    let mut open: Option<(usize, String)> = None;
    let mut over = false;
    for (name, data) in events(text) {
        assert!(!over, "nothing follows message_stop");
        let data = parsed(&data);
        assert_eq!(data["type"], name.as_str(), "the event's name is its type");
        match name.as_str() {
            "ping" => {}
            "message_start" => {
                assert!(body.is_null());
                body = data["message"].clone();
            }
            "content_block_start" => {
                assert!(open.is_none(), "one block at a time");
                assert_eq!(data["index"], blocks.len());
                open = Some((blocks.len(), String::new()));
                blocks.push(data["content_block"].clone());
            }
            "content_block_delta" => delta(&data, &mut blocks, open.as_mut().unwrap()),
            "content_block_stop" => {
                let (index, json) = open.take().unwrap();
                assert_eq!(data["index"], index);
                let block = &mut blocks[index];
                if block["type"] == "tool_use" {
                    block["input"] = parsed(&json);
                }
                if block["type"] == "thinking" {
                    assert_ne!(block["signature"], "", "a signature came before the stop");
                }
            }
            "message_delta" => {
                assert!(open.is_none());
                for (key, value) in data["delta"].as_object().unwrap() {
                    body[key] = value.clone();
                }
                body["usage"] = data["usage"].clone();
                if let Some(nvext) = data.get("nvext") {
                    body["nvext"] = nvext.clone();
                }
            }
            "message_stop" => over = true,
            other => panic!("{other}"),
        }
    }
    assert!(over && open.is_none(), "message_stop came, and every block is closed");
    body["content"] = blocks.into();
    body
}

fn delta(data: &Value, blocks: &mut [Value], open: &mut (usize, String)) {
    assert_eq!(data["index"], open.0);
    let delta = &data["delta"];
    let block = &mut blocks[open.0];
    let (from, to) = match delta["type"].as_str().unwrap() {
        "text_delta" => ("text", "text"),
        "thinking_delta" => ("thinking", "thinking"),
        "signature_delta" => ("signature", "signature"),
        "input_json_delta" => {
            open.1.push_str(delta["partial_json"].as_str().unwrap());
            return;
        }
        other => panic!("{other}"),
    };
    block[to] = json!(format!("{}{}", block[to].as_str().unwrap(), delta[from].as_str().unwrap()));
}

/// A Responses stream as the unary body it stands for: the object of its last event, whose items
/// are those that the events before it built.
pub(crate) fn response_body(text: &str) -> Value {
    let mut items: Vec<Value> = Vec::new();
    // What came in deltas for the open item.
    let mut open: Option<String> = None;
    let mut last = Value::Null;
    for (sequence, (name, data)) in events(text).into_iter().enumerate() {
        assert!(last.is_null(), "nothing follows the end");
        let data = parsed(&data);
        assert_eq!(data["type"], name.as_str(), "the event's name is its type");
        assert_eq!(data["sequence_number"], sequence);
        match name.as_str() {
            "response.created" => assert_eq!(sequence, 0),
            "response.in_progress" => assert_eq!(data["response"]["status"], "in_progress"),
            "response.output_item.added" => {
                assert!(open.is_none(), "one item at a time");
                assert_eq!(data["output_index"], items.len());
                items.push(data["item"].clone());
                open = Some(String::new());
            }
            "response.output_item.done" => {
                let told = open.take().unwrap();
                let item = &data["item"];
                let before = items.last().unwrap();
                assert_eq!((&item["id"], &item["type"]), (&before["id"], &before["type"]));
                let whole = match item["type"].as_str().unwrap() {
                    "message" => &item["content"][0]["text"],
                    "reasoning" => &item["summary"][0]["text"],
                    "function_call" => &item["arguments"],
                    _ => &item["input"],
                };
                assert_eq!(whole, told.as_str());
                *items.last_mut().unwrap() = item.clone();
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                assert!(open.is_none());
                last = data["response"].clone();
                assert_eq!(name, format!("response.{}", last["status"].as_str().unwrap()));
            }
            _ => {
                let at = items.len() - 1;
                assert_eq!(data["output_index"], at, "{name}");
                assert_eq!(data["item_id"], items[at]["id"], "{name}");
                let told = open.as_mut().unwrap();
                if name.ends_with(".delta") {
                    told.push_str(data["delta"].as_str().unwrap());
                }
                for whole in ["text", "arguments", "input"] {
                    if let Some(whole) = data.get(whole) {
                        assert_eq!(whole, told.as_str(), "{name}");
                    }
                }
            }
        }
    }
    assert_eq!(last["output"], json!(items));
    last
}

/// A Completions stream as the unary body it stands for.
pub(crate) fn completion_body(text: &str) -> Value {
    let events = events(text);
    let (last, chunks) = events.split_last().unwrap();
    assert_eq!(last.1, "[DONE]");
    let (mut body, mut text, mut finish) = (Value::Null, String::new(), Value::Null);
    for (_, data) in chunks {
        let chunk = parsed(data);
        if let Some(choice) = chunk["choices"].get(0) {
            assert!(finish.is_null(), "nothing follows the finish");
            text.push_str(choice["text"].as_str().unwrap());
            finish = choice["finish_reason"].clone();
        }
        body = chunk;
    }
    body["choices"] =
        json!([{ "index": 0, "text": text, "logprobs": null, "finish_reason": finish }]);
    body
}

/// The unary chat body in the form that [`chat_body`] gives.
fn flat(unary: &Value) -> Value {
    let mut message = unary["choices"][0]["message"].clone();
    let fields = message.as_object_mut().unwrap();
    fields.remove("refusal");
    fields.remove("role");
    if fields["content"].is_null() {
        fields["content"] = json!("");
    }
    let mut flat = unary.clone();
    flat["message"] = message;
    flat["finish_reason"] = unary["choices"][0]["finish_reason"].clone();
    flat.as_object_mut().unwrap().retain(|key, _| key != "choices" && key != "object");
    flat
}

/// Puts a stream together and compares it with the whole answer, byte for byte in every item.
/// Returns what the stream says.
pub(crate) fn assert_one_answer(path: &str, unary: &Value, stream: &str) -> Value {
    let (mut built, mut whole) = match path {
        "/v1/chat/completions" => (chat_body(stream), flat(unary)),
        "/v1/completions" => (completion_body(stream), unary.clone()),
        "/v1/responses" => (response_body(stream), unary.clone()),
        _ => (message_body(stream), unary.clone()),
    };
    if path.ends_with("completions") && built.get("usage").is_none() {
        // A stream counts only when asked to.
        whole.as_object_mut().unwrap().remove("usage");
    }
    // Two answers end at two times.
    for body in [&mut built, &mut whole] {
        if let Some(at) = body.get_mut("completed_at").filter(|at| at.is_u64()) {
            *at = json!("at its end");
        }
    }
    assert_eq!(built, whole);
    built
}
