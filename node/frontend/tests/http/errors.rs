//! Wrong requests, refusals: the right status, in the words of the dialect, naming the place.

use crate::cluster::{
    CHAT, COMPLETIONS, Fake, MESSAGES, RESPONSES, Script, post, posted, request, say,
};
use frontend::Limits;
use protocol::prompt::Refusal;
use protocol::time::Span;
use serde_json::{Value, json};
use std::sync::Arc;

fn user() -> Value {
    json!([{"role": "user", "content": "hi"}])
}

/// Each row: status, part of the message, body (where `USER` stands for one good message).
async fn check(path: &str, rows: &str) {
    for row in rows.trim().lines() {
        let mut parts = row.splitn(3, " | ").map(str::trim);
        let mut part = || parts.next().unwrap();
        let (status, words, body) = (part(), part(), part());
        let body = body.replace("USER", &user().to_string());
        let body: Value = serde_json::from_str(&body).unwrap();
        let reply = post(say("ok"), path, &body).await;
        assert_eq!(reply.status.as_str(), status, "{body}: {}", reply.text);
        let error = reply.json();
        if !path.starts_with(MESSAGES) {
            assert!(error["error"].get("code").is_some(), "{error}");
        } else {
            assert_eq!(error["type"], "error");
            let id = reply.headers["request-id"].to_str().unwrap();
            assert_eq!(error["request_id"], id);
        }
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains(words), "{body}: {message}");
    }
}

