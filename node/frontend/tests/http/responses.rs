//! Responses: items in and out.

use crate::cluster::{CHAT, Fake, RESPONSES, Script, post, posted, request, say};
use crate::sse::response_body;
use frontend::Limits;
use protocol::hash::Token;
use protocol::prompt::FinishReason;
use serde_json::{Value, json};
use std::sync::Arc;

/// The tokens of a body's prompt.
async fn tokens(path: &str, body: &Value) -> Vec<Token> {
    let fake = Arc::new(Fake::new(say("ok")));
    let reply = request(fake.clone(), Limits::default(), posted(path, body.to_string())).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    let (prompt, _) = fake.prompts.lock().unwrap().pop().unwrap();
    prompt.tokens.to_vec()
}

async fn responded(text: &str, body: &Value) -> Value {
    let reply = post(say(text), RESPONSES, body).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.json()
}

fn weather() -> Value {
    json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})
}

#[tokio::test]
async fn one_conversation_is_one_prompt_in_all_dialects() {
    let chat = json!({
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": "look", "reasoning_content": "hm", "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "w", "arguments": "{\"city\":\"Oslo\"}"}},
                {"id": "b", "type": "function", "function": {"name": "w", "arguments": "{\"city\":\"Rom\"}"}},
            ]},
            {"role": "tool", "tool_call_id": "a", "content": "rain"},
            {"role": "tool", "tool_call_id": "b", "content": "sun"},
            {"role": "system", "content": "late"},
            {"role": "user", "content": "and?"},
        ],
        "tools": [{"type": "function", "function": {"name": "w", "description": "d", "parameters": weather()}}],
    });
    let input = json!([
        {"role": "user", "content": "q"},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "text": "look", "annotations": []}]},
        {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "w", "arguments": "{\"city\":\"Oslo\"}"},
        {"type": "function_call", "call_id": "b", "name": "w", "arguments": "{\"city\": \"Rom\"}"},
        {"type": "function_call_output", "call_id": "a", "output": "rain"},
        {"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "sun"}]},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "late"}]},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"role": "user", "content": [{"type": "input_text", "text": "and"}, {"type": "input_text", "text": "?"}]},
    ]);
    let responses = json!({
        "instructions": "be brief", "input": input,
        "tools": [
            {"type": "function", "name": "w", "description": "d", "parameters": weather(), "strict": false},
            {"type": "web_search"},
        ],
        "prompt_cache_key": "k", "metadata": {"a": "b"}, "store": true,
    });
    let expected = tokens(CHAT, &chat).await;
    assert_eq!(tokens(RESPONSES, &responses).await, expected);
    let counted = post(say("x"), "/v1/responses/input_tokens", &responses).await.json();
    assert_eq!(counted, json!({"object": "response.input_tokens", "input_tokens": expected.len()}));
}

#[tokio::test]
async fn the_response_object_is_complete() {
    let body = json!({"input": "hi", "temperature": 0.5, "metadata": {"k": "v"}, "store": true,
        "tools": [{"type": "function", "name": "w"}], "max_output_tokens": 9});
    let response = responded("<think>\nhm\n</think>\n\nhello", &body).await;
    for (key, value) in [
        ("object", json!("response")),
        ("status", json!("completed")),
        ("created_at", json!(1_796_083_199u64)),
        ("temperature", json!(0.5)),
        ("metadata", json!({"k": "v"})),
        ("store", json!(true)),
        ("max_output_tokens", json!(9)),
        ("incomplete_details", Value::Null),
        ("error", Value::Null),
        ("previous_response_id", Value::Null),
    ] {
        assert_eq!(response[key], value, "{key}");
    }
    assert!(response["completed_at"].as_u64().unwrap() >= 1_796_083_199);
    assert_eq!(response["tools"][0]["strict"], Value::Null);
    let [reasoning, message] = response["output"].as_array().unwrap().as_slice() else { panic!() };
    assert_eq!(reasoning["summary"][0]["text"], "hm");
    assert!(reasoning.get("encrypted_content").is_none(), "it was not asked for");
    assert_eq!(message["content"][0]["text"], "hello");
    let usage = &response["usage"];
    assert_eq!(usage["input_tokens_details"]["cached_tokens"], 5);
    assert!(usage["output_tokens_details"]["reasoning_tokens"].as_u64().unwrap() > 0);
    let total = usage["input_tokens"].as_u64().unwrap() + usage["output_tokens"].as_u64().unwrap();
    assert_eq!(usage["total_tokens"], total);
}

#[tokio::test]
async fn sealed_reasoning_comes_back_as_the_reasoning_it_was() {
    let ask = json!({"input": "q", "include": ["reasoning.encrypted_content"]});
    let response = responded("<think>\nsecret plan\n</think>\n\nhello", &ask).await;
    let sealed = response["output"][0]["encrypted_content"].as_str().unwrap();
    assert!(!sealed.contains("plan"));
    let history = |reasoning: Value| {
        json!({"input": [
            {"role": "user", "content": "q"},
            reasoning,
            {"role": "assistant", "content": "hello"},
            {"role": "user", "content": "more"},
        ]})
    };
    let blob = json!({"type": "reasoning", "summary": [], "encrypted_content": sealed});
    let plain = json!({"type": "reasoning", "summary": [],
        "content": [{"type": "reasoning_text", "text": "secret plan"}]});
    let foreign = json!({"type": "reasoning", "encrypted_content": "gAAAAA",
        "summary": [{"type": "summary_text", "text": "secret plan"}]});
    let expected = tokens(RESPONSES, &history(plain)).await;
    assert_eq!(tokens(RESPONSES, &history(blob)).await, expected);
    assert_eq!(tokens(RESPONSES, &history(foreign)).await, expected, "its summary is used");
}

