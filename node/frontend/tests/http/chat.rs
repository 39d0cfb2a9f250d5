//! Chat Completions: what is understood, and what an answer holds.

use crate::cluster::{CACHED, CHAT, Fake, post, posted, request, say};
use frontend::Limits;
use protocol::hash::ClientSalt;
use protocol::prompt::Prompt;
use serde_json::{Value, json};
use std::sync::Arc;

/// The prompt that the cluster gets for a body.
pub(crate) async fn prompt_of(path: &str, body: &Value) -> Prompt {
    let fake = Arc::new(Fake::new(say("ok")));
    let reply = request(fake.clone(), Limits::default(), posted(path, body.to_string())).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    let (prompt, _) = fake.prompts.lock().unwrap().pop().unwrap();
    prompt
}

#[tokio::test]
async fn the_whole_body() {
    let body = json!({
        "model": "org/alias",
        "messages": [{"role": "user", "content": "hi"}],
        "nvext": {"extra_fields": ["timing", "route", "token_ids"]},
        "some_new_field": {"a": 1},
    });
    let reply = post(say("Hello!"), CHAT, &body).await;
    let headers = &reply.headers;
    assert_eq!(headers["x-request-id"], headers["request-id"]);
    let body = reply.json();
    assert_eq!(body["object"], "chat.completion");
    assert_eq!(body["model"], "org/alias", "the model is named as it was asked for");
    assert_eq!(body["created"], 1_796_083_199);
    assert!(body["id"].as_str().unwrap().starts_with("chatcmpl-"));
    let choice = &body["choices"][0];
    assert_eq!(
        choice["message"],
        json!({"role": "assistant", "content": "Hello!", "refusal": null})
    );
    assert_eq!(choice["finish_reason"], "stop");
    let usage = &body["usage"];
    let prompt = usage["prompt_tokens"].as_u64().unwrap();
    let output = usage["completion_tokens"].as_u64().unwrap();
    assert_eq!(usage["total_tokens"], prompt + output);
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], CACHED);
    let nvext = &body["nvext"];
    assert_eq!(nvext["timing"]["queue_ms"], 3.0);
    assert!(nvext["timing"]["ttft_ms"].is_number() && nvext["timing"]["total_ms"].is_number());
    assert_eq!(
        nvext["route"],
        json!({
            "entry_node": "entry", "serving_node": "server",
            "cached_tokens": {"gpu": 2, "dram": 0, "nvme": 0, "peer": 3},
            "computed_tokens": prompt - u64::from(CACHED), "outcome": "kv: lowest of 3",
        })
    );
    assert_eq!(nvext["prompt_token_ids"].as_array().unwrap().len() as u64, prompt);
    // The stop token is counted and not told.
    assert_eq!(nvext["completion_token_ids"].as_array().unwrap().len() as u64, output - 1);
}

#[tokio::test]
async fn calls_in_the_body() {
    let tool = json!({"type": "function", "function": {"name": "w", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "pattern": "\\S"}},
        "$schema": "x", "maxLength": 65536,
    }}});
    let call = r#"<tool_call>{"name": "w", "arguments": {"city": "Oslo"}}</tool_call>"#;
    let mut body = json!({
        "messages": [{"role": "user", "content": "weather?"}], "tools": [tool],
    });
    let reply = post(say(&format!("{call}{call}")), CHAT, &body).await.json();
    let message = &reply["choices"][0]["message"];
    assert_eq!(message["content"], Value::Null);
    let calls = message["tool_calls"].as_array().unwrap();
    assert_eq!(calls.len(), 2);
    assert_ne!(calls[0]["id"], calls[1]["id"]);
    assert_eq!(calls[0]["function"], json!({"name": "w", "arguments": "{\"city\":\"Oslo\"}"}));
    assert_eq!(reply["choices"][0]["finish_reason"], "tool_calls");

    body["parallel_tool_calls"] = json!(false);
    let reply = post(say(&format!("{call}{call}")), CHAT, &body).await.json();
    assert_eq!(reply["choices"][0]["message"]["tool_calls"].as_array().unwrap().len(), 1);

    body["tool_choice"] = json!({"type": "function", "function": {"name": "w"}});
    let rest = r#" {"city": "Oslo"}}</tool_call>"#;
    let reply = post(say(rest), CHAT, &body).await.json();
    assert_eq!(reply["choices"][0]["finish_reason"], "tool_calls");
}

