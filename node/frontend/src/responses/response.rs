//! A whole Responses answer.

use super::item::{Items, Silent};
use super::record::Record;
use super::{Frame, is_cut, mark};
use crate::keeper::Standing;
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
    frame.ended(ending, &items.done, nvext, &frame.echo.standing())
}

/// The record of a response, where it shall be kept.
pub(crate) fn record(frame: &Frame, body: &Value) -> Option<Record> {
    frame.echo.record(body)
}

/// Says how a response is kept.
pub(crate) fn kept(body: &mut Value, standing: &Standing) {
    mark(body, standing);
}
