//! JSON to template values and back, as Python writes it.

use super::object::Fields;
use minijinja::Value;
use minijinja::value::ValueKind;
use std::fmt::Write;

/// A JSON value for a template; the order of keys is kept.
pub(super) fn to_value(json: &serde_json::Value) -> Value {
    use serde_json::Value as Json;
    match json {
        Json::Null => Value::from(()),
        Json::Bool(flag) => Value::from(*flag),
        Json::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(n), ..) => Value::from(n),
            (_, Some(n), _) => Value::from(n),
            (.., Some(n)) => Value::from(n),
            _ => Value::from(()),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(list) => list.iter().map(to_value).collect(),
        Json::Object(map) => {
            let pairs = map.iter().map(|(key, value)| (key.as_str(), to_value(value)));
            Value::from_object(Fields::new(pairs))
        }
    }
}

/// How JSON is laid out: the arguments of Python's `json.dumps` that templates use.
#[derive(Clone, Debug)]
pub(super) struct Style {
    /// Text of one level of indentation; `None` writes all in one line.
    pub(super) indent: Option<String>,
    pub(super) item_separator: String,
    pub(super) key_separator: String,
    pub(super) ascii: bool,
    pub(super) sort_keys: bool,
}

impl Default for Style {
    fn default() -> Self {
        let (item_separator, key_separator) = (", ".into(), ": ".into());
        Self { indent: None, item_separator, key_separator, ascii: false, sort_keys: false }
    }
}

/// Nesting beyond this is refused, as Python's recursion limit would.
const MAX_DEPTH: usize = 200;

/// The value as JSON; the error names what JSON cannot hold.
pub(super) fn dumps(value: &Value, style: &Style) -> Result<String, String> {
    let mut out = String::new();
    write(&mut out, value, style, 0)?;
    Ok(out)
}

/// The same in the default style, `{"a": 1, "b": [1, 2]}`; objects remember it.
pub(super) fn dumps_plainly(value: &Value) -> Result<Value, String> {
    let anew = || dumps(value, &Style::default());
    let fields = value.downcast_object_ref::<Fields>();
    match fields.and_then(|fields| fields.written(|| anew().ok())) {
        Some(text) => Ok(text),
        None => anew().map(Value::from),
    }
}

/// The same for a JSON value.
pub(super) fn dumps_json(json: &serde_json::Value) -> String {
    dumps(&to_value(json), &Style::default()).unwrap_or_else(|_| json.to_string())
}

fn write(out: &mut String, value: &Value, style: &Style, depth: usize) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Err(format!("the value is nested more than {MAX_DEPTH} deep"));
    }
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => number(out, value),
        ValueKind::String => string(out, value.as_str().unwrap_or_default(), style.ascii),
        ValueKind::Seq | ValueKind::Iterable => {
            let items = value.try_iter().map_err(|e| e.to_string())?;
            let items = items.map(|item| (None, item));
            return members(out, items, ['[', ']'], style, depth);
        }
        ValueKind::Map => {
            let pairs = value.as_object().and_then(|object| object.try_iter_pairs());
            let pairs = pairs.into_iter().flatten();
            let mut pairs: Vec<_> =
                pairs.map(|(key, value)| (Some(key.to_string()), value)).collect();
            if style.sort_keys {
                pairs.sort_by(|a, b| a.0.cmp(&b.0));
            }
            return members(out, pairs.into_iter(), ['{', '}'], style, depth);
        }
        other => return Err(format!("a value of type {other} is not JSON serializable")),
    }
    Ok(())
}

fn members(
    out: &mut String,
    items: impl Iterator<Item = (Option<String>, Value)>,
    [open, close]: [char; 2],
    style: &Style,
    depth: usize,
) -> Result<(), String> {
    out.push(open);
    let mut some = false;
    for (key, item) in items {
        if some {
            out.push_str(&style.item_separator);
        }
        some = true;
        new_line(out, style, depth + 1);
        if let Some(key) = key {
            string(out, &key, style.ascii);
            out.push_str(&style.key_separator);
        }
        write(out, &item, style, depth + 1)?;
    }
    if some {
        new_line(out, style, depth);
    }
    out.push(close);
    Ok(())
}

fn new_line(out: &mut String, style: &Style, depth: usize) {
    if let Some(indent) = &style.indent {
        out.push('\n');
        out.extend(std::iter::repeat_n(indent.as_str(), depth));
    }
}

fn number(out: &mut String, value: &Value) {
    match f64::try_from(value.clone()) {
        Ok(float) if !value.is_integer() => out.push_str(&python_float(float)),
        _ => out.push_str(&value.to_string()),
    }
}

/// Python's `repr` of a float: shortest digits, an exponent of at least two digits outside
/// 1e-4 to 1e16.
fn python_float(float: f64) -> String {
    if float.is_nan() {
        return "NaN".into();
    }
    if float.is_infinite() {
        return if float > 0.0 { "Infinity".into() } else { "-Infinity".into() };
    }
    let size = float.abs();
    if size == 0.0 || (1e-4..1e16).contains(&size) {
        return format!("{float:?}");
    }
    let text = format!("{float:e}");
    let Some((digits, exponent)) = text.split_once('e') else {
        return text;
    };
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent),
    };
    format!("{digits}e{sign}{exponent:0>2}")
}

fn string(out: &mut String, text: &str, ascii: bool) {
    out.push('"');
    let mut rest = text;
    // Most of a text is written as it is.
    let odd = |byte: u8| byte < b' ' || matches!(byte, b'"' | b'\\') || ascii && !byte.is_ascii();
    while let Some(at) = rest.bytes().position(odd) {
        let Some((plain, behind)) = rest.split_at_checked(at) else { break };
        out.push_str(plain);
        let mut letters = behind.chars();
        match letters.next().unwrap_or_default() {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            control if control < ' ' => escape(out, u16::try_from(u32::from(control)).unwrap_or(0)),
            wide if ascii && !wide.is_ascii() => {
                wide.encode_utf16(&mut [0; 2]).iter().for_each(|unit| escape(out, *unit));
            }
            plain => out.push(plain),
        }
        rest = letters.as_str();
    }
    out.push_str(rest);
    out.push('"');
}

fn escape(out: &mut String, unit: u16) {
    // Writing to a String cannot fail.
    let _ = write!(out, "\\u{unit:04x}");
}

#[cfg(test)]
mod tests;
