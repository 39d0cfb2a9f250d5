//! Calls as JSON: `{"name": …, "arguments": {…}}`, alone or in a list.

use super::{Call, Tools};
use serde_json::{Map, Value};

/// Reads one call or a list of calls. `None` when it is neither.
pub(crate) fn read_calls(text: &str) -> Option<Vec<Call>> {
    match parse(text)? {
        Value::Array(calls) if !calls.is_empty() => calls.into_iter().map(read_call).collect(),
        value => Some(vec![read_call(value)?]),
    }
}

/// As [`read_calls`], where nothing but the content tells a call from an ordinary answer in JSON:
/// every name must be a tool's, arguments must be there, and nothing else.
pub(crate) fn read_bare(text: &str, tools: &Tools) -> Option<Vec<Call>> {
    let known = |call: &Value| {
        let Some(fields) = call.as_object() else { return false };
        let arguments = fields.contains_key("parameters") || fields.contains_key("arguments");
        arguments && fields.keys().all(|key| KEYS.contains(&key.as_str()))
    };
    let value = parse(text)?;
    let plain = match &value {
        Value::Array(calls) => calls.iter().all(known),
        call => known(call),
    };
    let calls = plain.then(|| read_calls(text))??;
    calls.iter().all(|call| tools.has(&call.name)).then_some(calls)
}

/// The keys of a call that stands without a mark.
pub(crate) const KEYS: [&str; 5] = ["name", "parameters", "arguments", "type", "id"];

/// Reads the arguments of a call that is named elsewhere.
pub(crate) fn read_arguments(text: &str) -> Option<Map<String, Value>> {
    match parse(text)? {
        Value::Object(arguments) => Some(arguments),
        _ => None,
    }
}

fn parse(text: &str) -> Option<Value> {
    let text = text.trim();
    serde_json::from_str(text).or_else(|_| serde_json::from_str(&mended(text))).ok()
}

fn read_call(value: Value) -> Option<Call> {
    let Value::Object(mut call) = value else {
        return None;
    };
    if let Some(Value::Object(inner)) = call.get_mut("function") {
        call = std::mem::take(inner);
    }
    let Some(Value::String(name)) = call.remove("name") else {
        return None;
    };
    let arguments = match call.remove("arguments").or_else(|| call.remove("parameters")) {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(map)) => map,
        Some(Value::String(text)) => match serde_json::from_str(&text) {
            Ok(Value::Object(map)) => map,
            _ => return None,
        },
        Some(_) => return None,
    };
    Call::new(&name, arguments)
}

/// Models write raw line breaks and tabs into JSON strings; JSON wants them escaped.
fn mended(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let (mut inside, mut escaped) = (false, false);
    for c in text.chars() {
        match c {
            '\n' if inside => out.push_str("\\n"),
            '\r' if inside => out.push_str("\\r"),
            '\t' if inside => out.push_str("\\t"),
            _ => out.push(c),
        }
        if inside {
            inside = escaped || c != '"';
            escaped = !escaped && c == '\\';
        } else {
            inside = c == '"';
        }
    }
    out
}

#[cfg(test)]
mod tests;
