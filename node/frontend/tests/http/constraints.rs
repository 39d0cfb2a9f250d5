//! What is demanded of an answer's form, in every dialect.

use crate::chat::prompt_of;
use crate::cluster::{CHAT, MESSAGES, RESPONSES, post, say};
use protocol::constraint::{Constraint, Form, Lead, TextForm};
use serde_json::{Value, json};

fn title() -> Value {
    json!({"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"],
           "additionalProperties": false})
}

fn tool(parameters: Value) -> Value {
    json!({"name": "w", "parameters": parameters})
}

/// A body that asks for a schema, and the field of the schema.
fn asking(path: &str, schema: &Value, strict: Option<bool>) -> (Value, &'static str) {
    let user = json!([{"role": "user", "content": "hi"}]);
    match path {
        CHAT => (
            json!({"messages": user, "response_format": {"type": "json_schema", "json_schema":
                {"name": "t", "schema": schema, "strict": strict}}}),
            "response_format.json_schema.schema",
        ),
        MESSAGES => (
            json!({"messages": user, "output_config": {"effort": "high", "format":
                {"type": "json_schema", "schema": schema}}}),
            "output_config.format.schema",
        ),
        _ => (
            json!({"input": "hi", "text": {"format":
                {"type": "json_schema", "name": "t", "schema": schema, "strict": strict}}}),
            "text.format.schema",
        ),
    }
}

async fn constraint_of(path: &str, body: &Value) -> Constraint {
    prompt_of(path, body).await.constraint.expect("it is constrained")
}

#[tokio::test]
async fn every_dialect_asks_for_a_schema() {
    for path in [CHAT, MESSAGES, RESPONSES] {
        let (body, _) = asking(path, &title(), Some(true));
        let constraint = constraint_of(path, &body).await;
        // The model may think first: its vocabulary has the marks for it.
        assert!(matches!(constraint.lead, Lead::Maybe { .. }), "{path}");
        let Form::Text(TextForm::JsonSchema(schema)) = constraint.form else { panic!("{path}") };
        assert!(schema.exact);
        assert_eq!(serde_json::from_str::<Value>(&schema.text).unwrap(), title());
    }
}

#[tokio::test]
async fn any_object_or_any_text() {
    let user = json!([{"role": "user", "content": "hi"}]);
    let table = [
        (CHAT, json!({"messages": user, "response_format": {"type": "json_object"}}), true),
        (RESPONSES, json!({"input": "hi", "text": {"format": {"type": "json_object"}}}), true),
        (CHAT, json!({"messages": user, "response_format": {"type": "text"}}), false),
        (RESPONSES, json!({"input": "hi", "text": {"format": {"type": "text"}}}), false),
        (MESSAGES, json!({"messages": user, "output_config": {"effort": "low"}}), false),
    ];
    for (path, body, constrained) in table {
        let constraint = prompt_of(path, &body).await.constraint;
        assert_eq!(constraint.is_some(), constrained, "{body}");
        if let Some(constraint) = constraint {
            assert_eq!(constraint.form, Form::Text(TextForm::JsonObject));
        }
    }
}

/// The answer is text like any other, in both forms, and the response repeats the format.
#[tokio::test]
async fn structured_output_is_text() {
    let text = r#"{"title": "<b> \"x\""}"#;
    for path in [CHAT, MESSAGES, RESPONSES] {
        let (body, _) = asking(path, &title(), Some(true));
        let reply = post(say(text), path, &body).await.json();
        let said = match path {
            CHAT => &reply["choices"][0]["message"]["content"],
            MESSAGES => &reply["content"][0]["text"],
            _ => {
                let format = &reply["text"]["format"];
                assert_eq!(format["schema"], title());
                assert_eq!((&format["name"], &format["strict"]), (&json!("t"), &json!(true)));
                &reply["output"][0]["content"][0]["text"]
            }
        };
        assert_eq!(said, text, "{reply}");
    }
}

/// A schema that cannot be enforced is refused before anything runs, also of a stream; the field is
/// named in the dialect's way.
#[tokio::test]
async fn explicit_schemas_fail_closed() {
    let bad = json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}});
    let odd = json!({"type": "object", "if": {"required": ["a"]}, "then": {}});
    for path in [CHAT, MESSAGES, RESPONSES] {
        for stream in [false, true] {
            for schema in [&bad, &odd] {
                let (mut body, field) = asking(path, schema, Some(true));
                body["stream"] = stream.into();
                let reply = post(say("{}"), path, &body).await;
                assert_eq!(reply.status, 400, "{path}: {}", reply.text);
                let error = &reply.json()["error"];
                let message = error["message"].as_str().unwrap();
                assert!(message.starts_with(&format!("{field}: ")), "{message}");
                assert_eq!(error["type"], "invalid_request_error");
                if path != MESSAGES {
                    assert_eq!(error["param"], field);
                }
            }
        }
    }
    // Without `strict` what no engine can enforce is left out; what is broken stays refused.
    for path in [CHAT, RESPONSES] {
        let (body, _) = asking(path, &odd, None);
        assert_eq!(post(say("{}"), path, &body).await.status, 200, "{path}");
        let (body, _) = asking(path, &bad, None);
        assert_eq!(post(say("{}"), path, &body).await.status, 400, "{path}");
    }
}

