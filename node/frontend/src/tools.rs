//! Tool calls in Hermes form: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`.

use serde_json::{Map, Value};

/// Opens a call.
pub(crate) const OPEN: &str = "<tool_call>";
/// Closes a call.
pub(crate) const CLOSE: &str = "</tool_call>";

/// A call the model made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) name: String,
    /// JSON text of an object.
    pub(crate) arguments: String,
}

/// Reads what stands between the tags: one call, or a list of calls. `None` when it is neither.
pub(crate) fn read_calls(text: &str) -> Option<Vec<Call>> {
    let text = text.trim();
    let value: Value =
        serde_json::from_str(text).or_else(|_| serde_json::from_str(&mended(text))).ok()?;
    match value {
        Value::Array(calls) if !calls.is_empty() => calls.into_iter().map(read_call).collect(),
        value => Some(vec![read_call(value)?]),
    }
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
    (!name.is_empty()).then(|| Call { name, arguments: Value::Object(arguments).to_string() })
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

/// Follows JSON text to tell tags outside strings from the same letters inside.
#[derive(Default)]
pub(crate) struct TagScanner {
    seen: usize,
    inside: bool,
    escaped: bool,
}

/// What the scanner met.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Met {
    /// The closing tag begins here.
    Close(usize),
    /// Another opening tag begins here: the call before it was never closed.
    Open(usize),
}

impl TagScanner {
    /// Goes on to the first tag outside strings. `text` is what it saw before plus what is new.
    /// A line break before the closing tag also ends an unclosed string: JSON strings have none.
    pub(crate) fn scan(&mut self, text: &str) -> Option<Met> {
        let bytes = text.as_bytes();
        while let Some(&byte) = bytes.get(self.seen) {
            let rest = &bytes[self.seen..];
            if self.inside {
                if byte == b'\n' && !self.escaped {
                    match starts(&rest[1..], CLOSE.as_bytes()) {
                        Starts::Yes => return Some(Met::Close(self.seen + 1)),
                        Starts::Maybe => return None,
                        Starts::No => {}
                    }
                }
                self.inside = self.escaped || byte != b'"';
                self.escaped = !self.escaped && byte == b'\\';
            } else if byte == b'<' {
                match (starts(rest, CLOSE.as_bytes()), starts(rest, OPEN.as_bytes())) {
                    (Starts::Yes, _) => return Some(Met::Close(self.seen)),
                    (_, Starts::Yes) => return Some(Met::Open(self.seen)),
                    (Starts::Maybe, _) | (_, Starts::Maybe) => return None,
                    _ => {}
                }
            } else {
                self.inside = byte == b'"';
            }
            self.seen += 1;
        }
        None
    }
}

enum Starts {
    Yes,
    Maybe,
    No,
}

fn starts(text: &[u8], tag: &[u8]) -> Starts {
    if text.starts_with(tag) {
        Starts::Yes
    } else if tag.starts_with(text) {
        Starts::Maybe
    } else {
        Starts::No
    }
}

#[cfg(test)]
mod tests;
