use super::*;

/// The end, the same however the text is cut.
fn end(until: Until, next: &'static [&'static str], text: &str) -> Option<End> {
    let whole = Scanner::new(until, next).scan(text);
    let mut scanner = Scanner::new(until, next);
    let cuts = text.char_indices().map(|(at, c)| at + c.len_utf8());
    let stepped = cuts.filter_map(|cut| scanner.scan(&text[..cut])).next();
    assert_eq!(stepped, whole, "{text}");
    whole
}

fn inner(until: Until, next: &'static [&'static str], text: &str) -> Option<String> {
    end(until, next, text).map(|end| text[..end.at].to_owned())
}

#[test]
fn marks_inside_strings_do_not_count() {
    let text = r#"{"a": "</tool_call> \" <tool_call>"} </tool_call>"#;
    let at = text.rfind(CLOSE).unwrap();
    let next = at + CLOSE.len();
    assert_eq!(end(Until::Mark(CLOSE), &[OPEN], text), Some(End { at, next }));
    assert_eq!(end(Until::ToolCall, &[OPEN], text), Some(End { at, next }));
    assert_eq!(end(Until::ToolCall, &[OPEN], &text[..at]), None);
}

#[test]
fn an_unclosed_string_ends_at_the_mark_on_its_own_line() {
    let text = "{\"a\": \"b\n</tool_call>";
    assert_eq!(inner(Until::Mark(CLOSE), &[], text).as_deref(), Some("{\"a\": \"b\n"));
}

#[test]
fn a_call_that_was_never_closed_ends_at_the_next() {
    let text = r#"{"name":"a"}<tool_call>"#;
    let at = text.find(OPEN).unwrap();
    assert_eq!(end(Until::ToolCall, &[OPEN], text), Some(End { at, next: at }));
}

#[test]
fn values_in_xml_may_hold_the_tags_that_end_them() {
    let call = "<function=f>\n<parameter=a>\n</parameter>. </function> </tool_call>\n</parameter>\n\
                </function>";
    assert_eq!(inner(Until::Xml(&xml::FUNCTION), &[], &format!("{call} x")).as_deref(), Some(call));
    let outer = format!("\n{call}\n");
    let text = format!("{outer}</tool_call> x");
    assert_eq!(inner(Until::ToolCall, &[OPEN], &text), Some(outer));
    let glm = "f\n<arg_key>a</arg_key>\n<arg_value></tool_call>\n</arg_value>\n";
    let text = format!("{glm}</tool_call>");
    assert_eq!(inner(Until::ToolCall, &[OPEN], &text).as_deref(), Some(glm));
}

#[test]
fn brackets_are_balanced() {
    for (text, expected) in [
        (r#" [{"a": "]}"}] x"#, Some(r#" [{"a": "]}"}]"#)),
        (r#"f[ARGS]{"a": {}}{"#, Some(r#"f[ARGS]{"a": {}}"#)),
        ("[f(a='])', b=[1]), g()] x", Some("[f(a='])', b=[1]), g()]")),
        ("f.call(a=(1)) x", Some("f.call(a=(1))")),
        ("[f(a=1)", None),
        ("plain words", None),
    ] {
        assert_eq!(inner(Until::Balance, &[], text).as_deref(), expected, "{text}");
    }
    assert_eq!(inner(Until::Balance, &["[NEXT]"], "[x[NEXT]").as_deref(), Some("[x"));
}