#[tokio::test]
async fn tools_in_namespaces_and_tools_that_take_text() {
    let ask = json!({
        "stream": true,
        "input": "go",
        "tools": [
            {"type": "function", "name": "spawn"},
            {"type": "namespace", "name": "agents", "tools": [
                {"type": "function", "name": "spawn"},
                {"type": "function", "name": "wait"},
            ]},
            {"type": "custom", "name": "patch", "description": "edits"},
        ],
    });
    let call = |name: &str, arguments: &str| {
        format!("<tool_call>{{\"name\": \"{name}\", \"arguments\": {arguments}}}</tool_call>")
    };
    let text = [
        call("spawn", "{}"),
        call("agents__spawn", "{}"),
        call("wait", "{\"s\": 1}"),
        call("patch", "{\"input\": \"*** a\\n\"}"),
        call("other", "{}"),
    ];
    let response = response_body(&post(say(&text.concat()), RESPONSES, &ask).await.text);
    let told: Vec<_> = response["output"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| {
            let text = |key: &str| item[key].as_str().unwrap_or("-").to_owned();
            [text("type"), text("namespace"), text("name"), text("arguments"), text("input")]
                .join(" ")
        })
        .collect();
    assert_eq!(
        told,
        [
            "function_call - spawn {} -",
            "function_call agents spawn {} -",
            "function_call agents wait {\"s\":1} -",
            "custom_tool_call - patch - *** a\n",
            "function_call - other {} -",
        ]
    );
    // Sent back, they are the calls that the model made.
    let mut input = vec![json!({"role": "user", "content": "go"})];
    input.extend(response["output"].as_array().unwrap().iter().cloned());
    let id = &response["output"][3]["call_id"];
    input.push(json!({"type": "custom_tool_call_output", "call_id": id, "output": "ok"}));
    let mut again = ask.clone();
    again["stream"] = json!(false);
    again["input"] = input.into();
    let plain = json!({
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "tool_calls": [
                {"function": {"name": "spawn", "arguments": "{}"}},
                {"function": {"name": "agents__spawn", "arguments": "{}"}},
                {"function": {"name": "wait", "arguments": "{\"s\": 1}"}},
                {"function": {"name": "patch", "arguments": "{\"input\": \"*** a\\n\"}"}},
                {"function": {"name": "other", "arguments": "{}"}},
            ]},
            {"role": "tool", "content": "ok"},
        ],
        "tools": [
            {"function": {"name": "spawn"}},
            {"function": {"name": "agents__spawn"}},
            {"function": {"name": "wait"}},
            {"function": {"name": "patch", "description": "edits", "parameters": {
                "type": "object",
                "properties": {"input": {"type": "string"}},
                "required": ["input"],
            }}},
        ],
    });
    assert_eq!(tokens(RESPONSES, &again).await, tokens(CHAT, &plain).await);
}

#[tokio::test]
async fn an_answer_cut_by_its_limit_is_incomplete() {
    for stream in [false, true] {
        let ask = json!({"input": "hi", "stream": stream, "max_output_tokens": 3});
        let script =
            Script::Say { text: "hello you".into(), batch: 1, reason: FinishReason::Length };
        let reply = post(script, RESPONSES, &ask).await;
        let response = if stream { response_body(&reply.text) } else { reply.json() };
        assert_eq!(response["status"], "incomplete");
        assert_eq!(response["incomplete_details"]["reason"], "max_output_tokens");
        assert_eq!(response["output"][0]["status"], "incomplete");
    }
}

#[tokio::test]
async fn an_answer_of_nothing_is_an_empty_message() {
    for (said, before) in [("", 0), ("<think>\nhm\n</think>\n\n", 1)] {
        let body = json!({"input": "hi"});
        let whole = responded(said, &body).await;
        let output = whole["output"].as_array().unwrap();
        assert_eq!(output.len(), before + 1, "{whole}");
        assert_eq!(output[before]["type"], "message");
        assert_eq!(output[before]["content"][0]["text"], "");
        let streamed = post(say(said), RESPONSES, &json!({"input": "hi", "stream": true})).await;
        let built = response_body(&streamed.text);
        assert_eq!(built["output"].as_array().unwrap().len(), before + 1, "{}", streamed.text);
        assert_eq!(built["output"][before]["content"], output[before]["content"]);
        assert!(streamed.text.contains("response.output_text.done"), "{}", streamed.text);
        assert!(!streamed.text.contains("response.output_text.delta"), "{}", streamed.text);
    }
    // Cut while it thought: nothing was said, and nothing is made up.
    let script = Script::Say { text: "<think>\nhm".into(), batch: 3, reason: FinishReason::Length };
    let cut = post(script, RESPONSES, &json!({"input": "hi"})).await.json();
    assert_eq!(cut["status"], "incomplete");
    assert_eq!(cut["output"].as_array().unwrap().len(), 1, "{cut}");
}
