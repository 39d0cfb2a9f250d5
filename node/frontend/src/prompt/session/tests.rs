use super::*;
use axum::http::HeaderValue;

fn session(headers: &[(&'static str, &str)]) -> Session {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.insert(*name, HeaderValue::from_str(value).unwrap());
    }
    Session::of(&map)
}

#[test]
fn every_harness_names_its_session() {
    let id = |text: &str| SessionId::new(text);
    /// Headers, session, parent.
    type Case =
        (&'static [(&'static str, &'static str)], Option<&'static str>, Option<&'static str>);
    let cases: [Case; 8] = [
        (&[], None, None),
        (&[("session-id", "a")], Some("a"), None),
        (&[("session-id", "a"), ("thread-id", "b")], Some("b"), None),
        (&[("thread-id", "b"), ("x-codex-parent-thread-id", "p")], Some("b"), Some("p")),
        (&[("x-session-id", "a"), ("x-parent-session-id", "p")], Some("a"), Some("p")),
        (
            &[("x-claude-code-session-id", "s"), ("x-claude-code-agent-id", "x")],
            Some("s/x"),
            Some("s"),
        ),
        (
            &[
                ("x-claude-code-session-id", "s"),
                ("x-claude-code-agent-id", "x"),
                ("x-claude-code-parent-agent-id", "y"),
            ],
            Some("s/x"),
            Some("s/y"),
        ),
        (
            &[
                ("x-dynamo-session-id", "d"),
                ("x-claude-code-session-id", "s"),
                ("x-dynamo-parent-session-id", "p"),
            ],
            Some("d"),
            Some("p"),
        ),
    ];
    for (headers, own, parent) in cases {
        let session = session(headers);
        assert_eq!(
            (session.id, session.parent),
            (own.and_then(id), parent.and_then(id)),
            "{headers:?}"
        );
    }
}

#[test]
fn what_cannot_be_used_is_told() {
    let long = "x".repeat(300);
    let told = session(&[("x-dynamo-session-id", &long), ("x-dynamo-session-final", "maybe")]);
    assert_eq!((told.id, told.last), (None, false));
    let verdicts: Vec<_> = told.outcomes.iter().map(|o| o.to_json()["outcome"].clone()).collect();
    assert_eq!(verdicts, ["rejected", "rejected"]);
    let mut odd = HeaderMap::new();
    odd.insert("x-dynamo-session-id", HeaderValue::from_bytes("é".as_bytes()).unwrap());
    assert_eq!(Session::of(&odd).outcomes[0].to_json()["outcome"], "rejected");
    for (word, last) in [("true", true), ("1", true), ("False", false), ("0", false)] {
        assert_eq!(session(&[("x-dynamo-session-final", word)]).last, last, "{word}");
    }
}
