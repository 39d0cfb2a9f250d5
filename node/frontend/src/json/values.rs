//! How many values a JSON text holds, before it is read.

/// Whether `json` holds more than `most` values: counted are the beginnings of lists and objects and
/// the commas, which makes each value one. Texts that are no JSON give any answer.
pub(crate) fn more_than(json: &[u8], most: usize) -> bool {
    let (mut rest, mut found) = (json, 0usize);
    loop {
        let (plain, text) = match memchr::memchr(b'"', rest) {
            Some(quote) => rest.split_at(quote),
            None => (rest, [].as_slice()),
        };
        found += plain.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count();
        if found > most {
            return true;
        }
        match text.get(1..) {
            Some(text) => rest = behind(text),
            None => return false,
        }
    }
}

/// What stands behind the text that begins here.
fn behind(mut text: &[u8]) -> &[u8] {
    while let Some(at) = memchr::memchr2(b'"', b'\\', text) {
        let width = if text.get(at) == Some(&b'"') { 1 } else { 2 };
        text = text.get(at + width..).unwrap_or_default();
        if width == 1 {
            return text;
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::more_than;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    /// Values without their names.
    fn count(value: &Value) -> usize {
        match value {
            Value::Array(list) => {
                1 + list.len().saturating_sub(1) + list.iter().map(inner).sum::<usize>()
            }
            Value::Object(map) => {
                1 + map.len().saturating_sub(1) + map.values().map(inner).sum::<usize>()
            }
            _ => 0,
        }
    }

    fn inner(value: &Value) -> usize {
        count(value)
    }

    proptest! {
        #[test]
        fn values_are_counted_outside_of_texts(texts in prop::collection::vec(any::<String>(), 0..6)) {
            let value = json!({"a": texts, "b,[{\"\\": [[], {}, [1, 2, {"c": "x,\"[{"}]]});
            let (json, exact) = (value.to_string(), count(&value));
            prop_assert!(!more_than(json.as_bytes(), exact));
            prop_assert!(more_than(json.as_bytes(), exact - 1));
            for cut in 0..json.len() {
                more_than(&json.as_bytes()[..cut], exact);
            }
        }
    }
}
