//! A Chat Completions answer as chunks.

use super::{Frame, call_id, finish_reason, usage};
use crate::error::{ApiError, Dialect};
use crate::sse::{Writer, event};
use crate::stream::{Ending, Piece, Usage};
use serde_json::{Value, json};

/// Writes chunks.
pub(crate) struct ChatWriter {
    frame: Frame,
    include_usage: bool,
    /// The beginning of every chunk, up to its choices.
    head: String,
}

impl ChatWriter {
    pub(crate) fn new(frame: Frame, include_usage: bool) -> Self {
        let head = format!(
            r#"data: {{"id":{},"object":"chat.completion.chunk","created":{},"model":{},"choices":"#,
            Value::from(frame.id()),
            frame.created,
            Value::from(frame.model.as_str()),
        );
        Self { frame, include_usage, head }
    }

    fn chunk(&self, delta: &Value, finish: Option<&str>, nvext: Option<&Value>, out: &mut String) {
        let finish = finish.map_or(Value::Null, Value::from);
        let choice =
            format!(r#"[{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{finish}}}]"#);
        let usage = self.include_usage.then_some(&Value::Null);
        self.write(&choice, usage, nvext, out);
    }

    fn write(&self, choices: &str, usage: Option<&Value>, nvext: Option<&Value>, out: &mut String) {
        out.push_str(&self.head);
        out.push_str(choices);
        for (name, value) in [("usage", usage), ("nvext", nvext)] {
            if let Some(value) = value {
                out.push_str(&format!(r#","{name}":{value}"#));
            }
        }
        out.push_str("}\n\n");
    }

    fn delta(&self, delta: &Value, out: &mut String) {
        self.chunk(delta, None, None, out);
    }
}

impl Writer for ChatWriter {
    fn open(&mut self, out: &mut String) {
        self.delta(&json!({ "role": "assistant", "content": "" }), out);
    }

    fn began(&mut self, _: &Usage, _: &mut String) {}

    fn piece(&mut self, piece: &Piece, out: &mut String) {
        let delta = match piece {
            Piece::Text(text) => json!({ "content": text }),
            Piece::Reasoning(text) => json!({ "reasoning_content": text }),
            Piece::CallStart { index, name } => json!({ "tool_calls": [{
                "index": index,
                "id": call_id(&self.frame.request, *index),
                "type": "function",
                "function": { "name": name, "arguments": "" },
            }] }),
            Piece::CallArguments { index, fragment } => json!({ "tool_calls": [{
                "index": index,
                "function": { "arguments": fragment },
            }] }),
        };
        self.delta(&delta, out);
    }

    fn heartbeat(&mut self, out: &mut String) {
        self.delta(&json!({}), out);
    }

    /// What `nvext` tells stands on the last chunk.
    fn ended(&mut self, ending: &Ending, nvext: Option<Value>, out: &mut String) {
        let finish = Some(finish_reason(&ending.reason));
        if self.include_usage {
            self.chunk(&json!({}), finish, None, out);
            self.write("[]", Some(&usage(&ending.usage)), nvext.as_ref(), out);
        } else {
            self.chunk(&json!({}), finish, nvext.as_ref(), out);
        }
        out.push_str("data: [DONE]\n\n");
    }

    fn failed(&mut self, error: &ApiError, _: &Usage, out: &mut String) {
        event(None, &error.body(Dialect::OpenAi, &self.frame.request, true), out);
        out.push_str("data: [DONE]\n\n");
    }
}