#[tokio::test]
async fn wrong_chat_requests() {
    let rows = r#"
400 | messages: missing field | {}
400 | must be a JSON object | []
400 | messages: at least one | {"messages": []}
400 | messages: invalid type | {"messages": "hi"}
400 | messages[0].role: missing field | {"messages": [{"content": "x"}]}
400 | messages[0].content: missing | {"messages": [{"role": "user"}]}
400 | messages[0].role: `king` | {"messages": [{"role": "king", "content": ""}]}
400 | messages[0].content: invalid type | {"messages": [{"role": "user", "content": 5}]}
400 | messages[0].content[0].text: invalid type | {"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]}
400 | messages[0].content[0]: this model reads text only | {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}
400 | max_tokens: must be at least 1 | {"messages": USER, "max_tokens": 0}
400 | max_completion_tokens: must be at least 1 | {"messages": USER, "max_completion_tokens": -5}
400 | max_tokens: invalid type | {"messages": USER, "max_tokens": "many"}
400 | n: only one choice | {"messages": USER, "n": 2}
400 | logprobs | {"messages": USER, "logprobs": true}
400 | temperature: must be between | {"messages": USER, "temperature": 2.5}
400 | top_p: must be between | {"messages": USER, "top_p": -0.1}
400 | stop: at most 4 | {"messages": USER, "stop": ["a", "b", "c", "d", "e"]}
400 | tool_choice: a call is | {"messages": USER, "tool_choice": "required"}
400 | tools[0].function: missing | {"messages": USER, "tools": [{"type": "function"}]}
400 | tools[0].type: free-text tools exist in /v1/responses | {"messages": USER, "tools": [{"type": "custom", "custom": {"name": "x"}}]}
400 | functions: was replaced by `tools` | {"messages": USER, "functions": [{"name": "x"}]}
400 | response_format.type: `xml` is not | {"messages": USER, "response_format": {"type": "xml"}}
400 | response_format.json_schema: missing | {"messages": USER, "response_format": {"type": "json_schema"}}
400 | response_format.json_schema.schema: missing | {"messages": USER, "response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}
400 | response_format.json_schema.schema: expected an object | {"messages": USER, "response_format": {"type": "json_schema", "json_schema": {"schema": 5}}}
404 | served models: tiny | {"messages": USER, "model": "gpt"}
400 | `agent_hints`? | {"messages": USER, "nvext": {"agent_hint": {}}}
400 | stop: expected a string or a list of strings | {"messages": USER, "stop": 5}
400 | tool_choice: expected a word or | {"messages": USER, "tool_choice": 5}
400 | messages[0]: invalid type: integer `5`, expected an object | {"messages": [5]}
400 | expected a list | {"messages": 5}
400 | expected a whole number | {"messages": USER, "max_tokens": "many"}
400 | expected a number | {"messages": USER, "top_p": "much"}
400 | expected true or false | {"messages": USER, "stream": "yes"}
400 | nvext: invalid type: integer `5`, expected an object | {"messages": USER, "nvext": 5}
400 | nvext.agent_hints: expected an object | {"messages": USER, "nvext": {"agent_hints": [1, 2, 3]}}
400 | nvext.cache_control: expected an object | {"messages": USER, "nvext": {"cache_control": ["x", "5m"]}}
400 | nvext.retention[0]: expected an object | {"messages": USER, "nvext": {"retention": [[0, 5]]}}
"#;
    check(CHAT, rows).await;
}

#[tokio::test]
async fn wrong_messages_requests() {
    let rows = r#"
400 | output_format | {"messages": USER, "output_format": {"type": "json_schema", "schema": {"type": "odd"}}}
400 | messages: at least one | {"messages": []}
400 | messages[0].content: missing field | {"messages": [{"role": "user"}]}
400 | messages[0].role: `tool` | {"messages": [{"role": "tool", "content": "x"}]}
400 | messages[0].content[0]: this model reads text only | {"messages": [{"role": "user", "content": [{"type": "image"}]}]}
400 | messages[0].content[0].type: missing | {"messages": [{"role": "user", "content": [{"text": "x"}]}]}
400 | messages[0].content[0].name: missing | {"messages": [{"role": "assistant", "content": [{"type": "tool_use"}]}]}
400 | max_tokens: must be at least 1 | {"messages": USER, "max_tokens": 0}
400 | stop_sequences: invalid type | {"messages": USER, "stop_sequences": "x"}
400 | tool_choice: no tool is named `x` | {"messages": USER, "tool_choice": {"type": "tool", "name": "x"}}
400 | tools[0].name: missing | {"messages": USER, "tools": [{"input_schema": {}}]}
400 | output_config.format.schema: missing | {"messages": USER, "output_config": {"format": {"type": "json_schema"}}}
404 | served models: tiny | {"messages": USER, "model": "claude"}
"#;
    check(MESSAGES, rows).await;
    let rows = r#"
400 | messages: at least one | {"messages": []}
404 | claude | {"messages": USER, "model": "claude"}
"#;
    check("/v1/messages/count_tokens", rows).await;
}

#[tokio::test]
async fn wrong_responses_requests() {
    let rows = r#"
400 | input: missing field | {}
400 | input: at least one | {"input": []}
400 | input: expected a string or a list | {"input": 5}
400 | input[0]: expected an object | {"input": [5]}
400 | input[0].role: missing | {"input": [{"content": "x"}]}
400 | input[0].role: `king` | {"input": [{"role": "king", "content": "x"}]}
400 | input[0].content: missing | {"input": [{"role": "user"}]}
400 | input[0].content: invalid type | {"input": [{"role": "user", "content": 5}]}
400 | input[0].content[0]: this model reads text only | {"input": [{"role": "user", "content": [{"type": "input_image"}]}]}
400 | input[1].output: missing | {"input": [{"type": "function_call", "name": "w"}, {"type": "function_call_output"}]}
400 | input[0].name: missing | {"input": [{"type": "function_call"}]}
400 | input[0].id: no item `x` is kept | {"input": [{"type": "item_reference", "id": "x"}]}
400 | input[0].type: `dream` | {"input": [{"type": "dream"}]}
400 | previous_response_id: no response `resp_1` is kept | {"input": "x", "previous_response_id": "resp_1"}
400 | conversation: conversations are not kept | {"input": "x", "conversation": "c"}
400 | background: | {"input": "x", "background": true}
400 | max_output_tokens: must be at least 1 | {"input": "x", "max_output_tokens": 0}
400 | text.format.schema: missing | {"input": "x", "text": {"format": {"type": "json_schema"}}}
400 | text.format.type: `xml` is not | {"input": "x", "text": {"format": {"type": "xml"}}}
400 | text.format | {"input": "x", "text": {"format": "json"}}
400 | tool_choice: `maybe` | {"input": "x", "tool_choice": "maybe"}
400 | tool_choice: no tool is named `w` | {"input": "x", "tool_choice": {"type": "function", "name": "w"}}
400 | tool_choice.type: tools of type `web_search` | {"input": "x", "tool_choice": {"type": "web_search"}}
400 | tools[0].type: missing | {"input": "x", "tools": [{"name": "w"}]}
400 | tools[0].tools[0].name: missing | {"input": "x", "tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function"}]}]}
400 | `agent_hints`? | {"input": "x", "nvext": {"agent_hint": {}}}
404 | served models: tiny | {"input": "x", "model": "gpt"}
"#;
    check(RESPONSES, rows).await;
    check("/v1/responses/input_tokens", "400 | input: missing | {}").await;
}

