//! How many values a JSON text holds, before it is read.

/// Beginnings of lists and objects, and commas: each makes one value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Count {
    /// Of the JSON itself.
    pub(super) outside: usize,
    /// Within its texts, which may be JSON again.
    pub(super) in_texts: usize,
}

/// What `json` holds; of bytes that are no JSON, anything.
pub(super) fn count(json: &[u8]) -> Count {
    let marks = |bytes: &[u8]| bytes.iter().filter(|b| matches!(b, b',' | b'[' | b'{')).count();
    let (mut rest, mut count) = (json, Count::default());
    while let Some(quote) = memchr::memchr(b'"', rest) {
        let (plain, text) = rest.split_at(quote);
        count.outside += marks(plain);
        let text = text.get(1..).unwrap_or_default();
        let (text, behind) = text.split_at_checked(length(text)).unwrap_or((text, &[]));
        count.in_texts += marks(text);
        rest = behind.get(1..).unwrap_or_default();
    }
    count.outside += marks(rest);
    count
}

/// Bytes of the text that begins here, up to its closing quote.
fn length(text: &[u8]) -> usize {
    let mut at = 0;
    while let Some(found) = memchr::memchr2(b'"', b'\\', text.get(at..).unwrap_or_default()) {
        at += found;
        if text.get(at) == Some(&b'"') {
            return at;
        }
        at += 2;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::{Count, count};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn exact(value: &Value) -> Count {
        let marks = |text: &str| text.matches([',', '[', '{']).count();
        match value {
            Value::Array(list) => list
                .iter()
                .map(exact)
                .fold(Count { outside: 1 + list.len().saturating_sub(1), in_texts: 0 }, both),
            Value::Object(map) => map
                .iter()
                .map(|(key, value)| both(exact(value), Count { outside: 0, in_texts: marks(key) }))
                .fold(Count { outside: 1 + map.len().saturating_sub(1), in_texts: 0 }, both),
            Value::String(text) => Count { outside: 0, in_texts: marks(text) },
            _ => Count::default(),
        }
    }

    fn both(a: Count, b: Count) -> Count {
        Count { outside: a.outside + b.outside, in_texts: a.in_texts + b.in_texts }
    }

    proptest! {
        #[test]
        fn values_are_counted_within_texts_and_outside(
            texts in prop::collection::vec("[a,{\"\\\\]|\\PC", 0..6),
        ) {
            let value = json!({"a": texts, "b,[{\"\\": [[], {}, [1, 2, {"c": "x,\"[{"}]]});
            let json = value.to_string();
            prop_assert_eq!(count(json.as_bytes()), exact(&value));
            for cut in 0..json.len() {
                count(&json.as_bytes()[..cut]);
            }
        }
    }
}
