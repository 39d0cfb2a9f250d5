//! Halves of surrogate pairs in JSON text.
//!
//! Programs whose strings are UTF-16 cut a text anywhere and then escape the half they are left
//! with (`"\ud83d"`). It stands for no character, and JSON readers refuse it; but the session of
//! the agent that sends it would be stuck for ever, since it is part of its history now.

/// The body with each lone half replaced by U+FFFD; `None` when there is none.
pub(super) fn mended(body: &[u8]) -> Option<Vec<u8>> {
    let mut out: Option<Vec<u8>> = None;
    let (mut at, mut copied) = (0, 0);
    while let Some(found) = body.get(at..).and_then(|rest| rest.iter().position(|b| *b == b'\\')) {
        at += found;
        match (half(body, at), half(body, at + 6)) {
            (Some(Half::High), Some(Half::Low)) => at += 12,
            (Some(_), _) => {
                let out = out.get_or_insert_default();
                out.extend_from_slice(body.get(copied..at).unwrap_or_default());
                out.extend_from_slice(b"\\ufffd");
                at += 6;
                copied = at;
            }
            // Another escape: a backslash and at least one character.
            (None, _) => at += 2,
        }
    }
    let mut out = out?;
    out.extend_from_slice(body.get(copied..).unwrap_or_default());
    Some(out)
}

enum Half {
    High,
    Low,
}

/// The half of a pair that is escaped at `at`.
fn half(body: &[u8], at: usize) -> Option<Half> {
    let digits = body.get(at..at + 6)?.strip_prefix(b"\\u")?;
    let digits = std::str::from_utf8(digits).ok().filter(|d| !d.starts_with('+'))?;
    match u16::from_str_radix(digits, 16).ok()? {
        0xd800..=0xdbff => Some(Half::High),
        0xdc00..=0xdfff => Some(Half::Low),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    #[test]
    fn lone_halves_become_one_character_each() {
        let cases = [
            (r#"{"a": "\ud83d"}"#, "\u{fffd}"),
            (r#"{"a": "x\udd80y"}"#, "x\u{fffd}y"),
            (r#"{"a": "\ud83d\ud83e\udd80"}"#, "\u{fffd}🦀"),
            (r#"{"a": "\\ud83d \ud83d"}"#, "\\ud83d \u{fffd}"),
            (r#"{"a": "\udd80\ud83e\""}"#, "\u{fffd}\u{fffd}\""),
        ];
        for (body, text) in cases {
            let value: Value = serde_json::from_slice(&mended(body.as_bytes()).unwrap()).unwrap();
            assert_eq!(value["a"], text, "{body}");
        }
    }

    proptest! {
        #[test]
        fn good_text_is_left_alone(text: String, tail: Vec<u8>) {
            let escaped = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(mended(escaped.as_bytes()), None);
            let utf16: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
            prop_assert_eq!(mended(utf16.as_bytes()), None);
            let _ = mended(&tail);
        }
    }
}