#[tokio::test]
async fn wrong_completions_requests() {
    let rows = r#"
400 | prompt: missing field | {}
400 | prompt: must not be empty | {"prompt": []}
400 | prompt: must not be empty | {"prompt": ""}
400 | prompt: only one prompt | {"prompt": ["a", "b"]}
400 | prompt: only one prompt | {"prompt": [[1], [2]]}
400 | prompt[1]: invalid type | {"prompt": [1, "a"]}
400 | prompt: expected texts or tokens | {"prompt": [{}]}
400 | prompt: expected a string | {"prompt": {}}
400 | prompt: there is no token 4000000000 | {"prompt": [1, 4000000000]}
400 | n: only one choice | {"prompt": "x", "best_of": 2}
400 | echo: | {"prompt": "x", "echo": true}
400 | logprobs: | {"prompt": "x", "logprobs": 1}
400 | suffix: | {"prompt": "x", "suffix": "y"}
400 | stop: at most 4 | {"prompt": "x", "stop": ["a", "b", "c", "d", "e"]}
404 | served models: tiny | {"prompt": "x", "model": "gpt"}
"#;
    check(COMPLETIONS, rows).await;
}

#[tokio::test]
async fn broken_and_huge_bodies() {
    for path in [CHAT, COMPLETIONS, MESSAGES, RESPONSES, "/v1/messages/count_tokens"] {
        let fake = Arc::new(Fake::new(say("ok")));
        let body = posted(path, "{\"messages\": [\n  {]}");
        let reply = request(fake.clone(), Limits::default(), body).await;
        assert_eq!(reply.status, 400);
        assert!(reply.text.contains("invalid JSON at line 2 column 4"), "{}", reply.text);
        let limits = Limits { body_bytes: 1000, ..Limits::default() };
        let reply = request(fake, limits, posted(path, " ".repeat(1001))).await;
        assert_eq!(reply.status, 413);
        assert!(reply.text.contains("over the limit of 1000 bytes"), "{}", reply.text);
    }
}

#[tokio::test]
async fn a_prompt_beyond_the_context() {
    let long =
        json!({"max_tokens": 5, "messages": [{"role": "user", "content": "a b ".repeat(9)}]});
    for (path, code, words) in [
        (CHAT, json!("context_length_exceeded"), "maximum context length is 16 tokens"),
        (MESSAGES, Value::Null, "prompt is too long: "),
    ] {
        let fake = Arc::new(Fake { context: 16, ..Fake::new(say("ok")) });
        let reply = request(fake.clone(), Limits::default(), posted(path, long.to_string())).await;
        assert_eq!(reply.status, 400);
        let error = &reply.json()["error"];
        assert_eq!(error["type"], "invalid_request_error");
        assert_eq!(error["code"], code);
        assert!(error["message"].as_str().unwrap().contains(words), "{error}");
        assert_eq!(fake.came.available_permits(), 0, "refused before any work");
    }
}