#[tokio::test]
async fn sampling_limits_hints_and_session_reach_the_cluster() {
    let body = json!({
        "model": "",
        "messages": [{"role": "user", "content": "q"}],
        "temperature": 0, "top_p": 0.5, "top_k": -1, "min_p": 0.1, "seed": -1,
        "max_completion_tokens": 7, "max_tokens": 9, "stop": null, "tools": null,
        "nvext": {
            "agent_hints": {"priority": 5, "osl": 64, "strict_priority": 1,
                "speculative_prefill": true, "latency_sensitivity": 0.5},
            "cache_control": {"type": "ephemeral", "ttl": "1h"},
            "cache_salt": "s",
        },
    });
    let fake = Arc::new(Fake::new(say("ok")));
    let mut posted = posted(CHAT, body.to_string());
    posted.headers_mut().insert("x-claude-code-session-id", "abc".parse().unwrap());
    posted.headers_mut().insert("x-claude-code-agent-id", "sub".parse().unwrap());
    posted.headers_mut().insert("x-dynamo-session-final", "true".parse().unwrap());
    let reply = request(fake.clone(), Limits::default(), posted).await.json();
    // What was not followed is told without asking.
    let told = reply["nvext"]["hints"].as_array().unwrap();
    let told: Vec<_> = told.iter().map(|hint| (&hint["hint"], &hint["outcome"])).collect();
    let osl = json!("nvext.agent_hints.osl");
    let old = json!("nvext.agent_hints.latency_sensitivity");
    let (clipped, rejected) = (json!("clipped"), json!("rejected"));
    assert_eq!(told, [(&old, &rejected), (&osl, &clipped)]);
    let (prompt, want) = fake.prompts.lock().unwrap().pop().unwrap();
    assert!(!want.stream);
    let s = prompt.sampling;
    assert_eq!((s.temperature, s.top_p, s.top_k, s.min_p, s.seed), (0.0, 0.5, 0, 0.1, u64::MAX));
    assert_eq!(prompt.limits.max_tokens, 7);
    assert_eq!(prompt.model, "tiny");
    assert_eq!(prompt.session.unwrap().as_str(), "abc/sub");
    assert_eq!(prompt.salt, Some(ClientSalt::of("s")));
    let hints = prompt.hints;
    assert_eq!((hints.priority, hints.osl, hints.strict_priority), (5, Some(7), 1));
    assert!(hints.speculative_prefill && hints.session_final);
    assert_eq!(hints.parent.unwrap().as_str(), "abc");
    let pin = hints.claims.last().unwrap();
    assert_eq!(pin.end as usize, prompt.tokens.len());
    assert_eq!(pin.claim.ttl, Some(protocol::time::Span::secs(3600)));
}

#[tokio::test]
async fn without_a_seed_each_request_draws_one() {
    let body = json!({"messages": [{"role": "user", "content": "q"}]});
    let fake = Arc::new(Fake::new(say("ok")));
    for _ in 0..2 {
        request(fake.clone(), Limits::default(), posted(CHAT, body.to_string())).await;
    }
    let prompts = fake.prompts.lock().unwrap();
    assert_ne!(prompts[0].0.sampling.seed, prompts[1].0.sampling.seed);
    assert_ne!(prompts[0].0.id, prompts[1].0.id);
}

#[tokio::test]
async fn a_large_conversation_is_prepared_off_the_async_threads() {
    let turn = "Ein längerer Text, 世界, der vieles sagt. ".repeat(20);
    let turns: Vec<Value> =
        (0..40).map(|_| json!({"role": "user", "content": turn.as_str()})).collect();
    let fake = Arc::new(Fake { context: 1 << 20, ..Fake::new(say("ok")) });
    let body = json!({ "messages": turns }).to_string();
    assert!(body.len() > 30_000);
    for _ in 0..2 {
        let reply = request(fake.clone(), Limits::default(), posted(CHAT, body.clone())).await;
        assert_eq!(reply.status, 200, "{}", reply.text);
    }
    let prompts = fake.prompts.lock().unwrap();
    let text = format!("<|im_start|>user\n{turn}<|im_end|>\n").repeat(40);
    let text = format!("{text}<|im_start|>assistant\n");
    assert_eq!(*prompts[0].0.tokens, crate::cluster::tiny().tokenizer().encode(&text, false));
    assert_eq!(prompts[0].0.tokens, prompts[1].0.tokens);
}
