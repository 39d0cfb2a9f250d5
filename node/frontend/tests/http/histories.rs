//! The prefix property: what a longer conversation's prompt begins with is the prompt of the
//! shorter one, whatever clients change around the words; and it is the same in all dialects.

use crate::cluster::{CHAT, Fake, MESSAGES, RESPONSES, posted, say};
use crate::templates::{appending, history};
use frontend::{Limits, router};
use proptest::prelude::*;
use protocol::hash::Token;
use serde_json::{Value, json};
use std::sync::Arc;
use tower::ServiceExt;

/// One step of a conversation, apart from how a dialect says it.
#[derive(Clone, Debug)]
enum Turn {
    System(String),
    User(String),
    /// An answer, and the results of its calls.
    Assistant {
        reasoning: String,
        text: String,
        calls: Vec<(String, String)>,
    },
}

fn text() -> impl Strategy<Value = String> {
    let texts =
        ["hi", "  é世界", "<system-reminder>\n", "1\n2", "a", "\u{301}", "{\"x\": 1}", "<|im_end|"];
    prop::sample::select(texts.map(str::to_owned).to_vec())
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let said = (text(), text(), prop::collection::vec((text(), text()), 0..3), any::<bool>());
    let assistant = said.prop_map(|(reasoning, text, calls, thinks)| Turn::Assistant {
        reasoning: if thinks { reasoning } else { String::new() },
        text: if calls.is_empty() { text } else { String::new() },
        calls,
    });
    let asked = (text(), prop::option::of(text()));
    let pair = (asked, assistant).prop_map(|((user, late), assistant)| {
        let late = late.map(Turn::System);
        [Some(Turn::User(user)), late, Some(assistant)].into_iter().flatten().collect::<Vec<_>>()
    });
    prop::collection::vec(pair, 1..4).prop_map(|pairs| pairs.concat())
}

/// What clients change from call to call without meaning anything.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn coin(&mut self) -> bool {
        self.next().is_multiple_of(2)
    }

    /// A string, or blocks that say the same, with a mark to keep them now and then.
    fn content(&mut self, kind: &str, text: &str) -> Value {
        match self.next() % 3 {
            0 => json!(text),
            1 => json!([{"type": kind, "text": text}]),
            _ => json!([{"type": kind, "text": text, "cache_control": {"type": "ephemeral"}}]),
        }
    }

    fn id(&mut self, kind: &str) -> Value {
        json!(format!("{kind}_{:x}", self.next()))
    }

    fn ids(&mut self, kind: &str, count: usize) -> Vec<Value> {
        (0..count).map(|_| self.id(kind)).collect()
    }

    /// Results come in any order.
    fn order(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        for at in (1..count).rev() {
            order.swap(at, self.next() as usize % (at + 1));
        }
        order
    }

    fn metadata(&mut self, body: &mut Value) {
        let id = self.id("user").as_str().unwrap().to_owned();
        body["metadata"] = json!({ "user_id": id });
    }
}

const SYSTEM: &str = "be brief";

fn tool_schema() -> Value {
    json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})
}

fn chat(turns: &[Turn], tools: bool, noise: &mut Noise) -> Value {
    let mut messages = vec![json!({"role": "system", "content": noise.content("text", SYSTEM)})];
    for turn in turns {
        match turn {
            Turn::System(text) => {
                let role = if noise.coin() { "system" } else { "developer" };
                messages.push(json!({"role": role, "content": noise.content("text", text)}));
            }
            Turn::User(text) => {
                let content = noise.content("text", text);
                messages.push(json!({"role": "user", "content": content, "name": noise.id("u")}));
            }
            Turn::Assistant { reasoning, text, calls } => {
                let mut message = json!({"role": "assistant", "id": noise.id("msg")});
                if !reasoning.is_empty() {
                    let key = if noise.coin() { "reasoning" } else { "reasoning_content" };
                    message[key] = json!(reasoning);
                }
                match (text.is_empty(), noise.next() % 3) {
                    (true, 0) => {}
                    (true, 1) => message["content"] = Value::Null,
                    _ => message["content"] = noise.content("text", text),
                }
                let ids = noise.ids("call", calls.len());
                if !calls.is_empty() {
                    let call = |((city, _), id): (&(String, String), &Value)| {
                        json!({"id": id, "type": "function", "function": {
                            "name": "w", "arguments": json!({ "city": city }).to_string(),
                        }})
                    };
                    message["tool_calls"] = calls.iter().zip(&ids).map(call).collect();
                }
                messages.push(message);
                for nth in noise.order(calls.len()) {
                    let content = noise.content("text", &calls[nth].1);
                    let id = &ids[nth];
                    messages.push(json!({"role": "tool", "tool_call_id": id, "content": content}));
                }
            }
        }
    }
    let mut body = json!({ "messages": messages });
    if tools {
        body["tools"] = json!([{"type": "function", "function": {
            "name": "w", "description": "d", "parameters": tool_schema(),
        }}]);
    }
    noise.metadata(&mut body);
    body
}

