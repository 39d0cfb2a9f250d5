//! What JSON values take in memory, which is far more than their text.

use serde_json::Value;

/// About how many bytes a value takes; its texts count three times, because templates see copies of
/// them, and write some as JSON.
pub(crate) fn weight(value: &Value) -> usize {
    const NODE: usize = 96;
    NODE + match value {
        Value::String(text) => text.len() * 3,
        Value::Array(values) => values.iter().map(weight).sum(),
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| NODE + key.len() * 2 + weight(value)).sum()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}
