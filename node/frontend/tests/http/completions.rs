//! Completions: prompts without a template.

use crate::cluster::{COMPLETIONS, Fake, posted, request, say, tiny};
use frontend::Limits;
use serde_json::{Value, json};
use std::sync::Arc;

async fn completed(text: &str, body: &Value) -> (Value, Vec<u32>, u32) {
    let fake = Arc::new(Fake::new(say(text)));
    let posted = posted(COMPLETIONS, body.to_string());
    let reply = request(fake.clone(), Limits::default(), posted).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    let (prompt, _) = fake.prompts.lock().unwrap().pop().unwrap();
    let tokens: Vec<u32> = prompt.tokens.iter().map(|token| token.0).collect();
    assert_eq!(prompt.prefix.len(), tokens.len() / protocol::hash::GRANULE);
    (reply.json(), tokens, prompt.limits.max_tokens)
}

#[tokio::test]
async fn a_text_and_its_tokens_are_one_prompt() {
    let text = "Once upon a time, ".repeat(20);
    let tokens: Vec<u32> = tiny().tokenizer().encode(&text, true).iter().map(|t| t.0).collect();
    for prompt in [json!(text), json!([text]), json!(tokens), json!([tokens])] {
        let (body, sent, limit) = completed("there was", &json!({"prompt": prompt})).await;
        assert_eq!((sent, limit), (tokens.clone(), 16));
        assert_eq!(body["choices"][0]["text"], "there was");
        assert_eq!(body["object"], "text_completion");
        assert_eq!(body["usage"]["prompt_tokens"], tokens.len());
    }
}

#[tokio::test]
async fn nothing_is_markup_without_a_template() {
    let text = "<think>a</think> <tool_call>{}</tool_call> <tool_ca";
    let (body, ..) =
        completed(text, &json!({"prompt": "Once upon a time", "max_tokens": 99})).await;
    assert_eq!(body["choices"][0]["text"], text);
    assert_eq!(body["choices"][0]["finish_reason"], "stop");
    let (body, ..) =
        completed("a stop b", &json!({"prompt": "Once upon a time", "stop": "stop"})).await;
    assert_eq!(body["choices"][0]["text"], "a ");
}
