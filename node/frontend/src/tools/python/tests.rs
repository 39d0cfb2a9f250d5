use super::*;
use crate::testing::tools;

fn calls(text: &str) -> Option<Vec<(String, String)>> {
    Some(read(text, &tools())?.into_iter().map(|call| (call.name, call.arguments)).collect())
}

#[test]
fn lists_of_calls() {
    let one = |name: &str, arguments: &str| (name.to_owned(), arguments.to_owned());
    for (text, expected) in [
        (
            "[w(city='Oslo', n=3), now()]",
            vec![one("w", r#"{"city":"Oslo","n":3}"#), one("now", "{}")],
        ),
        ("[ now ( ) , ]", vec![one("now", "{}")]),
        ("w.call(city=\"x\")", vec![one("w", r#"{"city":"x"}"#)]),
        (
            "[x.y(a=[1, (2,), {'b': None}], c=-1.5e3, d=True,)]",
            vec![one("x.y", r#"{"a":[1,[2],{"b":null}],"c":-1500.0,"d":true}"#)],
        ),
        (
            r#"[w(city='a\'\n\u00e9\ud83e\udd80\x41\q')]"#,
            vec![one("w", r#"{"city":"a'\né🦀A\\q"}"#)],
        ),
        ("[w(city=5, n='7', flag='x')]", vec![one("w", r#"{"city":"5","n":7,"flag":"x"}"#)]),
        ("[x(a=1_000)]", vec![one("x", r#"{"a":1000}"#)]),
    ] {
        assert_eq!(calls(text), Some(expected), "{text}");
    }
}

#[test]
fn what_is_no_call() {
    for text in [
        "",
        "[]",
        "[1, 2]",
        "[w(",
        "[w(1)]",
        "[w(city=x)]",
        "[w(city='Oslo]",
        "w",
        "[w()] and more",
        "[w() now()]",
        "[w(n=007)]",
        "[w(city=f'x')]",
        "[w(a={1: 2})]",
    ] {
        assert_eq!(calls(text), None, "{text}");
    }
    let deep = format!("[w(a={}{})]", "[".repeat(1000), "]".repeat(1000));
    assert_eq!(calls(&deep), None);
    assert!(read_known("[x()]", &tools()).is_none());
    assert!(read_known("w(n=1)", &tools()).is_none());
    assert!(read_known("[w(n=1)]", &tools()).is_some());
}
