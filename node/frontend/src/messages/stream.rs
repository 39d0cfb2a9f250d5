//! A Messages answer as events.

use super::{Frame, stop_reason, usage};
use crate::error::{ApiError, Dialect};
use crate::sse::{Writer, event};
use crate::stream::{Ending, Piece, Usage};
use serde_json::{Value, json};

/// What kind of block is open.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    Nothing,
    Text,
    Thinking,
    Call,
}

/// Writes events.
pub(crate) struct MessagesWriter {
    frame: Frame,
    open: Open,
    /// Index of the block that is open, or of the next one.
    index: u32,
}

impl MessagesWriter {
    pub(crate) fn new(frame: Frame) -> Self {
        Self { frame, open: Open::Nothing, index: 0 }
    }

    fn start(&mut self, kind: Open, block: &Value, out: &mut String) {
        self.stop(out);
        self.open = kind;
        let data =
            json!({ "type": "content_block_start", "index": self.index, "content_block": block });
        event(Some("content_block_start"), &data, out);
    }

    fn delta(&self, delta: &Value, out: &mut String) {
        let data = json!({ "type": "content_block_delta", "index": self.index, "delta": delta });
        event(Some("content_block_delta"), &data, out);
    }

    fn stop(&mut self, out: &mut String) {
        if self.open == Open::Nothing {
            return;
        }
        if self.open == Open::Thinking {
            let signature = self.frame.signature();
            self.delta(&json!({ "type": "signature_delta", "signature": signature }), out);
        }
        let data = json!({ "type": "content_block_stop", "index": self.index });
        event(Some("content_block_stop"), &data, out);
        self.open = Open::Nothing;
        self.index += 1;
    }
}

impl Writer for MessagesWriter {
    fn open(&mut self, _: &mut String) {}

    /// The message starts when prefill is done: only then its cache counters are true.
    fn began(&mut self, counts: &Usage, out: &mut String) {
        let data = json!({ "type": "message_start", "message": {
            "id": self.frame.id(),
            "type": "message",
            "role": "assistant",
            "model": self.frame.model,
            "content": [],
            "stop_reason": null,
            "stop_sequence": null,
            "usage": usage(&Usage { output: 0, ..*counts }),
        } });
        event(Some("message_start"), &data, out);
    }

    fn piece(&mut self, piece: &Piece, out: &mut String) {
        match piece {
            Piece::Text(text) => {
                if self.open != Open::Text {
                    self.start(Open::Text, &json!({ "type": "text", "text": "" }), out);
                }
                self.delta(&json!({ "type": "text_delta", "text": text }), out);
            }
            Piece::Reasoning(text) => {
                if self.open != Open::Thinking {
                    let block = json!({ "type": "thinking", "thinking": "", "signature": "" });
                    self.start(Open::Thinking, &block, out);
                }
                self.delta(&json!({ "type": "thinking_delta", "thinking": text }), out);
            }
            Piece::CallStart { index, name } => {
                let id = self.frame.call_id(*index);
                let block = json!({ "type": "tool_use", "id": id, "name": name, "input": {} });
                self.start(Open::Call, &block, out);
            }
            Piece::CallArguments { fragment, .. } => {
                self.delta(&json!({ "type": "input_json_delta", "partial_json": fragment }), out);
            }
        }
    }

    fn heartbeat(&mut self, out: &mut String) {
        event(Some("ping"), &json!({ "type": "ping" }), out);
    }

    fn ended(&mut self, ending: &Ending, nvext: Option<Value>, out: &mut String) {
        self.stop(out);
        let (reason, sequence) = stop_reason(&ending.reason);
        let mut data = json!({
            "type": "message_delta",
            "delta": { "stop_reason": reason, "stop_sequence": sequence },
            "usage": usage(&ending.usage),
        });
        if let (Some(nvext), Some(data)) = (nvext, data.as_object_mut()) {
            data.insert("nvext".into(), nvext);
        }
        event(Some("message_delta"), &data, out);
        event(Some("message_stop"), &json!({ "type": "message_stop" }), out);
    }

    fn failed(&mut self, error: &ApiError, _: &Usage, out: &mut String) {
        event(Some("error"), &error.body(Dialect::Anthropic, &self.frame.request, true), out);
    }
}