#[tokio::test]
async fn hostile_schemas_are_refused() {
    let deep = (0..40).fold(json!({}), |inner, _| json!({"items": [inner]}));
    let names: Vec<String> = (0..40_000).map(|n| format!("a long name number {n}")).collect();
    let pattern = |n: usize| json!({"type": "string", "pattern": format!("(ab|c.{{{n}}}d)")});
    let patterns: Vec<Value> = (0..60).map(pattern).collect();
    let table = [
        ("nested deeper", deep),
        ("at most", json!({"enum": names})),
        ("patterns", json!({"allOf": patterns})),
        ("", json!({"$ref": "https://example.com/schema.json"})),
    ];
    for (words, schema) in table {
        let (body, field) = asking(CHAT, &schema, Some(true));
        let reply = post(say("{}"), CHAT, &body).await;
        assert_eq!(reply.status, 400, "{}", reply.text);
        let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.starts_with(field) && message.contains(words), "{message}");
    }
}

/// Bodies that demand a call, in each dialect, with the field of the tool's schema.
fn demanding(path: &str, parameters: &Value, strict: bool) -> (Value, &'static str) {
    let user = json!([{"role": "user", "content": "hi"}]);
    let mut tool = tool(parameters.clone());
    tool["strict"] = strict.into();
    match path {
        CHAT => (
            json!({"messages": user, "tools": [{"type": "function", "function": tool}],
                   "tool_choice": "required"}),
            "tools[0].function.parameters",
        ),
        MESSAGES => {
            let tool = json!({"name": "w", "input_schema": parameters, "strict": strict});
            (
                json!({"messages": user, "tools": [tool], "tool_choice": {"type": "any"}}),
                "tools[0].input_schema",
            )
        }
        _ => {
            tool["type"] = "function".into();
            (
                json!({"input": "hi", "tools": [tool], "tool_choice": "required"}),
                "tools[0].parameters",
            )
        }
    }
}

#[tokio::test]
async fn demanded_calls_are_held_to_their_schemas() {
    for path in [CHAT, MESSAGES, RESPONSES] {
        for strict in [false, true] {
            let (body, _) = demanding(path, &title(), strict);
            let constraint = constraint_of(path, &body).await;
            assert_eq!(constraint.lead, Lead::None);
            let Form::Calls(calls) = constraint.form else { panic!("{path}") };
            assert!(calls.parallel);
            assert_eq!(calls.begun, "<tool_call>\n{\"name\":");
            assert_eq!(calls.tools[0].name, "w");
            let schema = calls.tools[0].parameters.as_ref().unwrap();
            assert_eq!(serde_json::from_str::<Value>(&schema.text).unwrap(), title());
            assert_eq!(schema.exact, strict);
        }
    }
}

/// An odd schema of a demanded call: any object will do, unless the tool is strict.
#[tokio::test]
async fn odd_tools_degrade_unless_strict() {
    let odd = json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}});
    for path in [CHAT, MESSAGES, RESPONSES] {
        let (body, _) = demanding(path, &odd, false);
        let Form::Calls(calls) = constraint_of(path, &body).await.form else { panic!("{path}") };
        assert_eq!(calls.tools[0].parameters, None);
        let (body, field) = demanding(path, &odd, true);
        let reply = post(say("x"), path, &body).await;
        assert_eq!(reply.status, 400, "{}", reply.text);
        let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.starts_with(&format!("{field}: ")), "{message}");
    }
}

#[tokio::test]
async fn a_named_call_is_the_only_one() {
    let tools = json!([
        {"type": "function", "function": tool(title())},
        {"type": "function", "function": {"name": "v"}},
    ]);
    let body = json!({
        "messages": [{"role": "user", "content": "hi"}], "tools": tools,
        "tool_choice": {"type": "function", "function": {"name": "v"}},
    });
    let Form::Calls(calls) = constraint_of(CHAT, &body).await.form else { panic!("no calls") };
    assert_eq!(calls.begun, "<tool_call>\n{\"name\": \"v\", \"arguments\":");
    assert_eq!(calls.tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["v"]);
    assert!(!calls.parallel);
}

/// Tools that the model may call are free, however odd or strict they are; beside a format, text
/// must have it.
#[tokio::test]
async fn offered_tools_never_fail_a_request() {
    let odd = json!({"type": "object", "$schema": "x", "properties": {
        "a": {"type": "string", "pattern": "(", "maxLength": 65_536, "format": "odd"}}});
    let mut odd = tool(odd);
    odd["strict"] = true.into();
    let named = |n: usize| {
        odd["name"] = format!("w{n}").into();
        json!({"type": "function", "function": odd})
    };
    let tools: Vec<Value> = (0..30).map(named).collect();
    let mut body = json!({"messages": [{"role": "user", "content": "hi"}], "tools": tools});
    assert_eq!(prompt_of(CHAT, &body).await.constraint, None);
    body["parallel_tool_calls"] = false.into();
    body["response_format"] = json!({"type": "json_object"});
    let Form::TextOrCalls(text, calls) = constraint_of(CHAT, &body).await.form else {
        panic!("either is possible")
    };
    assert_eq!(text, TextForm::JsonObject);
    assert!(!calls.parallel && calls.tools.iter().all(|tool| tool.parameters.is_none()));
    body["tool_choice"] = "none".into();
    assert!(matches!(constraint_of(CHAT, &body).await.form, Form::Text(_)));
}
