//! Results of tools find their calls by id, in whatever order a harness sends them.

use crate::chat::prompt_of;
use crate::cluster::{CHAT, Fake, MESSAGES, RESPONSES, post, posted, request, say};
use crate::templates::with_names;
use frontend::Limits;
use serde_json::{Value, json};
use std::sync::Arc;

/// Two calls and their results in a dialect; `order` says which result comes when.
fn body(path: &str, ids: [&str; 2], order: [usize; 2]) -> Value {
    let names = ["w", "now"];
    let results = ["rain", "noon"];
    let user = json!({"role": "user", "content": "q"});
    match path {
        CHAT => {
            let call = |n: usize| json!({"id": ids[n], "type": "function", "function": {"name": names[n], "arguments": "{}"}});
            let result =
                |n: usize| json!({"role": "tool", "tool_call_id": ids[n], "content": results[n]});
            json!({"messages": [
                user, {"role": "assistant", "content": "", "tool_calls": [call(0), call(1)]},
                result(order[0]), result(order[1]),
            ]})
        }
        MESSAGES => {
            let call =
                |n: usize| json!({"type": "tool_use", "id": ids[n], "name": names[n], "input": {}});
            let result = |n: usize| json!({"type": "tool_result", "tool_use_id": ids[n], "content": results[n]});
            json!({"max_tokens": 5, "messages": [
                user, {"role": "assistant", "content": [call(0), call(1)]},
                {"role": "user", "content": [result(order[0]), result(order[1])]},
            ]})
        }
        _ => {
            let call = |n: usize| json!({"type": "function_call", "call_id": ids[n], "name": names[n], "arguments": "{}"});
            let result = |n: usize| json!({"type": "function_call_output", "call_id": ids[n], "output": results[n]});
            json!({"input": [user, call(0), call(1), result(order[0]), result(order[1])]})
        }
    }
}

#[tokio::test]
async fn the_order_of_results_does_not_matter() {
    let mut prompts = Vec::new();
    for path in [CHAT, MESSAGES, RESPONSES] {
        for (ids, order) in [(["a", "b"], [0, 1]), (["a", "b"], [1, 0]), (["z", "y"], [1, 0])] {
            prompts.push(prompt_of(path, &body(path, ids, order)).await.tokens);
        }
        // Without ids they come in the order of the calls.
        prompts.push(prompt_of(path, &body(path, ["", ""], [0, 1])).await.tokens);
    }
    assert!(prompts.iter().all(|tokens| *tokens == prompts[0]));
}

#[tokio::test]
async fn each_result_bears_the_name_of_its_tool() {
    for path in [CHAT, MESSAGES, RESPONSES] {
        let fake = Arc::new(Fake { model: with_names(), ..Fake::new(say("ok")) });
        let body = body(path, ["a", "b"], [1, 0]);
        let reply = request(fake.clone(), Limits::default(), posted(path, body.to_string())).await;
        assert_eq!(reply.status, 200, "{}", reply.text);
        let prompt = fake.prompts.lock().unwrap().pop().unwrap().0;
        let text = fake.model.tokenizer().decode(&prompt.tokens);
        let (first, second) = (text.find("w: rain"), text.find("now: noon"));
        assert!(first.is_some() && first < second, "{path}: {text}");
    }
}

#[tokio::test]
async fn ids_that_fit_no_call() {
    let at = |path: &str, result: usize, call: usize| match path {
        CHAT => (
            format!("messages[{}].tool_call_id", 2 + result),
            format!("messages[1].tool_calls[{call}].id"),
        ),
        MESSAGES => (
            format!("messages[2].content[{result}].tool_use_id"),
            format!("messages[1].content[{call}].id"),
        ),
        _ => (format!("input[{}].call_id", 3 + result), format!("input[{}].call_id", 1 + call)),
    };
    for path in [CHAT, MESSAGES, RESPONSES] {
        let unknown = {
            let text = body(path, ["a", "b"], [0, 1]).to_string();
            let last = text.rfind("\"b\"").unwrap();
            serde_json::from_str(&format!("{}\"x\"{}", &text[..last], &text[last + 3..])).unwrap()
        };
        for (body, field, words) in [
            (unknown, at(path, 1, 0).0, "no call before this result has the id `x`"),
            (body(path, ["a", "b"], [0, 0]), at(path, 1, 0).0, "has a result already"),
            (body(path, ["a", "a"], [0, 1]), at(path, 0, 1).1, "another call of this turn"),
        ] {
            let reply = post(say("ok"), path, &body).await;
            assert_eq!(reply.status, 400, "{body}: {}", reply.text);
            let error = reply.json()["error"].take();
            let message = error["message"].as_str().unwrap();
            assert!(message.starts_with(&field) && message.contains(words), "{path}: {message}");
            if path != MESSAGES {
                assert_eq!(error["param"], field);
            }
        }
    }
}

#[tokio::test]
async fn ids_that_come_again_in_later_turns_are_those_of_the_last() {
    let turn = |result: &str| {
        [
            json!({"role": "assistant", "tool_calls": [
                {"id": "call_0", "type": "function", "function": {"name": "w", "arguments": "{}"}},
            ]}),
            json!({"role": "tool", "tool_call_id": "call_0", "content": result}),
        ]
    };
    let mut messages = vec![json!({"role": "user", "content": "q"})];
    let mut before = Arc::<Vec<_>>::default();
    for result in ["one", "two", "three"] {
        messages.extend(turn(result));
        let tokens = prompt_of(CHAT, &json!({ "messages": messages })).await.tokens;
        assert!(tokens.len() > before.len());
        before = tokens;
    }
}
