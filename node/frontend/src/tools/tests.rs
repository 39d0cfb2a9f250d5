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
fn tags_inside_strings_do_not_count() {
    let text = r#"{"a": "</tool_call> \" <tool_call>"} </tool_call>"#;
    let end = text.rfind(CLOSE).unwrap();
    for cut in 0..text.len() {
        let mut scanner = TagScanner::default();
        assert_eq!(scanner.scan(&text[..cut]), None);
        assert_eq!(scanner.scan(text), Some(Met::Close(end)));
    }
}

#[test]
fn an_unclosed_string_ends_at_the_tag_on_its_own_line() {
    let text = "{\"a\": \"b\n</tool_call>";
    assert_eq!(TagScanner::default().scan(text), Some(Met::Close(9)));
}
