use super::*;
use crate::ask::Pin;
use crate::nvext::outcome::Verdict;
use crate::prompt::client::Client;
use crate::testing::{key, served, tiny, tokens};
use crate::{chat, messages};
use proptest::prelude::*;
use protocol::block::BlockClass;
use protocol::time::Span;
use serde_json::json;

fn cache() -> PrefixCache {
    PrefixCache::new(1 << 20)
}

fn who() -> Who {
    let (tenant, session) = (TenantId::local(), Session::default());
    Who { id: RequestId(1), tenant, session, seed: 77, priority: 0 }
}

fn prepared(ask: &Ask) -> Prepared {
    prepare(ask, who(), &served(4096), &key(1), &cache(), &Client::stays()).unwrap()
}

fn messages(body: Value) -> Ask {
    messages::request::read(body.to_string().as_bytes()).unwrap()
}

fn chat(body: Value) -> Ask {
    chat::request::read(body.to_string().as_bytes()).unwrap()
}

fn text(ask: &Ask) -> String {
    render(ask, &served(4096)).unwrap().text
}

#[test]
fn both_dialects_give_one_prompt() {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let one = chat(json!({
        "tools": [{"type": "function", "function": {
            "name": "w", "description": "d", "parameters": schema, "strict": true,
        }}],
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": null, "reasoning": "t", "tool_calls": [
                {"id": "c1", "type": "function",
                 "function": {"name": "w", "arguments": "{\"city\":\"A\"}"}},
            ]},
            {"role": "tool", "tool_call_id": "c1", "content": [
                {"type": "text", "text": "o"}, {"type": "text", "text": "k"},
            ]},
        ],
    }));
    let other = messages(json!({
        "max_tokens": 5,
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=1.aaa; cc_entrypoint=cli;"},
            {"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}},
        ],
        "tools": [{"name": "w", "description": "d", "input_schema": schema}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "q"}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "t", "signature": "x"},
                {"type": "tool_use", "id": "toolu_1", "name": "w", "input": {"city": "A"}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok", "is_error": false},
            ]},
        ],
    }));
    assert_eq!(one.messages, other.messages);
    assert_eq!(one.tools, other.tools);
    assert_eq!(text(&one), text(&other));
}

#[test]
fn limits_sampling_and_length() {
    let ask = chat(json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 65_535}));
    let Prepared { prompt, shape, .. } = prepared(&ask);
    let length = prompt.tokens.len() as u32;
    assert_eq!(prompt.limits.max_tokens, 4096 - length, "clamped without a word");
    assert!(shape.limit_is_context);
    assert_eq!((prompt.sampling.temperature, prompt.sampling.seed), (1.0, 77));
    assert!(!prompt.limits.stop_tokens.is_empty());
    assert_eq!(*prompt.prefix, key(1).chain(&[], &prompt.tokens));

    for context in [length, length - 1] {
        let refused = prepare(&ask, who(), &served(context), &key(1), &cache(), &Client::stays())
            .err()
            .unwrap();
        let kind = crate::error::Kind::TooLong { tokens: length, limit: context - 1 };
        assert_eq!(refused.kind, kind);
    }
    assert!(prepare(&ask, who(), &served(length + 1), &key(1), &cache(), &Client::stays()).is_ok());
}

#[test]
fn a_far_too_long_prompt_is_refused_before_it_is_tokenised() {
    let ask = chat(json!({"messages": [{"role": "user", "content": "word ".repeat(200_000)}]}));
    let cache = cache();
    let refused = prepare(&ask, who(), &served(1024), &key(1), &cache, &Client::stays());
    let crate::error::Kind::TooLong { tokens, limit: 1023 } = refused.err().unwrap().kind else {
        panic!("not refused for its length");
    };
    let text = text(&ask);
    assert!(tokens >= 1024);
    let exact = cache.read(&tiny(), &key(1), text, |_| Ok(())).unwrap().tokens.len();
    assert!((tokens as usize) < exact, "{tokens} is the lower bound, not the {exact} counted");
}

#[test]
fn a_client_that_left_gets_no_prompt() {
    let ask = chat(json!({"messages": [{"role": "user", "content": "hi"}]}));
    let (client, waits) = Client::new();
    assert!(prepare(&ask, who(), &served(1024), &key(1), &cache(), &client).is_ok());
    drop(waits);
    let refused = prepare(&ask, who(), &served(1024), &key(1), &cache(), &client).err().unwrap();
    assert!(refused.message.contains("went away"), "{}", refused.message);
    assert!(super::tokens(&ask, &served(1024), &key(1), &cache(), &client).is_err());
}

