use super::*;

fn call(name: &str, arguments: &str) -> Call {
    Call { name: name.into(), arguments: arguments.into() }
}

#[test]
fn calls_in_their_many_forms() {
    let cases = [
        (r#"{"name": "w", "arguments": {"city": "Oslo"}}"#, vec![call("w", r#"{"city":"Oslo"}"#)]),
        (r#"{"name":"w"}"#, vec![call("w", "{}")]),
        (r#"{"name":"w","arguments":null}"#, vec![call("w", "{}")]),
        (r#"{"name":"w","parameters":{"b":1,"a":2}}"#, vec![call("w", r#"{"b":1,"a":2}"#)]),
        (r#"{"name":"w","arguments":"{\"a\":1}"}"#, vec![call("w", r#"{"a":1}"#)]),
        (r#"{"function":{"name":"w","arguments":{}}}"#, vec![call("w", "{}")]),
        (r#"[{"name":"a"},{"name":"b"}]"#, vec![call("a", "{}"), call("b", "{}")]),
        (
            "{\"name\":\"w\",\"arguments\":{\"t\":\"a\nb\tc\"}}",
            vec![call("w", r#"{"t":"a\nb\tc"}"#)],
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(read_calls(text), Some(expected), "{text}");
    }
}

#[test]
fn what_is_no_call() {
    for text in
        ["", "[]", "7", "{}", r#"{"name":""}"#, r#"{"name":"w","arguments":[1]}"#, "{\"name\":"]
    {
        assert_eq!(read_calls(text), None, "{text}");
    }
}

#[test]
fn a_call_without_a_mark_must_look_like_nothing_else() {
    let tools = crate::testing::tools();
    for text in [
        r#"{"name": "w", "parameters": {"city": "Oslo"}}"#,
        r#"{"type":"function","name":"now","parameters":{}}"#,
        r#"[{"name":"w","arguments":{}},{"name":"now","parameters":{}}]"#,
    ] {
        assert!(read_bare(text, &tools).is_some(), "{text}");
    }
    for text in [
        r#"{"name": "w"}"#,
        r#"{"name": "nobody", "parameters": {}}"#,
        r#"{"name": "w", "parameters": {}, "age": 3}"#,
        r#"[{"name":"w","arguments":{}},{"name":"x","parameters":{}}]"#,
        "[]",
    ] {
        assert_eq!(read_bare(text, &tools), None, "{text}");
    }
    assert_eq!(read_bare(r#"{"name":"w","parameters":{}}"#, &Tools::default()), None);
}
