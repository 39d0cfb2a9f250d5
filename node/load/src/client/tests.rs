use super::*;
use crate::fake::Fake;
use crate::talk::{Message, Preamble, Tool};
use axum::Router;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::post;
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const DIALECTS: [Dialect; 2] = [Dialect::Chat, Dialect::Messages];

fn client() -> Client {
    Client::new(Duration::from_secs(10)).unwrap()
}

/// A server that answers every call with these bytes.
async fn canned(status: u16, body: &'static str) -> String {
    let answer =
        async move || (StatusCode::from_u16(status).unwrap(), body.to_owned()).into_response();
    let app = Router::new().route("/{*path}", post(answer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    url
}

/// A server that promises more than these bytes, sends them and hangs up.
async fn hangs_up(body: &'static str) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"}}") {
            stream.read_buf(&mut request).await.unwrap();
        }
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n";
        stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
    });
    url
}

async fn ask(url: &str, dialect: Dialect) -> Outcome {
    client().call(&Call::new(url, dialect, "words", Conversation::question("one two"))).await
}

#[tokio::test]
async fn both_dialects_give_the_same_outcome() {
    let fake = Fake::start(1).await;
    let chat = ask(&fake.url(0), Dialect::Chat).await;
    let messages = ask(&fake.url(0), Dialect::Messages).await;
    for outcome in [&chat, &messages] {
        assert!(outcome.ok(), "{:?}", outcome.error);
        assert_eq!(outcome.status, Some(200));
        assert_eq!(outcome.prompt_tokens, 7); // <system> <end> <user> one two <end> <assistant>
        assert_eq!(outcome.completion_tokens, 12);
        assert_eq!(outcome.token_ids.len(), 12);
        assert_eq!(outcome.text.split(' ').count(), 12);
        assert_eq!(outcome.itl.len(), 11);
        assert_eq!(outcome.cached.sum() + outcome.computed, 7);
        assert_eq!(outcome.entry_node, "id-n0");
        assert_eq!(outcome.serving_node, "id-n0");
        assert_eq!(outcome.outcome, "served");
        assert_eq!(outcome.timing.unwrap().total_ms, 9.0);
        assert!(outcome.ttft.unwrap() <= outcome.total);
    }
    assert_eq!(chat.text, messages.text);
    assert_eq!(chat.token_ids, messages.token_ids);
    assert_eq!((chat.finish.as_str(), messages.finish.as_str()), ("stop", "end_turn"));
}

#[tokio::test]
async fn bodies_carry_what_was_asked() {
    let fake = Fake::start(1).await;
    let preamble = Arc::new(Preamble {
        system: "be brief".into(),
        tools: vec![Tool {
            name: "read".into(),
            description: "reads".into(),
            parameters: json!({"type": "object"}),
        }],
    });
    let call = ToolCall { id: "c1".into(), name: "read".into(), arguments: "{\"a\":1}".into() };
    let messages = vec![
        Message::User("go".into()),
        Message::Assistant { text: "so".into(), calls: vec![call] },
        Message::ToolResult { call: "c1".into(), text: "found".into() },
    ];
    for dialect in DIALECTS {
        let conversation = Conversation { preamble: preamble.clone(), messages: messages.clone() };
        let mut call = Call::new(&fake.url(0), dialect, "words", conversation);
        call.max_tokens = 5;
        call.cache_salt = Some("salt".into());
        call.target = Some("id-n0".into());
        assert!(client().call(&call).await.ok());
    }
    let bodies = fake.0.bodies.lock().unwrap();
    for body in bodies.iter() {
        assert_eq!(body["model"], "words");
        assert_eq!(body["temperature"], 0);
        assert_eq!(body["stream"], true);
        assert_eq!(body["max_tokens"], 5);
        assert_eq!(body["nvext"]["cache_salt"], "salt");
        assert_eq!(body["nvext"]["target"], "id-n0");
        assert_eq!(body["nvext"]["extra_fields"], json!(["timing", "route", "token_ids"]));
        assert_eq!(body["nvext"]["agent_hints"]["osl"], 5);
    }
    chat_body_is_right(&bodies[0]);
    messages_body_is_right(&bodies[1]);
}

fn chat_body_is_right(chat: &Value) {
    assert_eq!(chat["messages"][0], json!({"role": "system", "content": "be brief"}));
    assert_eq!(chat["messages"][2]["tool_calls"][0]["function"]["arguments"], "{\"a\":1}");
    assert_eq!(chat["messages"][3]["tool_call_id"], "c1");
    assert_eq!(chat["tools"][0]["function"]["name"], "read");
    assert_eq!(chat["stream_options"]["include_usage"], true);
}

fn messages_body_is_right(messages: &Value) {
    assert_eq!(messages["system"], "be brief");
    assert_eq!(messages["messages"][1]["content"][1]["input"], json!({"a": 1}));
    assert_eq!(messages["messages"][2]["content"][0]["tool_use_id"], "c1");
    assert_eq!(messages["tools"][0]["input_schema"], json!({"type": "object"}));
}

