//! The tokens of an answer come back with the history, as the model wrote them.

use crate::cluster::{CHAT, Fake, MESSAGES, RESPONSES, Script, posted, tiny};
use frontend::{Limits, router};
use protocol::hash::Token;
use protocol::prompt::{FinishReason, Prompt};
use serde_json::{Value, json};
use std::sync::Arc;
use tower::ServiceExt;

/// What the model says; its template shows it in the history as it is.
const SAID: &str = "the answer is: wait for the next one";

/// The tokens of `text`, one by one of its characters: not as the tokenizer would cut it.
fn spelt(text: &str) -> Vec<Token> {
    text.chars().flat_map(|c| tiny().tokenizer().encode(&c.to_string(), false)).collect()
}

fn contains(prompt: &Prompt, tokens: &[Token]) -> bool {
    prompt.tokens.windows(tokens.len()).any(|window| window == tokens)
}

/// An entry node in front of a model that writes `text` in its own way.
struct Entry {
    fake: Arc<Fake>,
    api: axum::Router,
}

impl Entry {
    fn new(text: &str, reason: FinishReason) -> Self {
        let fake = Arc::new(Fake::new(Script::Write(spelt(text), reason)));
        let keys = crate::cluster::open();
        Self { api: router(fake.clone(), keys, Limits::default()), fake }
    }

    fn that_stops(text: &str) -> Self {
        Self::new(text, FinishReason::Stop(Token(2)))
    }

