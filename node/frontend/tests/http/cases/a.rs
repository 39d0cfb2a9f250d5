//! Section A: Messages.

use super::*;
use crate::templates::{alternating, strict};

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// What Claude Code puts first into its system prompt.
fn billing(version: &str) -> Value {
    let text = format!("x-anthropic-billing-header: cc_version={version}; cc_entrypoint=cli;");
    json!({"type": "text", "text": text})
}

/// One question with a tool to answer it.
fn with_tool() -> Value {
    json!({"messages": [user("weather?")], "tools": [weather_of_messages()]})
}

/// A turn that thought, called and got its result.
fn called(thinking: Value) -> Value {
    json!({"tools": [weather_of_messages()], "messages": [
        user("q"),
        {"role": "assistant", "content": [
            thinking,
            {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "A"}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"},
        ]},
    ]})
}

fn counts(usage: &Value) -> u64 {
    ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"]
        .map(|key| usage[key].as_u64().unwrap_or_else(|| panic!("{key} in {usage}")))
        .iter()
        .sum()
}

rows! {
    a1: "`role: system` within messages was refused",
        vec![
            messages(json!({"system": "a", "messages": [
                user("hi"), {"role": "system", "content": "be brief"},
            ]})),
            messages(json!({"system": "a", "messages": [
                user("hi"),
                {"role": "system", "content": [{"type": "text", "text": "be brief"}]},
            ]})),
            messages(json!({"system": [], "messages": [{"role": "system", "content": "be brief"}]})),
            messages(json!({"messages": [
                {"role": "system", "content": "be brief"}, user("hi"),
                {"role": "assistant", "content": "a"}, {"role": "system", "content": ""}, user("b"),
            ]})),
        ],
        |told| {
            all_served(told);
            same_tokens(&told[..2]);
            assert!(told.iter().all(|one| one.text().contains("be brief")));
        };

    a2: "a strict template made a late system message an error",
        vec![
            messages(json!({"system": "a", "messages": [
                user("hi"), {"role": "system", "content": "be brief"},
            ]})).on(strict()),
            messages(json!({"messages": [
                user("hi"), {"role": "assistant", "content": "b"},
                {"role": "system", "content": "be brief"}, user("c"),
            ]})).on(strict()),
        ],
        |told| {
            all_served(told);
            for one in told {
                let text = one.text();
                assert!(text.find("hi").unwrap() < text.find("be brief").unwrap(), "{text}");
            }
        };

    a3: "late system messages were hoisted, so that each reminder changed the head of the prompt",
        {
            let turns = [
                user("u1"), json!({"role": "system", "content": "s1"}),
                json!({"role": "assistant", "content": "a1"}), user("u2"),
                json!({"role": "assistant", "content": "a2"}), user("u3"),
                json!({"role": "system", "content": "s2"}),
            ];
            let turns_to = |n: usize| json!({"system": "s0", "messages": turns[..n]});
            [tiny(), strict()].into_iter()
                .flat_map(|model| [2, 4, 7].map(|n| messages(turns_to(n)).on(model.clone())))
                .collect()
        },
        |told| {
            all_served(told);
            for pair in told.windows(2).filter(|pair| Arc::ptr_eq(&pair[0].model, &pair[1].model)) {
                assert!(pair[1].history().starts_with(&pair[0].history()));
            }
        };

    a4: "a billing header that changes took every prefix hit away",
        [
            json!([{"type": "text", "text": "s"}]),
            json!([billing("1.aaa"), {"type": "text", "text": "s"}]),
            json!([billing("1.bbb"), {"type": "text", "text": "s"}]),
            json!("s"),
            json!("x-anthropic-billing-header: cc_version=2;\ns"),
        ]
        .map(|system| messages(json!({"system": system, "messages": [user("hi")]})))
        .into(),
        |told| same_tokens(told);

    a5: "a `cache_control` that moves on broke the prefix; strings and single blocks differed",
        {
            let cached = |text: &str| {
                let control = json!({"type": "ephemeral"});
                json!([{"type": "text", "text": text, "cache_control": control}])
            };
            let turns = |hi: Value, last: Value| messages(json!({"system": cached("s"), "messages": [
                {"role": "user", "content": hi}, {"role": "assistant", "content": "a"},
                {"role": "user", "content": last},
            ]}));
            vec![
                turns(json!("hi"), json!("b")),
                turns(cached("hi"), json!([{"type": "text", "text": "b"}])),
                turns(json!([{"type": "text", "text": "hi"}]), cached("b")),
            ]
        },
        |told| same_tokens(told);

    a7: "thinking streamed without a signature, and was dropped when it came back",
        vec![
            messages(json!({
                "messages": [user("q")],
                "thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2048,
            })).says("<think>hm</think>Hello!"),
            messages(called(json!({"type": "thinking", "thinking": "t", "signature": "x"}))),
            messages(called(json!({"type": "thinking", "thinking": "t"}))),
            messages(called(json!({"type": "thinking", "thinking": "t", "signature": ""}))),
        ],
        |told| {
            same_tokens(&told[1..]);
            let started = &told[0].events("content_block_start")[0]["content_block"];
            assert_eq!(*started, json!({"type": "thinking", "thinking": "", "signature": ""}));
            let kinds: Vec<Value> = told[0].events("").iter()
                .filter(|event| event["index"] == 0)
                .map(|event| event["delta"].get("type").unwrap_or(&event["type"]).clone())
                .collect();
            let [.., signature, stop] = kinds.as_slice() else { panic!() };
            assert_eq!((signature, stop), (&json!("signature_delta"), &json!("content_block_stop")));
            assert_eq!(kinds.iter().filter(|kind| *kind == "signature_delta").count(), 1);
            assert_ne!(told[0].body()["content"][0]["signature"], "");
        };

    a8: "thinking that came back was taken for an unknown content part",
        vec![
            messages(called(json!({"type": "thinking", "thinking": "my plan", "signature": "x"})))
                .on(strict()),
            messages(called(json!({"type": "redacted_thinking", "data": "x"}))).on(strict()),
            // Blocks of the vendor's own tools, in a session that began there.
            messages(called(json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search",
                "input": {"query": "q"}}))).on(strict()),
            messages(called(json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1",
                "content": [{"type": "web_search_result", "url": "u"}]}))).on(strict()),
        ],
        |told| {
            same_tokens(&told[1..]);
            all_served(told);
            assert!(told[0].text().contains("<think>\nmy plan\n</think>"), "{}", told[0].text());
        };

    a10: "`stop_reason` was `end_turn` though a tool was called",
        vec![messages(with_tool()).says(&call("get_weather", r#"{"city": "Oslo"}"#))],
        |told| {
            assert_eq!(told[0].body()["stop_reason"], "tool_use");
            assert_eq!(told[0].events("message_delta")[0]["delta"]["stop_reason"], "tool_use");
        };

    a12: "a tool without arguments had no delta at all",
        vec![messages(json!({
            "messages": [user("time?")],
            "tools": [{"name": "now", "input_schema": {"type": "object", "properties": {}}}],
        })).says(&call("now", "{}"))],
        |told| {
            let deltas: Vec<Value> = told[0].events("content_block_delta");
            let json: String =
                deltas.iter().filter_map(|event| event["delta"]["partial_json"].as_str()).collect();
            assert_eq!(json, "{}");
            assert_eq!(told[0].body()["content"][0]["input"], json!({}));
        };

    a13: "cache counters were absent, or counted twice",
        vec![messages(json!({"messages": [user("hi")]})).says("Hello!")],
        |told| {
            let length = told[0].tokens().len() as u64;
            let start = told[0].events("message_start")[0]["message"]["usage"].clone();
            let end = told[0].events("message_delta")[0]["usage"].clone();
            for usage in [&start, &end, &told[0].body()["usage"]] {
                assert_eq!(counts(usage), length);
                assert_eq!(usage["cache_read_input_tokens"], CACHED);
            }
            assert!(end["output_tokens"].as_u64().unwrap() > 1);
        };

    a15: "prompt and `max_tokens` together over the window were refused",
        vec![messages(json!({"max_tokens": 64_000, "messages": [user("q")]}))],
        |told| {
            all_served(told);
            let prompt = told[0].prompt();
            assert_eq!(prompt.limits.max_tokens as usize, 4096 - prompt.tokens.len());
        };

    a16: "a prompt that is too long was refused in words that the harness does not know",
        vec![messages(json!({"messages": [user(&"a b ".repeat(9))]})).context(16)],
        |told| {
            assert_eq!(told[0].status(), 400);
            let error = told[0].body()["error"].clone();
            assert_eq!(error["type"], "invalid_request_error");
            let message = error["message"].as_str().unwrap();
            let numbers = message.strip_prefix("prompt is too long: ").unwrap();
            let numbers = numbers.strip_suffix(" maximum").unwrap();
            let (tokens, limit) = numbers.split_once(" tokens > ").unwrap();
            assert_eq!(limit, "15");
            assert!(tokens.parse::<u32>().unwrap() > 15);
            assert!(told[0].prompt.is_none(), "refused before any work");
        };

    a17: "a template's failure was a 500",
        vec![messages(json!({"messages": [user("a"), user("b")]})).on(alternating())],
        |told| {
            assert_eq!(told[0].status(), 400);
            let error = &told[0].body()["error"];
            assert_eq!(error["type"], "invalid_request_error");
            let message = error["message"].as_str().unwrap();
            assert!(message.contains("roles must alternate"), "{message}");
        };

    a20: "fields of newer clients were refused",
        vec![
            messages(json!({"messages": [user("q")]})),
            messages(json!({
                "messages": [user("q")],
                "thinking": {"type": "adaptive", "display": "summarized"},
                "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
                "output_config": {"effort": "high", "format": {"type": "json_schema", "schema": {
                    "type": "object", "properties": {"title": {"type": "string"}},
                    "required": ["title"], "additionalProperties": false,
                }}},
                "metadata": {"user_id": "{}"}, "tool_choice": {"type": "auto"},
                "tools": [{"type": "web_search_20250305", "name": "web_search"}],
                "some_new_field": {"a": [1]},
            })),
        ],
        |told| same_tokens(told);
}
