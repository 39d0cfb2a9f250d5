//! A Completions answer as chunks.

use super::{choice, object, text};
use crate::chat::{Frame, usage};
use crate::error::{ApiError, Dialect};
use crate::sse::{Writer, event};
use crate::stream::{Ending, Piece, Reason, Usage};
use serde_json::{Value, json};

/// Writes chunks.
pub(crate) struct CompletionWriter {
    frame: Frame,
    include_usage: bool,
}

impl CompletionWriter {
    pub(crate) fn new(frame: Frame, include_usage: bool) -> Self {
        Self { frame, include_usage }
    }

    fn chunk(&self, text: &str, finish: Option<&Reason>, nvext: Option<Value>, out: &mut String) {
        let counts = self.include_usage.then_some(Value::Null);
        self.write(&choice(text, finish), counts, nvext, out);
    }

    fn write(
        &self,
        choices: &Value,
        counts: Option<Value>,
        nvext: Option<Value>,
        out: &mut String,
    ) {
        let mut chunk = object(&self.frame, choices);
        if let Some(chunk) = chunk.as_object_mut() {
            for (name, value) in [("usage", counts), ("nvext", nvext)] {
                if let Some(value) = value {
                    chunk.insert(name.into(), value);
                }
            }
        }
        event(None, &chunk, out);
    }
}

impl Writer for CompletionWriter {
    fn open(&mut self, _: &mut String) {}

    fn began(&mut self, _: &Usage, _: &mut String) {}

    fn piece(&mut self, piece: &Piece, out: &mut String) {
        self.chunk(text(piece), None, None, out);
    }

    fn heartbeat(&mut self, out: &mut String) {
        self.chunk("", None, None, out);
    }

    /// What `nvext` tells stands on the last chunk.
    fn ended(&mut self, ending: &Ending, nvext: Option<Value>, out: &mut String) {
        if self.include_usage {
            self.chunk("", Some(&ending.reason), None, out);
            self.write(&json!([]), Some(usage(&ending.usage)), nvext, out);
        } else {
            self.chunk("", Some(&ending.reason), nvext, out);
        }
        out.push_str("data: [DONE]\n\n");
    }

    fn failed(&mut self, error: &ApiError, _: &Usage, out: &mut String) {
        event(None, &error.body(Dialect::OpenAi, &self.frame.request, true), out);
        out.push_str("data: [DONE]\n\n");
    }
}
