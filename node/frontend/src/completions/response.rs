//! A whole Completions answer.

use super::{choice, object, text};
use crate::chat::{Frame, usage};
use crate::stream::{Ending, Piece};
use serde_json::Value;

/// The body, from all pieces of an answer.
pub(crate) fn body(
    frame: &Frame,
    pieces: &[Piece],
    ending: &Ending,
    nvext: Option<Value>,
) -> Value {
    let whole: String = pieces.iter().map(text).collect();
    let mut body = object(frame, &choice(&whole, Some(&ending.reason)));
    if let Some(body) = body.as_object_mut() {
        body.insert("usage".into(), usage(&ending.usage));
        if let Some(nvext) = nvext {
            body.insert("nvext".into(), nvext);
        }
    }
    body
}
