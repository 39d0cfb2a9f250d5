//! What may come before, between and after.

use super::*;
use protocol::constraint::{CallShape, Callable, Calls};
use serde_json::json;

fn shape() -> CallShape {
    CallShape {
        open: "<tool_call>\n{\"name\": ".into(),
        arguments: ", \"arguments\": ".into(),
        close: "}\n</tool_call>".into(),
        between: "\n".into(),
    }
}

fn calls(begun: &str, parallel: bool) -> Calls {
    let city = json!({
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
        "additionalProperties": false,
    });
    let city = Schema { text: city.to_string(), exact: true };
    let tools = vec![
        Callable { name: "weather".into(), parameters: Some(city) },
        Callable { name: "say \"hi\"".into(), parameters: None },
    ];
    Calls { shape: shape(), begun: begun.into(), tools, parallel }
}

fn compiled(lead: Lead, form: Form) -> Arc<Grammar> {
    tiny().compile(&Constraint { lead, form }).unwrap()
}

#[test]
fn any_object() {
    let grammar = compiled(Lead::None, Form::Text(TextForm::JsonObject));
    assert_eq!(says(&grammar, r#"{"a": [1, {"ü🙂": null}]}"#), Fate::Must);
    assert_eq!(says(&grammar, "{\n  \"a\": 1\n}"), Fate::Must);
    assert_eq!(says(&grammar, r#"{"a": 1"#), Fate::Unfinished);
    assert!(matches!(says(&grammar, "[1]"), Fate::Refused(0)));
    // White space is for reading, not for going on forever.
    assert!(matches!(says(&grammar, "{\n\n\n\n\"a\":1}"), Fate::Refused(_)));
    assert!(matches!(says(&grammar, "   {}"), Fate::Refused(0)));
}

#[test]
fn a_number_may_go_on() {
    let grammar = tiny().compile(&schema(&json!({"type": "integer"}), true)).unwrap();
    assert_eq!(says(&grammar, "12"), Fate::May);
    assert_eq!(says(&grammar, "-"), Fate::Unfinished);
}

#[test]
fn calls_go_on_from_where_the_prompt_stopped() {
    let required = "<tool_call>\n{\"name\":";
    let one = compiled(Lead::None, Form::Calls(calls(required, false)));
    let call = " \"weather\", \"arguments\": {\"city\": \"Köln\"}}\n</tool_call>";
    assert_eq!(says(&one, call), Fate::Must);
    let other = r#" "say \"hi\"", "arguments": {"x": 1}}"#;
    assert_eq!(says(&one, &format!("{other}\n</tool_call>")), Fate::Must);
    assert!(matches!(says(&one, " \"other\""), Fate::Refused(_)));
    assert!(matches!(says(&one, &call.replace("city", "town")), Fate::Refused(_)));

    let many = compiled(Lead::None, Form::Calls(calls(required, true)));
    assert_eq!(says(&many, call), Fate::May);
    assert_eq!(says(&many, &format!("{call}\n{required}{call}")), Fate::May);
    assert!(matches!(says(&many, &format!("{call}\n{required}{required}")), Fate::Refused(_)));

    let begun = "<tool_call>\n{\"name\": \"weather\", \"arguments\":";
    let named = compiled(Lead::None, Form::Calls(calls(begun, false)));
    assert_eq!(says(&named, " {\"city\": \"Bonn\"}}\n</tool_call>"), Fate::Must);
    let nothing = Form::Calls(calls("<call>", false));
    let error = tiny().compile(&Constraint { lead: Lead::None, form: nothing }).unwrap_err();
    assert!(matches!(error, GrammarError::Refused(_)), "{error}");
}

#[test]
fn text_or_calls() {
    let grammar = compiled(Lead::None, Form::TextOrCalls(TextForm::JsonObject, calls("", true)));
    assert_eq!(says(&grammar, "{\"a\": 1}"), Fate::Must);
    let call =
        "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"x\"}}\n</tool_call>";
    assert_eq!(says(&grammar, call), Fate::May);
    assert!(matches!(says(&grammar, &format!("{{}}\n{call}")), Fate::Refused(_)));
}

#[test]
fn reasoning_is_free_and_the_answer_is_not() {
    let text = || Form::Text(TextForm::JsonObject);
    let open = compiled(Lead::Through("</think>".into()), text());
    assert_eq!(says(&open, "Hm: {\"a\" <b> </thin.\n</think>\n\n{\"a\": 1}"), Fate::Must);
    assert_eq!(says(&open, "</think>{}"), Fate::Must);
    assert_eq!(says(&open, "no end in sight {}"), Fate::Unfinished);
    assert!(matches!(says(&open, "Hm</think>\n\nSo"), Fate::Refused(_)));
    let marks = || ("<think>".to_owned(), "</think>".to_owned());
    let (opens, closes) = marks();
    let maybe = compiled(Lead::Maybe { opens, closes }, text());
    assert_eq!(says(&maybe, "<think>\nHm.\n</think>\n\n{\"a\": 1}"), Fate::Must);
    assert_eq!(says(&maybe, "{\"a\": 1}"), Fate::Must);
    assert!(matches!(says(&maybe, "Hm.</think>{}"), Fate::Refused(0)));
}

/// Some vocabularies make the tags control tokens.
#[test]
fn marks_that_are_control_tokens() {
    let specials = ["<end>", "<think>", "</think>", "</tool_call>"];
    let tokenizer = Tokenizer::byte_level(Path::new("x"), &specials).unwrap();
    let grammars = Grammars::new(tokenizer.clone(), vec![Token(256)]);
    let says = |constraint: &Constraint, text: &str| {
        fate(&grammars.compile(constraint).unwrap(), &tokenizer.encode(text, false))
    };
    let text = Form::Text(TextForm::JsonObject);
    let open = Constraint { lead: Lead::Through("</think>".into()), form: text.clone() };
    assert_eq!(says(&open, "Hm {<</think>\n{\"ü\": 1}"), Fate::Must);
    // A control token is not the text of its name.
    assert!(matches!(says(&open, "Hm <think>"), Fate::Refused(_)));
    assert!(matches!(says(&open, "</think>{\"<think>"), Fate::Refused(_)));
    let maybe = Lead::Maybe { opens: "<think>".into(), closes: "</think>".into() };
    let maybe = Constraint { lead: maybe, form: text };
    assert_eq!(says(&maybe, "<think>Hm</think>{}"), Fate::Must);
    assert_eq!(says(&maybe, "{}"), Fate::Must);
    let form = Form::Calls(calls("<tool_call>\n{\"name\":", false));
    let call = " \"weather\", \"arguments\": {\"city\": \"x\"}}\n</tool_call>";
    assert_eq!(says(&Constraint { lead: Lead::None, form }, call), Fate::Must);
}

/// One compilation serves all who ask alike; refusals are remembered too.
#[test]
fn equal_constraints_are_compiled_once() {
    let grammars = tiny();
    let good = schema(&json!({"type": "object"}), true);
    assert!(grammars.known(&good).is_none());
    let first = grammars.compile(&good).unwrap();
    assert!(Arc::ptr_eq(&first, &grammars.compile(&good).unwrap()));
    assert!(Arc::ptr_eq(&first, &grammars.known(&good).unwrap().unwrap()));
    let bad = schema(&json!({"type": "string", "pattern": "("}), true);
    let error = grammars.compile(&bad).unwrap_err();
    assert_eq!(grammars.known(&bad).unwrap().unwrap_err(), error);
    // Many others push the first out; whoever has it keeps it.
    for n in 0..70 {
        grammars.compile(&schema(&json!({"const": n}), true)).unwrap();
    }
    assert!(grammars.known(&good).is_none());
    assert_eq!(says(&first, "{}"), Fate::Must);
}
