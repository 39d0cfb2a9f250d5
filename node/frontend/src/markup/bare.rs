//! Calls that no mark opens.

use super::scan::Starts;
use crate::tools::{Tools, json};

/// Whether a call without a mark begins here: an object whose first key is one of a call's, or a
/// Python list whose first name is a tool's. The rest is checked when the call is whole.
pub(super) fn begins_call(text: &str, tools: &Tools) -> Starts {
    let Some(list) = text.strip_prefix('[') else {
        return begins_object(text);
    };
    let list = list.trim_start();
    let name = |name: &str| match list.strip_prefix(name) {
        Some(rest) => Starts::with(rest.trim_start(), "("),
        None => Starts::with(list, name),
    };
    tools.names().map(name).fold(begins_object(list), Starts::or)
}

fn begins_object(text: &str) -> Starts {
    let Some(object) = text.strip_prefix('{') else {
        return Starts::with(text, "{");
    };
    let object = object.trim_start();
    let Some(key) = object.strip_prefix('"') else {
        return Starts::with(object, "\"");
    };
    let key = |name: &&str| match key.strip_prefix(*name) {
        Some(rest) => Starts::with(rest, "\""),
        None => Starts::with(key, name),
    };
    json::KEYS.iter().map(key).fold(Starts::No, Starts::or)
}
