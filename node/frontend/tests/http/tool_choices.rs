//! Names of tools, and which of them may be called.

use crate::chat::prompt_of;
use crate::cluster::{CHAT, MESSAGES, RESPONSES, post, say};
use protocol::constraint::Form;
use serde_json::{Value, json};

fn tool(path: &str, name: &str) -> Value {
    let parameters = json!({"type": "object", "properties": {}});
    match path {
        CHAT => json!({"type": "function", "function": {"name": name, "parameters": parameters}}),
        MESSAGES => json!({"name": name, "input_schema": parameters}),
        _ => json!({"type": "function", "name": name, "parameters": parameters}),
    }
}

fn body(path: &str, names: &[&str]) -> Value {
    let tools: Vec<Value> = names.iter().map(|name| tool(path, name)).collect();
    match path {
        RESPONSES => json!({"input": "hi", "tools": tools}),
        _ => json!({
            "messages": [{"role": "user", "content": "hi"}], "max_tokens": 50, "tools": tools,
        }),
    }
}

#[tokio::test]
async fn names_that_no_vendor_takes() {
    let (long, longest) = ("x".repeat(65), "x".repeat(129));
    for (path, field, most) in [
        (CHAT, "tools[1].function.name", long.as_str()),
        (MESSAGES, "tools[1].name", longest.as_str()),
        (RESPONSES, "tools[1].name", long.as_str()),
    ] {
        for (name, words) in [
            ("f.g", "must match"),
            ("", "must match"),
            ("größe", "must match"),
            ("a b", "must match"),
            (most, "must match"),
            ("f", "another tool is named `f`"),
        ] {
            let reply = post(say("ok"), path, &body(path, &["f", name])).await;
            assert_eq!(reply.status, 400, "{path} {name:?}: {}", reply.text);
            let error = reply.json()["error"].take();
            let message = error["message"].as_str().unwrap();
            assert!(message.starts_with(field) && message.contains(words), "{path}: {message}");
            if path != MESSAGES {
                assert_eq!(error["param"], field);
            }
        }
        let fits = &most[1..];
        let good = body(path, &["f", "F", "mcp__server-1__do_it", fits]);
        assert_eq!(post(say("ok"), path, &good).await.status, 200);
    }
}

#[tokio::test]
async fn equal_names_in_namespaces_are_no_doubles() {
    let space = |name: &str, inner: &[&str]| {
        let tools: Vec<Value> = inner.iter().map(|name| tool(RESPONSES, name)).collect();
        json!({"type": "namespace", "name": name, "tools": tools})
    };
    let body = |tools: Value| json!({"input": "hi", "tools": tools});
    let good = body(json!([space("a", &["f"]), space("b", &["f"]), tool(RESPONSES, "f")]));
    let said = r#"<tool_call>{"name": "f", "arguments": {}}</tool_call>"#;
    let reply = post(say(said), RESPONSES, &good).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    assert!(reply.json()["output"][0].get("namespace").is_none(), "the one without a namespace");
    let twice = body(json!([space("a", &["f", "f"])]));
    let reply = post(say("ok"), RESPONSES, &twice).await;
    assert_eq!(reply.json()["error"]["param"], "tools[0].tools[1].name", "{}", reply.text);
}

fn allowed(path: &str, mode: &str, names: &[&str]) -> Value {
    let named = |name: &&str| match path {
        CHAT => json!({"type": "function", "function": {"name": name}}),
        _ => json!({"type": "function", "name": name}),
    };
    let tools: Vec<Value> = names.iter().map(named).collect();
    match path {
        CHAT => json!({"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}),
        _ => json!({"type": "allowed_tools", "mode": mode, "tools": tools}),
    }
}

#[tokio::test]
async fn allowed_tools_narrow_what_may_be_called_and_nothing_else() {
    for path in [CHAT, RESPONSES] {
        let all = body(path, &["f", "g", "h"]);
        let with = |choice: Value| {
            let mut body = all.clone();
            body["tool_choice"] = choice;
            body
        };
        for (mode, word) in [("auto", "auto"), ("required", "required")] {
            let prompt = prompt_of(path, &with(allowed(path, mode, &["g", "h"]))).await;
            let usual = prompt_of(path, &with(word.into())).await;
            assert_eq!(prompt.tokens, usual.tokens, "{path} {mode}: the prompt is the same");
            let Some(constraint) = prompt.constraint else {
                assert_eq!(mode, "auto");
                continue;
            };
            let Form::Calls(calls) = constraint.form else { panic!("{path}") };
            let names: Vec<&str> = calls.tools.iter().map(|tool| tool.name.as_str()).collect();
            assert_eq!(names, ["g", "h"]);
        }
        // A model that does not heed it said so in vain.
        let call = |name: &str| {
            format!(r#"<tool_call>{{"name": "{name}", "arguments": {{}}}}</tool_call>"#)
        };
        let called = async |name: &str| {
            let body = with(allowed(path, "auto", &["g"]));
            let reply = post(say(&call(name)), path, &body).await;
            assert_eq!(reply.status, 200, "{}", reply.text);
            match path {
                CHAT => reply.json()["choices"][0]["message"]["tool_calls"].is_array(),
                _ => reply.json()["output"][0]["type"] == "function_call",
            }
        };
        assert!(called("g").await && !called("f").await, "{path}");
        let list =
            if path == CHAT { "tool_choice.allowed_tools.tools" } else { "tool_choice.tools" };
        let mode = if path == CHAT { "tool_choice.allowed_tools.mode" } else { "tool_choice.mode" };
        for (choice, field) in [
            (allowed(path, "auto", &["g", "x"]), format!("{list}[1]")),
            (allowed(path, "auto", &[]), list.to_owned()),
            (allowed(path, "never", &["g"]), mode.to_owned()),
        ] {
            let reply = post(say("ok"), path, &with(choice)).await;
            assert_eq!(reply.json()["error"]["param"], field, "{}", reply.text);
        }
    }
}