fn messages(turns: &[Turn], tools: bool, noise: &mut Noise) -> Value {
    let mut messages = Vec::new();
    for turn in turns {
        match turn {
            Turn::System(text) => {
                messages.push(json!({"role": "system", "content": noise.content("text", text)}));
            }
            Turn::User(text) => {
                messages.push(json!({"role": "user", "content": noise.content("text", text)}));
            }
            Turn::Assistant { reasoning, text, calls } => {
                let mut blocks = Vec::new();
                if !reasoning.is_empty() {
                    let mut block = json!({"type": "thinking", "thinking": reasoning});
                    if noise.coin() {
                        block["signature"] = noise.id("sig");
                    }
                    blocks.push(block);
                }
                if !text.is_empty() {
                    blocks.push(json!({"type": "text", "text": text}));
                }
                let ids = noise.ids("toolu", calls.len());
                for ((city, _), id) in calls.iter().zip(&ids) {
                    blocks.push(json!({
                        "type": "tool_use", "id": id, "name": "w",
                        "input": {"city": city},
                    }));
                }
                if let (true, Some(last)) = (noise.coin(), blocks.last_mut()) {
                    last["cache_control"] = json!({"type": "ephemeral", "ttl": "1h"});
                }
                messages.push(json!({"role": "assistant", "content": blocks}));
                if !calls.is_empty() {
                    let order = noise.order(calls.len());
                    let result = |nth: usize| {
                        let content = noise.content("text", &calls[nth].1);
                        json!({
                            "type": "tool_result", "tool_use_id": ids[nth],
                            "content": content, "is_error": noise.coin(),
                        })
                    };
                    let results: Vec<Value> = order.into_iter().map(result).collect();
                    messages.push(json!({"role": "user", "content": results}));
                }
            }
        }
    }
    let billing = format!("x-anthropic-billing-header: cc_version=2.{:x};", noise.next());
    let system = match noise.next() % 3 {
        0 => json!(SYSTEM),
        1 => json!([{"type": "text", "text": billing}, {"type": "text", "text": SYSTEM}]),
        _ => json!(format!("{billing}\n{SYSTEM}")),
    };
    let mut body = json!({"system": system, "messages": messages, "max_tokens": 5});
    if tools {
        body["tools"] = json!([{"name": "w", "description": "d", "input_schema": tool_schema()}]);
    }
    noise.metadata(&mut body);
    body
}

fn responses(turns: &[Turn], tools: bool, noise: &mut Noise) -> Value {
    let mut input = Vec::new();
    for turn in turns {
        match turn {
            Turn::System(text) => {
                let role = if noise.coin() { "system" } else { "developer" };
                input.push(json!({"role": role, "content": noise.content("input_text", text)}));
            }
            Turn::User(text) => {
                let content = noise.content("input_text", text);
                input.push(json!({"type": "message", "role": "user", "content": content}));
            }
            Turn::Assistant { reasoning, text, calls } => {
                if !reasoning.is_empty() {
                    let kept = noise.coin();
                    let (kind, at) = if kept {
                        ("summary_text", "summary")
                    } else {
                        ("reasoning_text", "content")
                    };
                    let mut item =
                        json!({"type": "reasoning", "id": noise.id("rs"), "summary": []});
                    item[at] = json!([{"type": kind, "text": reasoning}]);
                    input.push(item);
                }
                if !text.is_empty() {
                    let content = json!([{"type": "output_text", "text": text, "annotations": []}]);
                    input.push(json!({
                        "type": "message", "id": noise.id("msg"), "role": "assistant",
                        "status": "completed", "content": content,
                    }));
                }
                let ids = noise.ids("call", calls.len());
                for ((city, _), id) in calls.iter().zip(&ids) {
                    input.push(json!({
                        "type": "function_call", "id": noise.id("fc"), "call_id": id,
                        "name": "w", "arguments": json!({ "city": city }).to_string(),
                    }));
                }
                for nth in noise.order(calls.len()) {
                    input.push(json!({
                        "type": "function_call_output", "call_id": ids[nth],
                        "output": noise.content("input_text", &calls[nth].1),
                    }));
                }
            }
        }
    }
    let mut body = json!({
        "instructions": SYSTEM, "input": input, "prompt_cache_key": noise.id("key"),
        "client_metadata": {"turn": noise.id("t")},
    });
    if tools {
        body["tools"] = json!([{
            "type": "function", "name": "w", "description": "d", "parameters": tool_schema(),
        }]);
    }
    noise.metadata(&mut body);
    body
}

/// A first call in each dialect.
fn first(path: &str) -> Value {
    let turns = [Turn::User("weather?".into())];
    let say = DIALECTS.iter().find(|(dialect, _)| *dialect == path).unwrap().1;
    say(&turns, true, &mut Noise(7))
}