#[tokio::test]
async fn refusals_are_status_codes_also_for_streams() {
    let busy = Refusal::Busy { retry_after: Span::millis(2500) };
    let gone = Refusal::NoTarget { model: "tiny".into() };
    for stream in [false, true] {
        let body = json!({"messages": user(), "stream": stream, "max_tokens": 5});
        for (refusal, path, status, retry, kind) in [
            (&busy, CHAT, 503, Some("3"), "overloaded_error"),
            (&busy, MESSAGES, 529, Some("3"), "overloaded_error"),
            (&gone, CHAT, 503, Some("1"), "server_error"),
            (&gone, MESSAGES, 503, Some("1"), "overloaded_error"),
        ] {
            let reply = post(Script::Refuse(refusal.clone()), path, &body).await;
            assert_eq!(reply.status, status, "{path} {refusal}");
            let header = reply.headers.get("retry-after").map(|v| v.to_str().unwrap());
            assert_eq!(header, retry);
            assert_eq!(reply.json()["error"]["type"], kind);
        }
    }
    // A node that goes away in the middle of a whole answer, too: nothing of it was sent.
    for (path, kind) in [(CHAT, "server_error"), (MESSAGES, "overloaded_error")] {
        let body = json!({"messages": user(), "max_tokens": 5});
        let reply = post(Script::Fail("so".into(), Refusal::Gone), path, &body).await;
        assert_eq!(reply.status, 503, "{}", reply.text);
        assert_eq!(reply.headers["retry-after"], "1");
        let error = &reply.json()["error"];
        assert_eq!(error["type"], kind);
        assert!(error["message"].as_str().unwrap().ends_with("try again"), "{error}");
    }
    let broken = post(Script::Break, CHAT, &json!({"messages": user()})).await;
    assert_eq!(broken.status, 500);
    assert!(broken.text.contains("broke off"));
}

#[tokio::test]
async fn unknown_paths_and_methods_speak_the_dialect() {
    for (method, path, anthropic, status) in [
        ("GET", "/v1/nothing", false, 404),
        ("POST", "/v1/messages/batches", true, 404),
        ("GET", "/v1/messages", true, 405),
        ("DELETE", "/v1/chat/completions", false, 405),
        ("GET", "/v1/responses/%ff", false, 404),
        ("GET", "/v1/responses/%ff/input_items", false, 404),
        ("DELETE", "/v1/responses/%ff", false, 404),
        ("GET", "/v1/requests/%ff/why-miss", false, 404),
        ("GET", "/v1/%ff", false, 404),
    ] {
        let fake = Arc::new(Fake::new(say("ok")));
        let body = axum::http::Request::builder().method(method).uri(path);
        let body = body.body(axum::body::Body::empty()).unwrap();
        let reply = request(fake, Limits::default(), body).await;
        assert_eq!(reply.status, status, "{path}");
        assert_eq!(reply.json().get("type").is_some(), anthropic, "{}", reply.text);
    }
}

#[tokio::test]
async fn a_body_that_stops_coming_is_given_up() {
    use axum::body::{Body, Bytes};
    use futures::StreamExt;
    for (path, kind) in [(CHAT, "invalid_request_error"), (MESSAGES, "timeout_error")] {
        let begun = futures::stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"{"))]);
        let body = Body::from_stream(begun.chain(futures::stream::pending()));
        let limits =
            Limits { body_silence: std::time::Duration::from_millis(5), ..Limits::default() };
        let reply = request(Arc::new(Fake::new(say("ok"))), limits, posted(path, body)).await;
        assert_eq!((reply.status.as_u16(), &reply.json()["error"]["type"]), (408, &json!(kind)));
    }
}

#[tokio::test]
async fn a_byte_order_mark_before_the_body_is_left_out() {
    for path in [CHAT, COMPLETIONS, MESSAGES, RESPONSES, "/tokenize", "/v1/messages/count_tokens"] {
        let body = json!({"messages": user(), "max_tokens": 5}).to_string();
        let body = match path {
            COMPLETIONS | "/tokenize" => json!({"prompt": "hi"}).to_string(),
            RESPONSES => json!({"input": "hi"}).to_string(),
            _ => body,
        };
        let fake = Arc::new(Fake::new(say("ok")));
        let marked = posted(path, format!("\u{feff}{body}"));
        let reply = request(fake, Limits::default(), marked).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.text);
    }
}
