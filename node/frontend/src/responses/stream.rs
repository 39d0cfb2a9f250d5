//! A Responses answer as events.

use super::item::{Items, Sink};
use super::record::Record;
use super::{Frame, Status, is_cut};
use crate::error::ApiError;
use crate::keeper::Standing;
use crate::sse::{Writer, event};
use crate::stream::{Ending, Piece, Usage};
use serde_json::{Value, json};

/// Writes events.
pub(crate) struct ResponsesWriter {
    frame: Frame,
    items: Items,
    /// The next event's number.
    sequence: u64,
    standing: Standing,
}

/// Numbers events and writes them.
struct Numbered<'a> {
    sequence: &'a mut u64,
    out: &'a mut String,
}

impl Sink for Numbered<'_> {
    fn tell(&mut self, kind: &'static str, data: impl FnOnce() -> Value) {
        let mut data = data();
        if let Some(data) = data.as_object_mut() {
            data.insert("type".into(), kind.into());
            data.insert("sequence_number".into(), (*self.sequence).into());
        }
        *self.sequence += 1;
        event(Some(kind), &data, self.out);
    }
}

impl ResponsesWriter {
    pub(crate) fn new(frame: Frame) -> Self {
        let standing = frame.echo.standing();
        Self { frame, items: Items::default(), sequence: 0, standing }
    }

    fn tell(&mut self, kind: &'static str, response: &Value, out: &mut String) {
        Numbered { sequence: &mut self.sequence, out }
            .tell(kind, || json!({ "response": response }));
    }

    fn under_way(&self) -> Value {
        self.frame.object(Status::InProgress, &self.items.done)
    }
}

impl Writer for ResponsesWriter {
    fn open(&mut self, out: &mut String) {
        let response = self.under_way();
        self.tell("response.created", &response, out);
        self.tell("response.in_progress", &response, out);
    }

    fn began(&mut self, _: &Usage, _: &mut String) {}

    fn piece(&mut self, piece: &Piece, out: &mut String) {
        let mut sink = Numbered { sequence: &mut self.sequence, out };
        self.items.piece(&self.frame, piece, &mut sink);
    }

    fn heartbeat(&mut self, out: &mut String) {
        let response = self.under_way();
        self.tell("response.in_progress", &response, out);
    }

    fn settle(&mut self, ending: &Ending, out: &mut String) -> Option<Record> {
        let mut sink = Numbered { sequence: &mut self.sequence, out };
        self.items.end(&self.frame, is_cut(ending), &mut sink);
        let response = self.frame.object(Status::Ended(ending), &self.items.done);
        self.frame.echo.record(&response)
    }

    fn kept(&mut self, standing: Standing) {
        self.standing = standing;
    }

    fn ended(&mut self, ending: &Ending, nvext: Option<Value>, out: &mut String) {
        let response = self.frame.ended(ending, &self.items.done, nvext, &self.standing);
        let kind = if is_cut(ending) { "response.incomplete" } else { "response.completed" };
        self.tell(kind, &response, out);
    }

    fn failed(&mut self, error: &ApiError, usage: &Usage, out: &mut String) {
        let mut sink = Numbered { sequence: &mut self.sequence, out };
        self.items.end(&self.frame, true, &mut sink);
        let error = json!({ "code": error.response_code(), "message": error.message });
        let response = self.frame.object(Status::Failed(&error, usage), &self.items.done);
        self.tell("response.failed", &response, out);
    }
}
