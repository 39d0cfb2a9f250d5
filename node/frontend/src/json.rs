//! JSON bodies to typed values, with errors that name the place.

use crate::error::ApiError;
use serde::de::DeserializeOwned;
use serde_json::error::Category;

/// Reads one JSON object. Syntax errors name line and column, type errors the path of the field.
pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    let object = body.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'{');
    if !object && serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok() {
        // A struct would accept an array of its fields in order.
        return Err(ApiError::invalid("the request body must be a JSON object"));
    }
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

fn describe(path: &str, error: &serde_json::Error) -> ApiError {
    let text = error.to_string();
    // serde_json appends the position; it is said in our own words or not at all.
    let text = plain(text.split(" at line ").next().unwrap_or_default());
    match error.classify() {
        Category::Data if path == "." => ApiError::invalid(text),
        Category::Data => ApiError::field(path, text),
        Category::Syntax | Category::Eof | Category::Io => ApiError::invalid(format!(
            "invalid JSON at line {} column {}: {text}",
            error.line(),
            error.column()
        )),
    }
}

#[cfg(test)]
mod tests;
