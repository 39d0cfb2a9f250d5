//! A whole Responses answer.

use super::item::{Items, Silent};
use super::{Frame, Status, is_cut};
use crate::stream::{Ending, Piece};
use serde_json::Value;

/// The body, from all pieces of an answer.
pub(crate) fn body(
    frame: &Frame,
    pieces: &[Piece],
    ending: &Ending,
    nvext: Option<Value>,
) -> Value {
    let mut items = Items::default();
    for piece in pieces {
        items.piece(frame, piece, &mut Silent);
    }
    items.end(frame, is_cut(ending), &mut Silent);
    with_nvext(frame.object(Status::Ended(ending), &items.done), nvext)
}

/// Adds what `nvext` tells.
pub(super) fn with_nvext(mut object: Value, nvext: Option<Value>) -> Value {
    if let (Some(nvext), Some(object)) = (nvext, object.as_object_mut()) {
        object.insert("nvext".into(), nvext);
    }
    object
}
