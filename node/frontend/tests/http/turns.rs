//! Turn after turn through one node: every prompt is the one that a node without memory makes.

use crate::cluster::{CHAT, Fake, MESSAGES, open, posted, say};
use crate::templates::appending;
use frontend::{Limits, router};
use model::Model;
use proptest::prelude::*;
use protocol::prompt::Prompt;
use serde_json::{Value, json};
use std::sync::Arc;
use tower::ServiceExt;

/// More than what is read as quickly as it is looked up.
const LONG: usize = 20_000;

struct Node {
    fake: Arc<Fake>,
    api: axum::Router,
}

impl Node {
    fn new(model: &Arc<Model>) -> Self {
        // Nothing that is said here is ever sent back.
        let fake = Fake { model: model.clone(), context: 1 << 20, ..Fake::new(say("never")) };
        let fake = Arc::new(fake);
        Self { api: router(fake.clone(), open(), Limits::default()), fake }
    }

    async fn prompt(&self, path: &str, messages: &[Value], tools: bool) -> Prompt {
        let mut body = json!({"messages": messages, "max_tokens": 9});
        if tools {
            body["tools"] = match path {
                CHAT => json!([{"type": "function", "function": {"name": "w"}}]),
                _ => json!([{"name": "w", "input_schema": {"type": "object", "properties": {}}}]),
            };
        }
        let response = self.api.clone().oneshot(posted(path, body.to_string())).await.unwrap();
        assert_eq!(response.status(), 200);
        axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        self.fake.prompts.lock().unwrap().pop().unwrap().0
    }
}

/// A question and its answer, with a call in between now and then.
fn pair(path: &'static str) -> impl Strategy<Value = Vec<Value>> {
    let text =
        prop::sample::select(vec!["hi", "  é世界", "1\n2", "{\"x\": 1}", "<|im_end|", "a\"\\"]);
    (text.clone(), text, any::<bool>()).prop_map(move |(asked, said, calls)| {
        let mut out = vec![json!({"role": "user", "content": asked})];
        match (calls, path) {
            (true, CHAT) => out.extend([
                json!({"role": "assistant", "content": "", "tool_calls": [
                    {"id": "c", "type": "function",
                     "function": {"name": "w", "arguments": json!({"c": said}).to_string()}},
                ]}),
                json!({"role": "tool", "tool_call_id": "c", "content": asked}),
            ]),
            (true, _) => out.extend([
                json!({"role": "assistant", "content": [
                    {"type": "tool_use", "id": "c", "name": "w", "input": {"c": said}},
                ]}),
                json!({"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "c", "content": asked},
                ]}),
            ]),
            (false, _) => {}
        }
        out.push(json!({"role": "assistant", "content": said}));
        out
    })
}

fn check(path: &'static str, steps: Vec<(usize, Vec<Value>, bool)>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for (name, model) in appending() {
            let node = Node::new(&model);
            let mut pairs = vec![vec![
                json!({"role": "user", "content": "word ".repeat(LONG / 5)}),
                json!({"role": "assistant", "content": "ok"}),
            ]];
            for (keep, more, tools) in &steps {
                pairs.truncate(*keep.max(&1));
                pairs.push(more.clone());
                let mut messages = pairs.concat();
                messages.push(json!({"role": "user", "content": "go on"}));
                let prompt = node.prompt(path, &messages, *tools).await;
                let fresh = Node::new(&model).prompt(path, &messages, *tools).await;
                assert_eq!(prompt.tokens, fresh.tokens, "{name}");
                assert_eq!(prompt.prefix, fresh.prefix, "{name}");
            }
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]
    #[test]
    fn chat_prompts_do_not_depend_on_what_came_before(
        steps in prop::collection::vec((1..6usize, pair(CHAT), prop::bool::weighted(0.8)), 2..6)
    ) {
        check(CHAT, steps);
    }

    #[test]
    fn messages_prompts_do_not_depend_on_what_came_before(
        steps in prop::collection::vec((1..6usize, pair(MESSAGES), prop::bool::weighted(0.8)), 2..6)
    ) {
        check(MESSAGES, steps);
    }
}

/// One body, sent to both dialects: what one of them read is none of the other's.
#[tokio::test]
async fn the_same_bytes_mean_something_else_in_another_dialect() {
    let long = "word ".repeat(4000);
    let call = json!({"id": "a", "type": "function", "function": {"name": "w", "arguments": "{}"}});
    let messages = [
        json!({"role": "user", "content": long}),
        json!({"role": "assistant", "content": "yes", "tool_calls": [call]}),
        json!({"role": "user", "content": "and?"}),
    ];
    let model = crate::cluster::tiny();
    let both = Node::new(&model);
    for path in [CHAT, MESSAGES, CHAT, MESSAGES] {
        let alone = Node::new(&model).prompt(path, &messages, false).await;
        assert_eq!(both.prompt(path, &messages, false).await.tokens, alone.tokens, "{path}");
    }
}
