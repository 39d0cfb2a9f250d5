//! A stream and a whole answer are the same answer; silence is filled; slow readers hold nothing.

use crate::cluster::{
    CHAT, COMPLETIONS, Fake, MESSAGES, RESPONSES, Script, open, post, posted, say,
};
use crate::sse::{assert_one_answer, chat_body, events, response_body};
use frontend::Limits;
use proptest::prelude::*;
use protocol::hash::Token;
use protocol::prompt::{FinishReason, Refusal};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const CALL: &str = r#"<tool_call>{"name": "w", "arguments": {"city": "Oslo"}}</tool_call>"#;
const BARE_CALL: &str = r#"<tool_call>{"name": "now", "arguments": {}}</tool_call>"#;

fn chat_request(stream: bool) -> Value {
    let mut body = json!({
        "model": "tiny",
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"type": "function", "function": {"name": "w"}}],
        "stop": ["stop me"],
        "stream": stream,
        "nvext": {"extra_fields": ["token_ids", "route"]},
    });
    if stream {
        body["stream_options"] = json!({"include_usage": true});
    }
    body
}

fn message_request(stream: bool) -> Value {
    json!({
        "model": "tiny",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"name": "w", "input_schema": {"type": "object"}}],
        "stop_sequences": ["stop me"],
        "stream": stream,
        "nvext": {"extra_fields": ["token_ids", "route"]},
    })
}

fn response_request(stream: bool) -> Value {
    json!({
        "model": "tiny",
        "input": "hi",
        "tools": [{"type": "function", "name": "w"}],
        "include": ["reasoning.encrypted_content"],
        "stream": stream,
        "nvext": {"extra_fields": ["token_ids", "route"]},
    })
}

fn completion_request(stream: bool) -> Value {
    let mut body = json!({
        "prompt": "Once upon a time", "max_tokens": 900, "stream": stream,
        "nvext": {"extra_fields": ["token_ids", "route"]},
    });
    if stream {
        body["stream_options"] = json!({"include_usage": true});
    }
    body
}

/// Asks for both forms in all dialects: each pair is one answer. Returns what Chat Completions and
/// Messages said.
async fn both_forms_agree(script: Script) -> (Value, Value) {
    let mut said = Vec::new();
    for (path, request) in [
        (CHAT, chat_request as fn(bool) -> Value),
        (MESSAGES, message_request),
        (COMPLETIONS, completion_request),
        (RESPONSES, response_request),
    ] {
        let unary = post(script.clone(), path, &request(false)).await.json();
        let stream = post(script.clone(), path, &request(true)).await;
        said.push(assert_one_answer(path, &unary, &stream.text));
    }
    (said.swap_remove(0), said.swap_remove(1))
}

#[tokio::test]
async fn stream_and_unary_are_one_answer() {
    let thought = format!("<think>\nhm\n</think>\n\nLet me see.\n{CALL}\n{BARE_CALL}");
    // Text, then the finish reasons of both dialects.
    let cases = [
        ("Hello 🦀世界!", "stop", "end_turn"),
        (thought.as_str(), "tool_calls", "tool_use"),
        ("say alpha stop me delta", "stop", "stop_sequence"),
        (BARE_CALL, "tool_calls", "tool_use"),
        ("<tool_call>{\"name\": \"w\", \"argu", "stop", "end_turn"),
        ("", "stop", "end_turn"),
    ];
    for (text, finish, stop_reason) in cases {
        let (chat, message) = both_forms_agree(say(text)).await;
        assert_eq!(chat["finish_reason"], finish, "{text}");
        assert_eq!(message["stop_reason"], stop_reason, "{text}");
    }
}

#[tokio::test]
async fn an_answer_cut_by_its_limit_says_so() {
    for text in ["Hello", CALL, "<tool_call>{\"name\": \"w\", \"argu"] {
        let script = Script::Say { text: text.into(), batch: 2, reason: FinishReason::Length };
        let (chat, message) = both_forms_agree(script).await;
        assert_eq!(chat["finish_reason"], "length");
        assert_eq!(message["stop_reason"], "max_tokens");
        let shown = chat["message"].to_string();
        assert!(!shown.contains("tool_call>"), "no markup: {shown}");
        assert!(shown.contains("Hello") || shown.contains("name"), "nothing is lost: {shown}");
    }
}

