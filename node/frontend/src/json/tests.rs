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