/// The call after that, as clients make it of the answer: calls get results, and a user goes on.
fn second(path: &str, first: &Value, answer: &Value) -> Value {
    let mut next = first.clone();
    let list = |body: &mut Value, field: &str| body[field].as_array().cloned().unwrap();
    let said = |content: Value| json!({"role": "user", "content": content});
    match path {
        CHAT => {
            let mut messages = list(&mut next, "messages");
            let message = &answer["choices"][0]["message"];
            messages.push(message.clone());
            for call in message["tool_calls"].as_array().into_iter().flatten() {
                messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": "ok"}));
            }
            messages.push(said(json!("and?")));
            next["messages"] = messages.into();
        }
        MESSAGES => {
            let mut messages = list(&mut next, "messages");
            let blocks = answer["content"].as_array().unwrap();
            messages.push(json!({"role": "assistant", "content": blocks}));
            let calls = blocks.iter().filter(|block| block["type"] == "tool_use");
            let result = |call: &Value| json!({"type": "tool_result", "tool_use_id": call["id"], "content": "ok"});
            let mut content: Vec<Value> = calls.map(result).collect();
            content.push(json!({"type": "text", "text": "and?"}));
            messages.push(said(content.into()));
            next["messages"] = messages.into();
        }
        _ => {
            let mut input = list(&mut next, "input");
            let output = answer["output"].as_array().unwrap();
            input.extend(output.iter().cloned());
            for call in output.iter().filter(|item| item["type"] == "function_call") {
                input.push(json!({
                    "type": "function_call_output", "call_id": call["call_id"], "output": "ok",
                }));
            }
            input.push(said(json!("and?")));
            next["input"] = input.into();
        }
    }
    next
}

type Say = fn(&[Turn], bool, &mut Noise) -> Value;
const DIALECTS: [(&str, Say); 3] = [(CHAT, chat), (MESSAGES, messages), (RESPONSES, responses)];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    /// What the model said comes back as the very tokens it said, so that its blocks are found
    /// again: calls where the template has them, reasoning where the template keeps it.
    #[test]
    fn an_answer_comes_back_as_it_was_said(
        text in prop::sample::select(vec!["", "Let me see.", "世界 🦀", "a\n\n- b\n- c"]),
        cities in prop::collection::vec(prop::sample::select(vec!["Oslo", "é\"\\", "a b"]), 0..3),
        thought in prop::sample::select(vec!["hm", "1\n\n2"]),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let call = |city: &&str| {
            format!(r#"<tool_call>{{"name": "w", "arguments": {{"city": {}}}}}</tool_call>"#, json!(city))
        };
        let calls: String = cities.iter().map(call).collect();
        for (model, said) in [
            (crate::cluster::tiny(), format!("{text}{calls}")),
            (crate::templates::strict(), format!("<think>\n{thought}\n</think>\n\n{text}")),
        ] {
            for (path, _) in DIALECTS {
                let fake = Arc::new(Fake { model: model.clone(), ..Fake::new(say(&said)) });
                let ask = |body: &Value| {
                    let request = posted(path, body.to_string());
                    let reply = runtime.block_on(crate::cluster::request(
                        fake.clone(), Limits::default(), request,
                    ));
                    assert_eq!(reply.status, 200, "{body}: {}", reply.text);
                    (reply.json(), fake.prompts.lock().unwrap().pop().unwrap().0.tokens.to_vec())
                };
                let one = first(path);
                let (answer, mut tokens) = ask(&one);
                let (_, longer) = ask(&second(path, &one, &answer));
                tokens.extend(model.tokenizer().encode(&said, false));
                prop_assert!(
                    longer.starts_with(&tokens), "{}: {:?} as {:?}", path, said,
                    model.tokenizer().decode(&longer),
                );
            }
        }
    }

    #[test]
    fn a_longer_history_begins_with_the_shorter(turns in turns(), tools: bool, seed in 1u64..) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut noise = Noise(seed);
        for (name, model) in appending() {
            let fake = Arc::new(Fake { model: model.clone(), ..Fake::new(say("ok")) });
            let router = router(fake.clone(), crate::cluster::open(), Limits::default());
            let mut before: Vec<Token> = Vec::new();
            // With the answers' ends and without: a call comes at either.
            for n in 1..=turns.len() {
                let mut said: Vec<Vec<Token>> = Vec::new();
                for (path, say) in DIALECTS {
                    // There such an answer is one to go on with.
                    if path == MESSAGES && matches!(&turns[n - 1],
                        Turn::Assistant { text, calls, .. } if calls.is_empty() && !text.trim().is_empty())
                    {
                        continue;
                    }
                    let body = say(&turns[..n], tools, &mut noise);
                    let request = posted(path, body.to_string());
                    let reply = runtime.block_on(router.clone().oneshot(request)).unwrap();
                    prop_assert_eq!(reply.status(), 200, "{}: {}", name, body);
                    let (prompt, _) = fake.prompts.lock().unwrap().pop().unwrap();
                    said.push(history(&model, &prompt.tokens));
                }
                prop_assert!(said.iter().all(|one| *one == said[0]), "{} turn {}: {:?}", name, n, turns);
                prop_assert!(said[0].starts_with(&before), "{} turn {}: {:?}", name, n, turns);
                prop_assert!(said[0].len() > before.len());
                before = said.swap_remove(0);
            }
        }
    }
}
