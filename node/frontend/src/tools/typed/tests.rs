use super::*;
use serde_json::json;

fn typed(text: &str, schema: Value) -> Value {
    value(text, Some(&schema), Some(&schema))
}

#[test]
fn a_string_stays_a_string() {
    for text in ["007", "5", "true", "null", "[1]", "{\"a\": 1}", " x ", "\"q\""] {
        assert_eq!(typed(text, json!({"type": "string"})), json!(text));
    }
}

#[test]
fn other_types_are_read() {
    for (text, kind, expected) in [
        ("5", "integer", json!(5)),
        (" 5\n", "integer", json!(5)),
        ("5.5", "integer", json!("5.5")),
        ("2.0", "integer", json!(2.0)),
        ("5.5", "number", json!(5.5)),
        ("007", "integer", json!("007")),
        ("12345678901234567890123", "integer", json!("12345678901234567890123")),
        ("true", "boolean", json!(true)),
        ("False", "boolean", json!(false)),
        ("1", "boolean", json!("1")),
        ("null", "null", json!(null)),
        ("[1, \"a\"]", "array", json!([1, "a"])),
        ("{\"a\": 1}", "object", json!({"a": 1})),
        ("{a: 1}", "object", json!("{a: 1}")),
    ] {
        assert_eq!(typed(text, json!({ "type": kind })), expected, "{text} {kind}");
    }
}

#[test]
fn alternatives_and_references() {
    let text_or_none = json!({"anyOf": [{"type": "string"}, {"type": "null"}]});
    assert_eq!(typed("null", text_or_none.clone()), json!(null));
    assert_eq!(typed("5", text_or_none), json!("5"));
    assert_eq!(typed("5", json!({"type": ["string", "integer"]})), json!(5));
    assert_eq!(typed("null", json!({"type": "integer", "nullable": true})), json!(null));
    assert_eq!(typed("1", json!({"enum": ["1", "2"]})), json!("1"));
    assert_eq!(typed("1", json!({"enum": [1, 2]})), json!(1));
    assert_eq!(typed("1", json!({"const": "1"})), json!("1"));
    let root = json!({"$defs": {"t": {"type": "string"}, "l": {"$ref": "#/$defs/l"}}});
    let by = |name: &str| json!({ "$ref": format!("#/$defs/{name}") });
    assert_eq!(value("5", Some(&by("t")), Some(&root)), json!("5"));
    assert_eq!(value("5", Some(&by("l")), Some(&root)), json!(5), "a circle says nothing");
    assert_eq!(value("5", Some(&by("x")), Some(&root)), json!(5));
}

#[test]
fn where_nothing_is_known_json_is_json() {
    for (text, expected) in
        [("5", json!(5)), ("[1]", json!([1])), ("Oslo", json!("Oslo")), ("\"q\"", json!("\"q\""))]
    {
        assert_eq!(value(text, None, None), expected);
        assert_eq!(typed(text, json!({"description": "d"})), expected);
    }
}

#[test]
fn properties_are_found() {
    let schema = json!({"properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "integer"}});
    assert_eq!(property(Some(&schema), "a"), Some(&json!({"type": "string"})));
    assert_eq!(property(Some(&schema), "b"), Some(&json!({"type": "integer"})));
    assert_eq!(property(Some(&json!({"additionalProperties": false})), "b"), None);
}

/// Schemas that name themselves a thousand times at each of eight levels: nothing is known then,
/// and that is found out at once.
#[test]
fn a_schema_without_end_is_not_followed() {
    for word in ["allOf", "anyOf", "oneOf"] {
        let again = vec![json!({"$ref": "#/properties/a"}); 1000];
        let root = json!({"properties": {"a": {word: again}}});
        assert_eq!(value("5", Some(&root["properties"]["a"]), Some(&root)), json!(5));
    }
    let level = |n: usize| json!({"anyOf": vec![json!({"$ref": format!("#/$defs/{n}")}); 300]});
    let root =
        json!({"$defs": {"0": level(1), "1": level(2), "2": level(3), "3": {"type": "string"}}});
    assert_eq!(value("5", Some(&root["$defs"]["0"]), Some(&root)), json!(5));
}