#[test]
fn a_demanded_call_is_begun_by_the_prompt() {
    let tool = json!({"type": "function", "function": {"name": "w"}});
    let ask = |choice: Value| {
        chat(json!({
            "messages": [{"role": "user", "content": "q"}], "tools": [tool], "tool_choice": choice,
        }))
    };
    let named = ask(json!({"type": "function", "function": {"name": "w"}}));
    let begun = r#"{"name": "w", "arguments":"#;
    assert_eq!(prepared(&named).shape.opening, Opening::Call(begun.into()));
    assert!(text(&named).ends_with(&format!("<|im_start|>assistant\n<tool_call>\n{begun}")));
    assert!(text(&ask(json!("required"))).ends_with("<tool_call>\n{\"name\":"));
    assert!(!text(&ask(json!("none"))).contains("\"w\""), "the tools are not shown");
    assert!(prepared(&ask(json!("none"))).shape.tools.is_empty());
}

#[test]
fn pins_become_claims_on_whole_turns() {
    let mut ask = chat(json!({"messages": [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]}));
    let pin =
        |messages, seconds| Pin { messages, ttl: Span::secs(seconds), verdict: Verdict::Accepted };
    ask.pins = vec![pin(1, 300), pin(3, 300), pin(2, 3600), pin(1, 3600)];
    let prompt = prepared(&ask).prompt;
    let claims: Vec<(BlockClass, u32, Option<Span>)> =
        prompt.hints.claims.iter().map(|c| (c.claim.class, c.end, c.claim.ttl)).collect();
    let turns = |n: usize| {
        let parts = ["system\nbe brief", "user\na", "assistant\nb"];
        let turn = |part| format!("<|im_start|>{part}<|im_end|>\n");
        tokens(&parts[..n].iter().map(turn).collect::<String>()).len() as u32
    };
    assert_eq!(
        claims,
        vec![
            (BlockClass::System, turns(1), None),
            (BlockClass::Context, turns(2), Some(Span::secs(3600))),
            (BlockClass::Context, turns(3), Some(Span::secs(300))),
        ]
    );
}

/// A conversation that only grows, with late system messages, tools and reasoning.
fn history() -> impl Strategy<Value = Vec<Value>> {
    let text = prop::sample::select(vec!["", "hi", "  é世界", "<system-reminder>\n", "1\n2"]);
    let turn = (0..5u8, text.clone(), text).prop_map(|(kind, a, b)| match kind {
        0 => vec![json!({"role": "user", "content": a})],
        1 => vec![json!({"role": "user", "content": [{"type": "text", "text": a}]})],
        2 => vec![json!({"role": "assistant", "content": [
            {"type": "thinking", "thinking": b, "signature": "s"}, {"type": "text", "text": a},
        ]})],
        3 => vec![
            json!({"role": "assistant", "content": [
                {"type": "text", "text": a},
                {"type": "tool_use", "id": "toolu_1", "name": "w", "input": {"city": b}},
            ]}),
            json!({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": b},
            ]}),
        ],
        _ => vec![json!({"role": "system", "content": a})],
    });
    prop::collection::vec(turn, 1..8).prop_map(|turns| turns.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn a_longer_history_begins_with_the_shorter(history in history(), tools: bool) {
        let cache = cache();
        let mut before: Vec<protocol::hash::Token> = Vec::new();
        for n in 1..=history.len() {
            let mut body = json!({"system": "be brief", "messages": history[..n]});
            if tools {
                body["tools"] = json!([{"name": "w", "input_schema": {"type": "object"}}]);
            }
            let ask = messages(body);
            let text = render_messages(&ask, &served(4096), &ask.messages, false).unwrap();
            let now = cache.read(&tiny(), &key(1), text, |_| Ok(())).unwrap();
            prop_assert!(now.tokens.starts_with(&before), "turn {n}");
            before.clone_from(&now.tokens);
        }
    }

    #[test]
    fn a_known_session_gives_the_same_prompt_as_an_unknown_one(
        history in history(),
        other in history(),
        tools: bool,
    ) {
        let known = cache();
        let ask = |history: &[Value]| {
            let mut body = json!({"system": "be brief", "messages": history});
            if tools {
                body["tools"] = json!([{"name": "w", "input_schema": {"type": "object"}}]);
            }
            messages(body)
        };
        let prompt = |ask: &Ask, cache: &PrefixCache| {
            prepare(ask, who(), &served(1 << 16), &key(1), cache, &Client::stays()).unwrap().prompt
        };
        for n in 1..=history.len() {
            // The session goes on, and is tried another way from there.
            let branch = [&history[..n], other.as_slice()].concat();
            for history in [&history[..n], branch.as_slice()] {
                let ask = ask(history);
                prop_assert_eq!(prompt(&ask, &known), prompt(&ask, &cache()), "turn {}", n);
            }
        }
    }
}
