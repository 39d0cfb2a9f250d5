//! Answers that the client has begun (Messages).

use crate::chat::prompt_of;
use crate::cluster::{CHAT, Fake, MESSAGES, post, posted, request, say, tiny};
use crate::templates::{appending, text};
use frontend::Limits;
use serde_json::{Value, json};
use std::sync::Arc;

fn begun(with: &Value) -> Value {
    json!({"max_tokens": 20, "messages": [
        {"role": "user", "content": "Name a city."},
        {"role": "assistant", "content": with},
    ]})
}

#[tokio::test]
async fn the_prompt_ends_where_the_client_stopped_and_the_answer_goes_on() {
    for (name, model) in appending() {
        for with in [json!("The city is"), json!([{"type": "text", "text": "The city is"}])] {
            let fake = Arc::new(Fake { model: model.clone(), ..Fake::new(say(" Oslo.")) });
            let body = begun(&with).to_string();
            let reply = request(fake.clone(), Limits::default(), posted(MESSAGES, body)).await;
            assert_eq!(reply.status, 200, "{name}: {}", reply.text);
            let prompt = fake.prompts.lock().unwrap().pop().unwrap().0;
            let text = text(&model, &prompt.tokens);
            assert!(text.ends_with("The city is"), "{name}: {text:?}");
            assert_eq!(
                reply.json()["content"],
                json!([{"type": "text", "text": " Oslo."}]),
                "{name}"
            );
        }
    }
}

#[tokio::test]
async fn texts_that_templates_write_too_are_no_other_place() {
    for (name, model) in appending() {
        let prompt = async |with: &str| {
            let fake = Arc::new(Fake { model: model.clone(), ..Fake::new(say(" x")) });
            let body = begun(&json!(with)).to_string();
            let reply = request(fake.clone(), Limits::default(), posted(MESSAGES, body)).await;
            assert_eq!(reply.status, 200, "{name}: {}", reply.text);
            fake.prompts.lock().unwrap().pop().unwrap().0.tokens
        };
        let plain = text(&model, &prompt("zq").await);
        let before = plain.strip_suffix("zq").unwrap();
        for with in ["<", ">", "end", "im", "|", "d", "a\n<", "assistant", "{\"a\":"] {
            let tokens = prompt(with).await;
            assert_eq!(text(&model, &tokens), format!("{before}{with}"), "{name}");
            assert!(!model.tokenizer().is_special(*tokens.last().unwrap()), "{name}: {with}");
        }
    }
}

#[tokio::test]
async fn what_was_said_next_goes_on_from_it() {
    let prompt = prompt_of(MESSAGES, &begun(&json!("The city is"))).await.tokens;
    let later = json!({"max_tokens": 20, "messages": [
        {"role": "user", "content": "Name a city."},
        {"role": "assistant", "content": "The city is Oslo."},
        {"role": "user", "content": "And another?"},
    ]});
    assert!(prompt_of(MESSAGES, &later).await.tokens.starts_with(&prompt));
}

#[tokio::test]
async fn what_cannot_be_gone_on_with() {
    let field = |reply: &crate::cluster::Reply, field: &str| {
        assert_eq!(reply.status, 400, "{}", reply.text);
        let error = reply.json();
        let message = error["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.starts_with(field), "{message}");
    };
    let texts = |texts: &[&str]| {
        texts.iter().map(|text| json!({"type": "text", "text": text})).collect::<Value>()
    };
    for with in [
        json!("The city is "),
        texts(&["The city is\n"]),
        json!(" "),
        texts(&["\n\t "]),
        texts(&["", " ", "\n"]),
    ] {
        field(&post(say("ok"), MESSAGES, &begun(&with)).await, "messages[1].content");
    }
    let mut body = begun(&json!("{"));
    body["output_config"] =
        json!({"format": {"type": "json_schema", "schema": {"type": "object"}}});
    field(&post(say("ok"), MESSAGES, &body).await, "output_config.format");
    let mut body = begun(&json!("I"));
    body["tools"] = json!([{"name": "w", "input_schema": {"type": "object"}}]);
    body["tool_choice"] = json!({"type": "any"});
    field(&post(say("ok"), MESSAGES, &body).await, "tool_choice");
}

#[tokio::test]
async fn its_tokens_are_counted_wherever_it_ends() {
    for with in ["The city is", "The city is \n", " "] {
        let reply = post(say(""), "/v1/messages/count_tokens", &begun(&json!(with))).await;
        assert_eq!(reply.status, 200, "{}", reply.text);
    }
}

#[tokio::test]
async fn other_last_messages_begin_a_new_answer() {
    let head = "<|im_start|>assistant";
    let ends = async |path: &str, message: Value| {
        let body =
            json!({"max_tokens": 5, "messages": [{"role": "user", "content": "q"}, message]});
        let tokens = prompt_of(path, &body).await.tokens;
        let head = tiny().tokenizer().encode(head, false);
        tokens.windows(head.len()).filter(|at| *at == head).count()
    };
    let call = json!([{"type": "tool_use", "id": "a", "name": "w", "input": {}}]);
    assert_eq!(ends(MESSAGES, json!({"role": "assistant", "content": call})).await, 2);
    assert_eq!(ends(CHAT, json!({"role": "assistant", "content": "x "})).await, 2);
    assert_eq!(ends(CHAT, json!({"role": "assistant", "content": " "})).await, 2);
    assert_eq!(ends(MESSAGES, json!({"role": "assistant", "content": ""})).await, 2);
    assert_eq!(ends(MESSAGES, json!({"role": "assistant", "content": "x"})).await, 1);
}
