//! JSON bodies to typed values, with errors that name the place.

mod surrogates;
mod values;

use crate::error::ApiError;
use serde::de::DeserializeOwned;
use serde_json::error::Category;

/// Reads one JSON object. Syntax errors name line and column, type errors the path of the field.
pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    if body.len() > MANY {
        let count = values::count(body);
        if count.outside > VALUES_MAX || count.in_texts > IN_TEXTS_MAX {
            let why = format!(
                "the request body holds more than {VALUES_MAX} JSON values, or more than \
                 {IN_TEXTS_MAX} commas and brackets in its texts"
            );
            return Err(ApiError::invalid(why));
        }
    }
    let object = body.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'{');
    if !object && serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok() {
        // A struct would accept an array of its fields in order.
        return Err(ApiError::invalid("the request body must be a JSON object"));
    }
    // Keeping track of the path costs a third more, and few bodies are wrong.
    if let Ok(value) = serde_json::from_slice(body) {
        return Ok(value);
    }
    let mended = surrogates::mended(body);
    let body = mended.as_deref().unwrap_or(body);
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = match serde_path_to_error::deserialize(&mut reader) {
        Ok(value) => value,
        Err(error) => return Err(describe(&error.path().to_string(), error.inner())),
    };
    match reader.end() {
        Ok(()) => Ok(value),
        Err(error) => Err(describe(".", &error)),
    }
}

/// Reads a typed value out of an already parsed one; `at` is its path in the body.
pub(crate) fn typed<T: DeserializeOwned>(
    at: &str,
    value: serde_json::Value,
) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let path = match path.as_str() {
            "." => at.to_owned(),
            list if list.starts_with('[') => format!("{at}{list}"),
            _ => format!("{at}.{path}"),
        };
        describe(&path, error.inner())
    })
}

/// The library names types of its language; clients know those of JSON.
fn plain(text: &str) -> String {
    let Some((found, expected)) = text.rsplit_once(", expected ") else {
        return text.to_owned();
    };
    let expected = match expected {
        "i8" | "i16" | "i32" | "i64" | "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "an object",
        named if named.starts_with("struct ") => "an object",
        other => other,
    };
    format!("{found}, expected {expected}")
}

/// Most values of one body. Each takes up to some hundred bytes of memory, whatever it takes in JSON.
pub(crate) const VALUES_MAX: usize = 1_000_000;
/// Most commas and opening brackets in the texts of one body: arguments of calls are JSON again. No
/// context holds as many.
pub(crate) const IN_TEXTS_MAX: usize = 2_000_000;
/// Bodies up to this many bytes are not counted.
const MANY: usize = 512 << 10;

/// Deepest nesting of lists and objects: what the JSON reader follows on one thread's stack.
pub(crate) const DEPTH_MAX: usize = 127;
/// Parts of a path that are told of a body that is nested too deeply.
const DEEP_PARTS: usize = 4;

fn describe(path: &str, error: &serde_json::Error) -> ApiError {
    let text = error.to_string();
    // serde_json appends the position; it is said in our own words or not at all.
    let text = plain(text.split(" at line ").next().unwrap_or_default());
    if text == "recursion limit exceeded" {
        let path: Vec<&str> = path.split('.').take(DEEP_PARTS).collect();
        let why = format_args!("JSON may be nested {DEPTH_MAX} levels deep").to_string();
        return located(&path.join("."), why);
    }
    match error.classify() {
        Category::Data => match of_a_field(&text) {
            Some((field, why)) if path == "." => located(field, why.into()),
            Some((field, why)) => located(&format!("{path}.{field}"), why.into()),
            None => located(path, text),
        },
        Category::Syntax | Category::Eof | Category::Io => ApiError::invalid(format!(
            "invalid JSON at line {} column {}: {text}",
            error.line(),
            error.column()
        )),
    }
}

/// An error at `path`, which is `.` for the body itself.
fn located(path: &str, why: String) -> ApiError {
    if path == "." { ApiError::invalid(why) } else { ApiError::field(path, why) }
}

/// The field that the library names within its words.
fn of_a_field(text: &str) -> Option<(&str, &'static str)> {
    let named = |start| text.strip_prefix(start)?.strip_suffix('`');
    let missing = named("missing field `").map(|field| (field, "missing field"));
    missing.or_else(|| named("duplicate field `").map(|field| (field, "is there twice")))
}

#[cfg(test)]
mod tests;
