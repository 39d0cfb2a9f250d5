//! Values that a model wrote as bare text, typed by the tool's JSON schema.

use serde_json::Value;

/// How many `$ref`s and alternatives are followed inside one another.
const DEPTH: usize = 8;
/// Schemas that are looked at for one value.
const VISITS: usize = 256;

/// What a schema allows a value to be.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
struct Kinds {
    text: bool,
    integer: bool,
    number: bool,
    boolean: bool,
    null: bool,
    list: bool,
    object: bool,
}

/// The schema of the argument `key` in the `schema` of all arguments.
pub(crate) fn property<'a>(schema: Option<&'a Value>, key: &str) -> Option<&'a Value> {
    let schema = schema?;
    let direct = schema.get("properties").and_then(|properties| properties.get(key));
    direct.or_else(|| schema.get("additionalProperties").filter(|more| more.is_object()))
}

/// The value of `text`. Where the schema wants a string it stays as it is, whatever it looks like;
/// where the schema wants something else and the text is that, it is read; where nothing is known,
/// JSON is read as JSON. What cannot be read stays a string, so that nothing is lost. `root` is
/// where `$ref`s of `schema` point into.
pub(crate) fn value(text: &str, schema: Option<&Value>, root: Option<&Value>) -> Value {
    let kinds = schema.and_then(|schema| kinds(schema, root.unwrap_or(schema)));
    let Some(kinds) = kinds else {
        return parsed(text).filter(|v| !v.is_string()).unwrap_or_else(|| text.into());
    };
    match parsed(text).filter(|value| kinds.take(value)) {
        // A text between quotes is a string in quotes, if a string is wanted.
        Some(value) if !value.is_string() => value,
        _ => text.into(),
    }
}

/// As [`value`] for a value that the model wrote in a language of its own, as `source`.
pub(crate) fn retyped(
    read: Value,
    source: &str,
    schema: Option<&Value>,
    root: Option<&Value>,
) -> Value {
    let kinds = schema.and_then(|schema| kinds(schema, root.unwrap_or(schema)));
    let Some(kinds) = kinds else {
        return read;
    };
    match &read {
        _ if kinds.take(&read) => read,
        Value::String(text) => value(text, schema, root),
        _ if kinds.text => source.trim().into(),
        _ => read,
    }
}

/// JSON, and Python's words for what JSON has too.
fn parsed(text: &str) -> Option<Value> {
    let text = text.trim();
    match text {
        "True" => Some(true.into()),
        "False" => Some(false.into()),
        "None" => Some(Value::Null),
        _ => serde_json::from_str(text).ok(),
    }
}

impl Kinds {
    fn take(self, value: &Value) -> bool {
        match value {
            Value::String(_) => self.text,
            Value::Bool(_) => self.boolean,
            Value::Null => self.null,
            Value::Array(_) => self.list,
            Value::Object(_) => self.object,
            Value::Number(n) => {
                let whole = || n.as_f64().is_some_and(|n| n.fract() == 0.0 && n.abs() < 9e15);
                self.number || (self.integer && (n.is_i64() || n.is_u64() || whole()))
            }
        }
    }

    fn add(&mut self, name: &str) {
        match name {
            "string" => self.text = true,
            "integer" => self.integer = true,
            "number" => self.number = true,
            "boolean" => self.boolean = true,
            "null" => self.null = true,
            "array" => self.list = true,
            "object" => self.object = true,
            _ => {}
        }
    }

    fn of(value: &Value) -> Self {
        let mut kinds = Self::default();
        kinds.add(match value {
            Value::String(_) => "string",
            Value::Bool(_) => "boolean",
            Value::Null => "null",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
            Value::Number(_) => "number",
        });
        kinds
    }

    fn or(self, other: Self) -> Self {
        Self {
            text: self.text || other.text,
            integer: self.integer || other.integer,
            number: self.number || other.number,
            boolean: self.boolean || other.boolean,
            null: self.null || other.null,
            list: self.list || other.list,
            object: self.object || other.object,
        }
    }
}

/// What `schema` allows; `None` when it does not say, or not within a bounded look.
fn kinds(schema: &Value, root: &Value) -> Option<Kinds> {
    let mut visits = VISITS;
    kinds_within(schema, root, DEPTH, &mut visits)
}

/// [`kinds`], `depth` levels deep and with at most `visits` schemas looked at: they may name each
/// other, and themselves, again and again.
fn kinds_within(schema: &Value, root: &Value, depth: usize, visits: &mut usize) -> Option<Kinds> {
    let depth = depth.checked_sub(1)?;
    *visits = visits.checked_sub(1)?;
    let mut kinds_here = Kinds::default();
    match schema.get("type") {
        Some(Value::String(name)) => kinds_here.add(name),
        Some(Value::Array(names)) => {
            names.iter().filter_map(Value::as_str).for_each(|name| kinds_here.add(name));
        }
        _ => {
            if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
                let target = root.pointer(reference.strip_prefix('#')?)?;
                return kinds_within(target, root, depth, visits);
            }
            let values = schema.get("enum").and_then(Value::as_array).map(Vec::as_slice);
            let values = values.unwrap_or_default().iter().chain(schema.get("const"));
            kinds_here = values.map(Kinds::of).fold(kinds_here, Kinds::or);
            for word in ["anyOf", "oneOf", "allOf"] {
                let parts = schema.get(word).and_then(Value::as_array);
                for part in parts.map(Vec::as_slice).unwrap_or_default() {
                    // One alternative that says nothing allows everything.
                    let part = kinds_within(part, root, depth, visits);
                    if let Some(part) = part {
                        kinds_here = kinds_here.or(part);
                    } else if word != "allOf" {
                        return None;
                    }
                }
            }
            let has = |word| schema.get(word).is_some();
            if kinds_here == Kinds::default() && (has("properties") || has("items")) {
                kinds_here.add(if has("items") { "array" } else { "object" });
            }
        }
    }
    if schema.get("nullable") == Some(&Value::Bool(true)) {
        kinds_here.null = true;
    }
    (kinds_here != Kinds::default()).then_some(kinds_here)
}

#[cfg(test)]
mod tests;