    /// Asks, reads the answer to its end, and gives back the last prompt and the answer.
    async fn ask(&self, path: &str, body: &Value) -> (Prompt, String) {
        let request = posted(path, body.to_string());
        let response = self.api.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        let prompt = self.fake.prompts.lock().unwrap().last().unwrap().0.clone();
        (prompt, String::from_utf8(bytes.to_vec()).unwrap())
    }
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

fn first() -> Value {
    json!({"messages": [user("q")], "max_tokens": 200})
}

fn second(answer: &str) -> Value {
    json!({"messages": [user("q"), assistant(answer), user("more")], "max_tokens": 200})
}

/// The prompt of an entry node that has generated nothing.
async fn elsewhere(path: &str, body: &Value) -> Prompt {
    Entry::that_stops("x").ask(path, body).await.0
}

#[tokio::test]
async fn the_next_turn_begins_with_the_prompt_and_the_tokens_that_were_generated() {
    for (path, stream) in [(CHAT, false), (CHAT, true), (MESSAGES, false), (MESSAGES, true)] {
        let entry = Entry::that_stops(SAID);
        let mut asked = first();
        asked["stream"] = json!(stream);
        let (before, _) = entry.ask(path, &asked).await;
        let (next, _) = entry.ask(path, &second(SAID)).await;
        let generated = [before.tokens.to_vec(), spelt(SAID)].concat();
        assert!(next.tokens.starts_with(&generated), "{path} {stream}");
        assert_eq!(next.prefix.len(), next.tokens.len() / 16);
        assert!(next.prefix.starts_with(&before.prefix));
        let plain = elsewhere(path, &second(SAID)).await;
        assert!(!contains(&plain, &spelt(SAID)), "the tokenizer cuts it otherwise");
        assert_eq!(
            tiny().tokenizer().decode(&next.tokens),
            tiny().tokenizer().decode(&plain.tokens),
            "the text is the same"
        );
        // It stays so in every later turn.
        let mut later = second(SAID);
        let messages = later["messages"].as_array_mut().unwrap();
        messages.extend([assistant(SAID), user("and then?")]);
        let (later, _) = entry.ask(path, &later).await;
        assert!(later.tokens.starts_with(&[next.tokens.to_vec(), spelt(SAID)].concat()));
    }
}

#[tokio::test]
async fn a_kept_response_goes_on_with_the_tokens_that_were_generated() {
    let entry = Entry::that_stops(SAID);
    let (before, answer) = entry.ask(RESPONSES, &json!({"input": "q"})).await;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let next = json!({"input": "more", "previous_response_id": answer["id"]});
    let (next, _) = entry.ask(RESPONSES, &next).await;
    assert!(next.tokens.starts_with(&[before.tokens.to_vec(), spelt(SAID)].concat()));
}

#[tokio::test]
async fn a_cut_answer_that_comes_back_whole_is_taken_too() {
    let entry = Entry::new(SAID, FinishReason::Length);
    entry.ask(CHAT, &first()).await;
    assert!(contains(&entry.ask(CHAT, &second(SAID)).await.0, &spelt(SAID)));
}

#[tokio::test]
async fn another_text_is_tokenised_as_ever() {
    for answer in ["the answer is: wait", "The answer is: wait for the next one", "", "no"] {
        let entry = Entry::that_stops(SAID);
        entry.ask(CHAT, &first()).await;
        let (next, _) = entry.ask(CHAT, &second(answer)).await;
        assert_eq!(next.tokens, elsewhere(CHAT, &second(answer)).await.tokens, "{answer}");
    }
}

#[tokio::test]
async fn what_a_stop_string_cut_off_never_comes_back() {
    // Cut in the middle, and at the very end, where the text is the whole answer without it.
    for stop in ["wait", " one", "the next one"] {
        let entry = Entry::that_stops(SAID);
        let mut asked = first();
        asked["stop"] = json!([stop]);
        let (_, answer) = entry.ask(CHAT, &asked).await;
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let seen = answer["choices"][0]["message"]["content"].as_str().unwrap();
        assert!(seen.len() < SAID.len() && SAID.starts_with(seen), "{seen}");
        for back in [seen, SAID] {
            let (next, _) = entry.ask(CHAT, &second(back)).await;
            assert_eq!(next.tokens, elsewhere(CHAT, &second(back)).await.tokens);
        }
    }
}

#[tokio::test]
async fn only_the_key_it_was_generated_under_sees_it() {
    let entry = Entry::that_stops(SAID);
    entry.ask(CHAT, &first()).await;
    let mut salted = second(SAID);
    salted["cache_salt"] = json!("another");
    let (next, _) = entry.ask(CHAT, &salted).await;
    assert_eq!(next.tokens, elsewhere(CHAT, &salted).await.tokens);
    // Nor does a conversation that only holds the same words.
    let mut other = second(SAID);
    other["messages"][0] = user("another question");
    let (next, _) = entry.ask(CHAT, &other).await;
    assert_eq!(next.tokens, elsewhere(CHAT, &other).await.tokens);
}

#[tokio::test]
async fn calls_come_back_where_the_template_writes_them_alike() {
    const CALLED: &str = "look<tool_call>{\"name\": \"w\", \"arguments\": {\"c\": 1}}</tool_call>";
    // In another way than the template's, and with reasoning, which it leaves out.
    const OTHERWISE: &str = "<tool_call>{\"arguments\":{\"c\":1},\"name\":\"w\"}</tool_call>";
    const THOUGHT: &str =
        "<think>\nhm\n</think>\n\n<tool_call>{\"name\": \"w\", \"arguments\": {}}</tool_call>";
    for (said, alike) in [(CALLED, true), (OTHERWISE, false), (THOUGHT, false)] {
        let entry = Entry::that_stops(said);
        let tools = json!([{"type": "function", "function": {"name": "w"}}]);
        let mut asked = first();
        asked["tools"] = tools.clone();
        let (before, answer) = entry.ask(CHAT, &asked).await;
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let message = answer["choices"][0]["message"].clone();
        let id = message["tool_calls"][0]["id"].clone();
        let result = json!({"role": "tool", "tool_call_id": id, "content": "rain"});
        let next = json!({"messages": [user("q"), message, result], "tools": tools});
        let (next, _) = entry.ask(CHAT, &next).await;
        let generated = [before.tokens.to_vec(), spelt(said)].concat();
        assert_eq!(next.tokens.starts_with(&generated), alike, "{said}");
    }
}

#[tokio::test]
async fn what_is_prefilled_ahead_holds_them_too() {
    let entry = Entry::that_stops(SAID);
    let mut asked = first();
    asked["nvext"] = json!({"agent_hints": {"speculative_prefill": true}});
    let (before, _) = entry.ask(CHAT, &asked).await;
    entry.fake.came.acquire_many(2).await.unwrap().forget();
    let ahead = entry.fake.prompts.lock().unwrap().last().unwrap().0.clone();
    assert!(ahead.tokens.starts_with(&[before.tokens.to_vec(), spelt(SAID)].concat()));
    let (next, _) = entry.ask(CHAT, &second(SAID)).await;
    assert!(next.tokens.starts_with(&ahead.tokens));
}
