//! Output items as they grow out of an answer's pieces. The stream and the whole answer are made
//! by the same hands: what is told of an item on the way goes to a [`Sink`].

use super::Frame;
use super::tools::{Known, TEXT_ARGUMENT};
use crate::stream::Piece;
use serde_json::{Value, json};

/// Takes what there is to tell while items grow.
pub(super) trait Sink {
    /// An event of type `kind`; `data` makes the rest of it.
    fn tell(&mut self, kind: &'static str, data: impl FnOnce() -> Value);
}

/// Listens to nothing.
pub(super) struct Silent;

impl Sink for Silent {
    fn tell(&mut self, _: &'static str, _: impl FnOnce() -> Value) {}
}

/// An item that is not complete.
enum Open {
    Reasoning { id: String, text: String },
    Message { id: String, text: String },
    Call { id: String, call_id: String, tool: Known, arguments: String },
}

/// The items of one answer.
#[derive(Default)]
pub(super) struct Items {
    open: Option<Open>,
    pub(super) done: Vec<Value>,
}

impl Items {
    pub(super) fn piece(&mut self, frame: &Frame, piece: &Piece, sink: &mut impl Sink) {
        let at = self.done.len();
        match (piece, &mut self.open) {
            (Piece::Text(more), Some(Open::Message { id, text })) => {
                text.push_str(more);
                tell_text(sink, id, at, more);
            }
            (Piece::Reasoning(more), Some(Open::Reasoning { id, text })) => {
                text.push_str(more);
                tell_reasoning(sink, id, at, more);
            }
            (
                Piece::CallArguments { fragment, .. },
                Some(Open::Call { id, tool, arguments, .. }),
            ) => {
                arguments.push_str(fragment);
                // A tool that takes text is told of when its text can be read.
                if !tool.takes_text {
                    sink.tell(
                        "response.function_call_arguments.delta",
                        || json!({ "item_id": id, "output_index": at, "delta": fragment }),
                    );
                }
            }
            (Piece::CallArguments { .. }, _) => {}
            _ => self.begin(frame, piece, sink),
        }
    }

    fn begin(&mut self, frame: &Frame, piece: &Piece, sink: &mut impl Sink) {
        self.close(frame, "completed", sink);
        let at = self.done.len();
        let id = |kind: &str| format!("{kind}_{}{at:02x}", frame.request);
        let (open, first) = match piece {
            Piece::Text(text) => (Open::Message { id: id("msg"), text: text.clone() }, text),
            Piece::Reasoning(text) => (Open::Reasoning { id: id("rs"), text: text.clone() }, text),
            Piece::CallStart { index, name } => {
                let known = frame.echo.tools.called(name).cloned();
                let tool = known.unwrap_or_else(|| Known::plain(name.clone()));
                let id = id(if tool.takes_text { "ctc" } else { "fc" });
                let call_id = format!("call_{}{index:02x}", frame.request);
                (Open::Call { id, call_id, tool, arguments: String::new() }, name)
            }
            Piece::CallArguments { .. } => return,
        };
        let added = open.item(frame, "in_progress", true);
        sink.tell("response.output_item.added", || json!({ "output_index": at, "item": added }));
        match &open {
            Open::Message { id, .. } => {
                sink.tell("response.content_part.added", || {
                    json!({
                        "item_id": id, "output_index": at, "content_index": 0,
                        "part": part(""),
                    })
                });
                tell_text(sink, id, at, first);
            }
            Open::Reasoning { id, .. } => {
                sink.tell("response.reasoning_summary_part.added", || {
                    json!({
                        "item_id": id, "output_index": at, "summary_index": 0,
                        "part": summary(""),
                    })
                });
                tell_reasoning(sink, id, at, first);
            }
            Open::Call { .. } => {}
        }
        self.open = Some(open);
    }