#[tokio::test]
async fn a_failure_within_a_stream_is_an_event_and_then_the_end() {
    let script = Script::Fail("hello".into(), Refusal::Failed("out of memory".into()));
    let chat = events(&post(script.clone(), CHAT, &chat_request(true)).await.text);
    let [.., (_, error), (_, done)] = chat.as_slice() else { panic!() };
    assert!(error.contains("out of memory") && error.starts_with("{\"error\":"), "{error}");
    assert_eq!(done, "[DONE]");
    let messages = events(&post(script, MESSAGES, &message_request(true)).await.text);
    let (name, data) = messages.last().unwrap();
    assert_eq!(name, "error");
    assert!(data.contains("overloaded_error"), "{data}");
    let script = Script::Fail("hello".into(), Refusal::Failed("out of memory".into()));
    let response = response_body(&post(script, RESPONSES, &response_request(true)).await.text);
    assert_eq!(response["status"], "failed");
    assert_eq!(response["error"]["code"], "server_error");
    let broken = post(Script::Break, MESSAGES, &message_request(true)).await;
    assert_eq!(events(&broken.text).last().unwrap().0, "error");
}

#[tokio::test]
async fn silence_is_filled_with_data() {
    use futures::StreamExt;
    use tower::ServiceExt;
    let limits = Limits {
        heartbeat: Duration::from_millis(5),
        commit_after: Duration::from_millis(5),
        ..Limits::default()
    };
    for (script, path, body, beat) in [
        (Script::Hang("hello".into()), CHAT, chat_request(true), r#""delta":{},"#),
        (Script::Hang("hello".into()), MESSAGES, message_request(true), "event: ping"),
        // Also while the request has no place yet.
        (Script::Wait, MESSAGES, message_request(true), "event: ping"),
        (Script::Wait, CHAT, chat_request(true), r#""delta":{},"#),
        (Script::Wait, RESPONSES, response_request(true), "event: response.in_progress"),
    ] {
        let fake = Arc::new(Fake::new(script));
        let router = frontend::router(fake.clone(), open(), limits);
        let response = router.oneshot(posted(path, body.to_string())).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream; charset=utf-8");
        let mut stream = response.into_body().into_data_stream();
        let mut beats = 0;
        while beats < 3 {
            let bytes = stream.next().await.unwrap().unwrap();
            beats += std::str::from_utf8(&bytes).unwrap().matches(beat).count();
        }
        drop(stream);
        let cancelled = fake.cancelled.acquire();
        cancelled.await.unwrap().forget();
    }
}

#[tokio::test]
async fn a_slow_reader_holds_nothing_but_the_channel() {
    use tower::ServiceExt;
    let text = "word ".repeat(2000);
    let script = Script::Say { text, batch: 1, reason: FinishReason::Stop(Token(2)) };
    let fake = Arc::new(Fake::new(script));
    let router = frontend::router(fake.clone(), open(), Limits::default());
    let body = posted(CHAT, chat_request(true).to_string());
    let response = router.oneshot(body).await.unwrap();
    // Nobody reads. All that can run has run after enough turns of the scheduler.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(fake.cancelled.available_permits(), 0, "the sender still waits");
    drop(response);
    fake.cancelled.acquire().await.unwrap().forget();
}

#[tokio::test]
async fn an_early_end_cancels_the_engine_at_once() {
    use futures::StreamExt;
    use tower::ServiceExt;
    let long = format!("a stop me {}", "word ".repeat(500));
    let fake = Arc::new(Fake::new(say(&long)));
    let router = frontend::router(fake.clone(), open(), Limits::default());
    let body = posted(CHAT, chat_request(true).to_string());
    let mut stream = router.oneshot(body).await.unwrap().into_body().into_data_stream();
    let mut text = String::new();
    while !text.contains("[DONE]") {
        text.push_str(std::str::from_utf8(&stream.next().await.unwrap().unwrap()).unwrap());
    }
    assert_eq!(chat_body(&text)["message"]["content"], "a ");
    // The body is still held: the end alone must have told the engine.
    let cancelled = tokio::time::timeout(Duration::from_secs(30), fake.cancelled.acquire());
    cancelled.await.expect("cancelled").unwrap().forget();
    drop(stream);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn cutting_never_changes_an_answer(
        parts in prop::collection::vec(prop::sample::select(vec![
            "hello ", "世界🦀", "<think>", "</think>", CALL, "stop", " me", "\n", "<tool_call>",
        ]), 0..6),
        sizes in prop::collection::vec(1usize..9, 1..6),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let script = |sizes| Script::Cut {
            text: parts.concat(), sizes, reason: FinishReason::Stop(Token(2)),
        };
        let one = runtime.block_on(both_forms_agree(script(sizes)));
        let other = runtime.block_on(both_forms_agree(script(vec![1000])));
        prop_assert_eq!(one, other);
    }
}
