use super::*;

#[derive(serde::Deserialize, Debug)]
struct Outer {
    #[serde(default)]
    #[allow(dead_code)] // read only by Debug
    list: Vec<Inner>,
}

#[derive(serde::Deserialize, Debug)]
struct Inner {
    #[allow(dead_code)] // read only by Debug
    number: u32,
}

fn message(body: &str) -> String {
    parse::<Outer>(body.as_bytes()).unwrap_err().message
}

#[test]
fn syntax_errors_name_line_and_column() {
    assert_eq!(message("{\n \"list\": [}"), "invalid JSON at line 2 column 11: expected value");
    assert!(message("").starts_with("invalid JSON at line 1 column 0"));
    assert!(message("{} x").starts_with("invalid JSON at line 1 column 4"));
}

#[test]
fn type_errors_name_the_field() {
    let error = parse::<Outer>(br#"{"list":[{"number":1},{"number":"x"}]}"#).unwrap_err();
    assert_eq!(error.param.as_deref(), Some("list[1].number"));
    assert!(error.message.starts_with("list[1].number: invalid type"), "{}", error.message);
    assert_eq!(message("[]"), "the request body must be a JSON object");
    assert_eq!(message("7"), "the request body must be a JSON object");
}

#[test]
fn missing_and_repeated_fields_are_named() {
    for (body, param, message) in [
        (r#"{"list":[{}]}"#, "list[0].number", "list[0].number: missing field"),
        (r#"{"list":[],"list":[]}"#, "list", "list: is there twice"),
        (
            r#"{"list":[{"number":1,"number":2}]}"#,
            "list[0].number",
            "list[0].number: is there twice",
        ),
    ] {
        let error = parse::<Outer>(body.as_bytes()).unwrap_err();
        assert_eq!((error.param.as_deref(), error.message.as_str()), (Some(param), message));
    }
}

#[test]
fn values_have_their_limit() {
    type Any = std::collections::BTreeMap<String, serde::de::IgnoredAny>;
    let many = |count: usize| format!("{{\"a\":[{}1],\"b\":\",[{{\"}}", "1,".repeat(count));
    assert!(parse::<Any>(many(VALUES_MAX - 10).as_bytes()).is_ok());
    let error = parse::<Any>(many(VALUES_MAX).as_bytes()).unwrap_err();
    assert!(error.message.contains("more than 1000000 JSON values"), "{}", error.message);
    // Arguments of calls are JSON within a text.
    let hidden = |count: usize| format!("{{\"a\":\"[{}1]\"}}", "1,".repeat(count));
    assert!(parse::<Any>(hidden(IN_TEXTS_MAX - 10).as_bytes()).is_ok());
    assert!(parse::<Any>(hidden(IN_TEXTS_MAX).as_bytes()).is_err());
}

#[test]
fn depth_has_its_limit() {
    let deep = |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
    type Any = serde_json::Map<String, serde_json::Value>;
    assert!(parse::<Any>(deep(DEPTH_MAX - 1).as_bytes()).is_ok());
    for levels in [DEPTH_MAX, 100_000] {
        let error = parse::<Any>(deep(levels).as_bytes()).unwrap_err();
        assert!(error.message.contains("nested 127 levels deep"), "{}", error.message);
        assert!(error.param.unwrap().starts_with('a'));
    }
}