    /// Completes the item that is open.
    fn close(&mut self, frame: &Frame, status: &str, sink: &mut impl Sink) {
        let Some(open) = self.open.take() else { return };
        let at = self.done.len();
        match &open {
            Open::Message { id, text } => {
                sink.tell("response.output_text.done", || {
                    json!({
                        "item_id": id, "output_index": at, "content_index": 0,
                        "text": text, "logprobs": [],
                    })
                });
                sink.tell("response.content_part.done", || {
                    json!({
                        "item_id": id, "output_index": at, "content_index": 0,
                        "part": part(text),
                    })
                });
            }
            Open::Reasoning { id, text } => {
                sink.tell("response.reasoning_summary_text.done", || {
                    json!({
                        "item_id": id, "output_index": at, "summary_index": 0, "text": text,
                    })
                });
                sink.tell("response.reasoning_summary_part.done", || {
                    json!({
                        "item_id": id, "output_index": at, "summary_index": 0,
                        "part": summary(text),
                    })
                });
            }
            Open::Call { id, tool, arguments, .. } if tool.takes_text => {
                let input = free_text(arguments);
                sink.tell(
                    "response.custom_tool_call_input.delta",
                    || json!({ "item_id": id, "output_index": at, "delta": input }),
                );
                sink.tell(
                    "response.custom_tool_call_input.done",
                    || json!({ "item_id": id, "output_index": at, "input": input }),
                );
            }
            Open::Call { id, tool, arguments, .. } => {
                sink.tell("response.function_call_arguments.done", || {
                    json!({
                        "item_id": id, "output_index": at, "name": tool.name,
                        "arguments": arguments,
                    })
                });
            }
        }
        let item = open.item(frame, status, false);
        sink.tell("response.output_item.done", || json!({ "output_index": at, "item": item }));
        self.done.push(item);
    }

    /// The answer is over; `cut` when the model had not ended it.
    pub(super) fn end(&mut self, frame: &Frame, cut: bool, sink: &mut impl Sink) {
        // Clients look for a message or a call in an answer, also when there is nothing to say.
        let says = |item: &Value| item["type"] != "reasoning";
        let open = matches!(self.open, Some(Open::Message { .. } | Open::Call { .. }));
        if !cut && !open && !self.done.iter().any(says) {
            self.begin(frame, &Piece::Text(String::new()), sink);
        }
        self.close(frame, if cut { "incomplete" } else { "completed" }, sink);
    }
}

impl Open {
    /// The item; `bare` when nothing of it has been told yet.
    fn item(&self, frame: &Frame, status: &str, bare: bool) -> Value {
        match self {
            Self::Message { id, text } => {
                let content = if bare { json!([]) } else { json!([part(text)]) };
                json!({
                    "type": "message", "id": id, "status": status, "role": "assistant",
                    "content": content,
                })
            }
            Self::Reasoning { id, text } => {
                let content = if bare { json!([]) } else { json!([summary(text)]) };
                let mut item = json!({ "type": "reasoning", "id": id, "summary": content });
                if let (Some(seal), false) = (&frame.echo.seal, bare) {
                    item["encrypted_content"] = seal.close(text).into();
                }
                item
            }
            Self::Call { id, call_id, tool, arguments } => {
                let mut item = match tool.takes_text {
                    true => json!({
                        "type": "custom_tool_call", "id": id, "call_id": call_id,
                        "name": tool.name, "input": free_text(arguments),
                    }),
                    false => json!({
                        "type": "function_call", "id": id, "call_id": call_id,
                        "name": tool.name, "arguments": arguments, "status": status,
                    }),
                };
                if let Some(namespace) = &tool.namespace {
                    item["namespace"] = namespace.as_str().into();
                }
                item
            }
        }
    }
}

/// What a tool that takes text is given. A model that did not keep to the one argument is quoted.
fn free_text(arguments: &str) -> String {
    let value = serde_json::from_str::<Value>(arguments).unwrap_or_default();
    match value.get(TEXT_ARGUMENT) {
        Some(Value::String(text)) => text.clone(),
        _ => arguments.to_owned(),
    }
}

fn part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

fn summary(text: &str) -> Value {
    json!({ "type": "summary_text", "text": text })
}

fn tell_text(sink: &mut impl Sink, id: &str, at: usize, delta: &str) {
    if delta.is_empty() {
        return;
    }
    sink.tell("response.output_text.delta", || {
        json!({
            "item_id": id, "output_index": at, "content_index": 0, "delta": delta, "logprobs": [],
        })
    });
}

fn tell_reasoning(sink: &mut impl Sink, id: &str, at: usize, delta: &str) {
    sink.tell(
        "response.reasoning_summary_text.delta",
        || json!({ "item_id": id, "output_index": at, "summary_index": 0, "delta": delta }),
    );
}
