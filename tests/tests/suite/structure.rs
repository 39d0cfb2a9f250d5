//! Answers that must have a form, on a node that did not take the request.

use crate::kit::{Cluster, entry_only};
use crate::models::tiny;
use load::fleet::NodeOptions;
use serde_json::{Value, json};

fn format() -> Value {
    json!({"type": "object", "additionalProperties": false, "required": ["kind", "note"],
           "properties": {"kind": {"enum": ["bug", "wish"]}, "note": {"type": "string", "maxLength": 5}}})
}

/// The entry node has no engine: constraint and tokens cross the wire.
#[tokio::test]
async fn forms_are_kept_across_nodes() {
    let cluster = Cluster::start(&tiny(), vec![NodeOptions::default(), entry_only()]).await;
    let user = json!([{"role": "user", "content": "What is it?"}]);
    // The tiny model says what its dice say: some answers never come to the end of their reasoning.
    let (mut chats, mut texts) = (0, 0);
    for seed in 0..8 {
        let chat = json!({
            "model": cluster.model, "messages": user, "max_tokens": 300, "seed": seed,
            "response_format": {"type": "json_schema",
                "json_schema": {"name": "it", "strict": true, "schema": format()}},
        });
        let (status, answer) = cluster.post(1, "/v1/chat/completions", &chat).await;
        assert_eq!(status, 200, "{answer}");
        let choice = &answer["choices"][0];
        if choice["finish_reason"] == "stop" {
            check(choice["message"]["content"].as_str(), &answer);
            chats += 1;
        } else {
            assert_eq!(choice["message"]["content"], "", "reasoning was cut: {answer}");
        }
        let messages = json!({
            "model": cluster.model, "messages": user, "max_tokens": 300, "seed": seed,
            "output_config": {"format": {"type": "json_schema", "schema": format()}},
        });
        let (status, answer) = cluster.post(1, "/v1/messages", &messages).await;
        assert_eq!(status, 200, "{answer}");
        let last = answer["content"].as_array().and_then(|content| content.last());
        match answer["stop_reason"].as_str() {
            Some("end_turn") => {
                check(last.and_then(|block| block["text"].as_str()), &answer);
                texts += 1;
            }
            _ => assert!(last.is_none_or(|block| block["type"] == "thinking"), "{answer}"),
        }
        let call = json!({
            "model": cluster.model, "input": "What is it?", "max_output_tokens": 300, "seed": seed,
            "tool_choice": "required", "parallel_tool_calls": false,
            "tools": [{"type": "function", "name": "note", "parameters": format()}],
        });
        let (status, answer) = cluster.post(1, "/v1/responses", &call).await;
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer["output"].as_array().unwrap().len(), 1, "{answer}");
        assert_eq!(answer["output"][0]["name"], "note");
        check(answer["output"][0]["arguments"].as_str(), &answer);
    }
    assert!(chats > 0 && texts > 0, "{chats} {texts}");
    let bad = json!({
        "model": cluster.model, "messages": user,
        "response_format": {"type": "json_schema",
            "json_schema": {"name": "it", "strict": true, "schema": {"type": "odd"}}},
    });
    let (status, answer) = cluster.post(1, "/v1/chat/completions", &bad).await;
    assert_eq!(
        (status, &answer["error"]["param"]),
        (400, &json!("response_format.json_schema.schema"))
    );
}

fn check(text: Option<&str>, answer: &Value) {
    let said: Value = serde_json::from_str(text.unwrap_or_default())
        .unwrap_or_else(|error| panic!("{error}: {answer}"));
    assert!(["bug", "wish"].contains(&said["kind"].as_str().unwrap_or_default()), "{answer}");
    assert!(said["note"].as_str().is_some_and(|note| note.chars().count() <= 5), "{answer}");
    assert_eq!(said.as_object().map(serde_json::Map::len), Some(2), "{answer}");
}