#[tokio::test]
async fn refusals_name_their_kind() {
    let fake = Fake::start(1).await;
    fake.0.faults.overloaded.store(true, Relaxed);
    for dialect in DIALECTS {
        let outcome = ask(&fake.url(0), dialect).await;
        assert_eq!(outcome.status, Some(529));
        let refused = CallError::Refused {
            status: 529,
            kind: "overloaded_error".into(),
            message: "the queue is full".into(),
        };
        assert_eq!(outcome.error, Some(refused));
    }
    let chat =
        r#"{"error":{"message":"too long","type":"invalid_request_error","code":"context"}}"#;
    let url = canned(400, chat).await;
    let error = ask(&url, Dialect::Chat).await.error.unwrap();
    assert_eq!(error.to_string(), "status 400, context: too long");
    let url = canned(502, "<html>not ours</html>").await;
    let error = ask(&url, Dialect::Chat).await.error.unwrap();
    assert!(error.to_string().contains("<html>"), "{error}");
}

#[tokio::test]
async fn broken_streams_are_failures_with_what_had_come() {
    let text = "data: {\"choices\":[{\"delta\":{\"content\":\"half\"}}]}\n\n";
    for url in [hangs_up(text).await, canned(200, text).await] {
        let outcome = ask(&url, Dialect::Chat).await;
        assert!(matches!(outcome.error, Some(CallError::BrokenOff(_))), "{:?}", outcome.error);
        assert_eq!(outcome.text, "half");
    }
    let cases = [
        (Dialect::Chat, "data: {\"error\":{\"message\":\"engine died\"}}\n\n", true),
        (
            Dialect::Messages,
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"message\":\"engine died\"}}\n\n",
            true,
        ),
        (Dialect::Chat, "data: {half\n\n", false),
        (Dialect::Messages, "data: {\"type\":\"surprise\"}\n\n", false),
        (Dialect::Messages, "data: {\"type\":\"ping\",\"nvext\":{\"route\":{}}}\n\n", false),
    ];
    for (dialect, body, failed) in cases {
        let error = ask(&canned(200, body).await, dialect).await.error.unwrap();
        if failed {
            assert_eq!(error, CallError::Failed("engine died".into()));
        } else {
            assert!(matches!(error, CallError::Malformed(_)), "{error}");
        }
    }
}

#[tokio::test]
async fn nobody_there_and_nobody_answering() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let impatient = Client::new(Duration::from_millis(50)).unwrap();
    let call = Call::new(&url, Dialect::Chat, "words", Conversation::question("x"));
    let outcome = impatient.call(&call).await; // accepted by the system, never answered
    assert!(matches!(outcome.error, Some(CallError::TimedOut(_))), "{:?}", outcome.error);
    drop(listener);
    let outcome = ask(&url, Dialect::Chat).await;
    assert!(matches!(outcome.error, Some(CallError::Connect(_))), "{:?}", outcome.error);
    assert_eq!(outcome.status, None);
}

#[tokio::test]
async fn questions_have_answers_or_reasons() {
    let fake = Fake::start(1).await;
    let url = fake.url(0);
    assert_eq!(client().models(&url).await.unwrap(), ["words"]);
    let question = Conversation::question("a b c");
    assert_eq!(client().count_tokens(&url, "words", &question).await.unwrap(), 8);
    let error = client().get(&format!("{url}/nothing")).await.unwrap_err();
    assert!(error.to_string().contains("404"), "{error}");
}

fn assembled(read: ReadEvent, events: &[Value]) -> Outcome {
    let mut assembler = Assembler::default();
    for (at, event) in events.iter().enumerate() {
        for piece in read(&event.to_string()).unwrap() {
            assembler.take(piece, Duration::from_millis(10 * at as u64)).unwrap();
        }
    }
    assembler.finish(None, Duration::from_secs(1))
}

proptest! {
    /// However a server cuts text and arguments into events, the answer is the same.
    #[test]
    fn cuts_do_not_matter(
        text in prop::collection::vec("[a-z é🌍\"]{1,5}", 1..8),
        arguments in prop::collection::vec("[a-z{}:\"]{1,5}", 1..8),
    ) {
        let mut chat_events = Vec::new();
        let mut message_events = Vec::new();
        let block = |index, block| {
            json!({"type": "content_block_start", "index": index, "content_block": block})
        };
        let delta = |index, delta| {
            json!({"type": "content_block_delta", "index": index, "delta": delta})
        };
        for part in &text {
            chat_events.push(json!({"choices": [{"delta": {"content": part}}]}));
            message_events.push(delta(0, json!({"type": "text_delta", "text": part})));
        }
        let tool = json!({"type": "tool_use", "id": "c", "name": "read", "input": {}});
        message_events.push(block(1, tool));
        for (position, part) in arguments.iter().enumerate() {
            let mut call = json!({"index": 0, "function": {"arguments": part}});
            if position == 0 {
                call["id"] = json!("c");
                call["function"]["name"] = json!("read");
            }
            chat_events.push(json!({"choices": [{"delta": {"tool_calls": [call]}}]}));
            let part = json!({"type": "input_json_delta", "partial_json": part});
            message_events.push(delta(1, part));
        }
        let chat = assembled(chat::read, &chat_events);
        let messages = assembled(messages::read, &message_events);
        prop_assert_eq!(&chat.text, &text.concat());
        prop_assert_eq!(&chat.calls[0].arguments, &arguments.concat());
        prop_assert_eq!(&chat.text, &messages.text);
        prop_assert_eq!(&chat.calls, &messages.calls);
        prop_assert_eq!(chat.ttft, Some(Duration::ZERO));
        prop_assert_eq!(chat.itl.len(), text.len() + arguments.len() - 1);
    }

    /// Foreign bytes are an error or are ignored, never a panic.
    #[test]
    fn any_event_is_survived(data in ".{0,80}") {
        let _ = chat::read(&data);
        let _ = messages::read(&data);
    }
}
