//! What a template cannot say is said in its own words, and the prefix property holds.

use super::{SMOLLM2, render, template, tiny};
use crate::template::probe::{Ids, Skills};
use proptest::prelude::*;
use serde_json::{Value, json};

/// The turns of Llama 3, without its own tools: no tool role, no calls.
const LLAMA3: &str = "{{ bos_token }}{% for m in messages %}\
    {{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' + m['content'] | trim + '<|eot_id|>' }}\
    {% endfor %}{% if add_generation_prompt %}\
    {{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}";

/// A template that takes a system message at the beginning only, drops tool calls and refuses the
/// tool role, as many do.
const STRICT: &str = "{% for m in messages %}{% if m.role == 'system' and not loop.first %}\
    {{ raise_exception('System message must be first') }}{% endif %}{% if m.role == 'tool' %}\
    {{ raise_exception('Unknown role') }}{% endif %}[{{ m.role }}]{{ m.content }}[/]{% endfor %}";

/// A template that hoists: all system messages come first.
const HOISTING: &str = "{% for m in messages if m.role == 'system' %}[system]{{ m.content }}[/]\
    {% endfor %}{% for m in messages if m.role != 'system' %}[{{ m.role }}]{{ m.content }}[/]\
    {% endfor %}";

/// Calls with their arguments as a text that is put in as it is (DeepSeek's way).
const TEXT_ARGUMENTS: &str = "{% for m in messages %}[{{ m.role }}]{{ m.content }}\
    {% for c in m.tool_calls %}<{{ c.function.name + ' ' + c.function.arguments }}>{% endfor %}[/]\
    {% endfor %}";

fn tool() -> Value {
    json!({"type": "function", "function": {"name": "read", "description": "Reads ü \"x\"",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}})
}

fn call(content: Value, arguments: Value) -> Value {
    let function = json!({"name": "read", "arguments": arguments});
    json!({"role": "assistant", "content": content, "tool_calls": [
        {"id": "call_1", "type": "function", "function": function},
    ]})
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

#[test]
fn skills_are_found() {
    let all = Skills {
        tools: true,
        calls: true,
        object_arguments: true,
        null_content: true,
        system: true,
        late_system: true,
        ..Skills::default()
    };
    assert_eq!(tiny().skills, all);
    let smollm2 = Skills { system: true, late_system: true, ..Skills::default() };
    assert_eq!(template(SMOLLM2).skills, smollm2);
    assert_eq!(template(LLAMA3).skills, smollm2);
    assert_eq!(template(STRICT).skills, Skills { system: true, ..Skills::default() });
    assert_eq!(template(HOISTING).skills, Skills { system: true, ..Skills::default() });
    let text = template(TEXT_ARGUMENTS).skills;
    assert_eq!((text.calls, text.object_arguments, text.null_content), (true, false, false));
}

#[test]
fn tools_go_into_the_system_turn() {
    let template = template(SMOLLM2);
    let text = render(&template, &[user("Hi")], &[tool()]).unwrap();
    let line = r#"{"type": "function", "function": {"name": "read", "description": "Reads ü \"x\"", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}}"#;
    assert!(text.starts_with("<|im_start|>system\n# Tools\n"), "{text}");
    assert!(text.contains(&format!("<tools>\n{line}\n</tools>")), "{text}");
    assert!(text.ends_with("</tool_call><|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"), "{text}");
    let system = json!({"role": "system", "content": "Be brief."});
    let text = render(&template, &[system, user("Hi")], &[tool()]).unwrap();
    assert!(text.starts_with("<|im_start|>system\nBe brief.\n\n# Tools\n"), "{text}");
    assert_eq!(text.matches("<|im_start|>system").count(), 1);
    // Without tools the template's own default stays.
    let text = render(&template, &[user("Hi")], &[]).unwrap();
    assert!(text.starts_with("<|im_start|>system\nYou are a helpful AI assistant named SmolLM"));
}

#[test]
fn calls_and_results_become_text() {
    let result = json!({"role": "tool", "tool_call_id": "call_1", "content": "42"});
    let history = [user("Hi"), call(json!("Let me see."), json!("{\"path\":\"ü\"}")), result];
    let text = render(&template(SMOLLM2), &history, &[]).unwrap();
    let expected = "<|im_start|>assistant\nLet me see.\n\
        <tool_call>{\"name\": \"read\", \"arguments\": {\"path\": \"ü\"}}</tool_call><|im_end|>\n\
        <|im_start|>user\n<tool_response>42</tool_response><|im_end|>\n";
    assert!(text.ends_with(expected), "{text}");
    assert!(!text.contains("call_1"));
}

#[test]
fn text_and_object_arguments_are_the_same() {
    for template in [tiny(), template(SMOLLM2), template(TEXT_ARGUMENTS)] {
        let one = [user("Hi"), call(Value::Null, json!({"path": "a", "n": 1}))];
        let other = [user("Hi"), call(json!(""), json!(r#"{"path":"a","n":1}"#))];
        let (one, other) = (render(&template, &one, &[]), render(&template, &other, &[]));
        assert_eq!(one, other);
        assert!(one.unwrap().contains(r#"{"path": "a", "n": 1}"#));
        // A model's broken call is shown to it as it wrote it.
        let broken = [user("Hi"), call(Value::Null, json!("{\"path\": "))];
        assert!(render(&template, &broken, &[]).is_ok());
        let none = [user("Hi"), call(Value::Null, Value::Null)];
        assert!(render(&template, &none, &[]).unwrap().contains("{}"));
    }
}

#[test]
fn late_system_messages_stay_in_place() {
    let system = |text: &str| json!({"role": "system", "content": text});
    let history = [system("first"), user("a"), system("late"), user("b")];
    let native = render(&tiny(), &history, &[]).unwrap();
    assert!(native.contains("a<|im_end|>\n<|im_start|>system\nlate<|im_end|>"), "{native}");
    for source in [STRICT, HOISTING] {
        let text = render(&template(source), &history, &[]).unwrap();
        assert_eq!(text, "[system]first[/][user]a[/][user]<system>late</system>[/][user]b[/]");
    }
    // OpenAI's newer name for it.
    let developer = json!({"role": "developer", "content": "first"});
    let text = render(&template(STRICT), &[developer], &[]).unwrap();
    assert_eq!(text, "[system]first[/]");
}

/// Any message of an agent's history.
fn message() -> impl Strategy<Value = Value> {
    let text = "(|a|two words|ü🙂|<b>&|\\{\\{ x \\}\\}|\\n \\n)";
    let arguments = prop_oneof![
        Just(json!({"path": "x", "n": [1, 2.5, null]})),
        Just(json!("{\"path\":\"x\"}")),
        Just(json!("not json")),
        Just(Value::Null),
    ];
    let role = prop::sample::select(vec!["user", "assistant", "system", "tool", "developer"]);
    prop_oneof![
        3 => (role, text).prop_map(|(role, text)| json!({"role": role, "content": text})),
        1 => (text, arguments.clone()).prop_map(|(text, arguments)| call(json!(text), arguments)),
        1 => arguments.prop_map(|arguments| call(Value::Null, arguments)),
        1 => text.prop_map(|text| json!({"role": "user", "content": [
            {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}, {"text": "."},
        ]})),
    ]
}

proptest! {
    #[test]
    fn histories_grow_at_the_end(
        messages in prop::collection::vec(message(), 1..8),
        tools in 0usize..3,
        which in 0usize..6,
    ) {
        let sources = [SMOLLM2, LLAMA3, STRICT, HOISTING, TEXT_ARGUMENTS];
        let template = sources.get(which).map_or_else(tiny, |source| template(source));
        let tools = vec![tool(); tools];
        let mut before = String::new();
        for n in 1..=messages.len() {
            let text = render(&template, &messages[..n], &tools).unwrap();
            prop_assert!(text.starts_with(&before), "{:?}\n{:?}", before, text);
            prop_assert!(text.len() > before.len());
            before = text;
        }
    }
}

/// Kimi's way: the id stands for the name.
const NAMED_IDS: &str = "{% for m in messages %}[{{ m.role }}]{% if m.role == 'tool' %}\
    for {{ m.tool_call_id }}: {% endif %}{{ m.content }}{% for c in m.tool_calls %}\
    <{{ c.id }} {{ c.function.arguments | tojson }}>{% endfor %}[/]{% endfor %}";

/// Mistral's way: no call without an id of at least nine letters.
const LONG_IDS: &str = "{% for m in messages %}[{{ m.role }}]{{ m.content }}\
    {% if m.role == 'tool' %} for {{ m.tool_call_id[-9:] }}{% endif %}{% for c in m.tool_calls %}\
    {% if c.id is not defined or c.id | length < 9 %}{{ raise_exception('id') }}{% endif %}\
    <{{ c.function.name }} {{ c.function.arguments | tojson }} {{ c.id[-9:] }}>{% endfor %}[/]\
    {% endfor %}";

/// The way of gpt-oss: one call in a message, and either content or thinking before it.
const ONE_CALL: &str = "{% for m in messages %}{% if m.tool_calls %}\
    {% if m.content and m.thinking %}{{ raise_exception('both') }}{% endif %}\
    (think {{ m.thinking or m.content }}){% set c = m.tool_calls[0].function %}\
    <{{ c.name }} {{ c.arguments | tojson }}>{% else %}[{{ m.role }}]{{ m.content }}[/]{% endif %}\
    {% endfor %}";

/// Two calls in one message, and their results in the other order.
fn two_calls() -> Vec<Value> {
    let call = |id: &str, path: &str| {
        let arguments = json!({"path": path}).to_string();
        json!({"id": id, "type": "function", "function": {"name": "read", "arguments": arguments}})
    };
    let result =
        |id: &str, text: &str| json!({"role": "tool", "tool_call_id": id, "content": text});
    vec![
        user("Hi"),
        json!({"role": "assistant", "content": "Look.", "reasoning_content": "Hm.",
            "tool_calls": [call("x", "a"), call("y", "b")]}),
        result("y", "B"),
        result("x", "A"),
    ]
}

#[test]
fn ids_are_given_where_a_template_needs_them() {
    let named = template(NAMED_IDS);
    assert_eq!((named.skills.calls, named.skills.ids), (true, Ids::Named));
    let text = render(&named, &two_calls(), &[]).unwrap();
    let calls = r#"<functions.read:0 {"path": "a"}><functions.read:1 {"path": "b"}>"#;
    assert!(text.contains(calls), "{text}");
    assert!(text.ends_with("for functions.read:1: B[/][tool]for functions.read:0: A[/]"), "{text}");
    let long = template(LONG_IDS);
    assert_eq!((long.skills.calls, long.skills.ids), (true, Ids::Nine));
    let text = render(&long, &two_calls(), &[]).unwrap();
    assert!(
        text.contains(r#"<read {"path": "a"} 000000000><read {"path": "b"} 000000001>"#),
        "{text}"
    );
    assert!(text.ends_with("B for 000000001[/][tool]A for 000000000[/]"), "{text}");
    // Without the client's ids results come in the order of their calls.
    let mut bare = two_calls();
    for message in &mut bare {
        message.as_object_mut().unwrap().remove("tool_call_id");
        for call in message["tool_calls"].as_array_mut().into_iter().flatten() {
            call.as_object_mut().unwrap().remove("id");
        }
    }
    let text = render(&long, &bare, &[]).unwrap();
    assert!(text.ends_with("B for 000000000[/][tool]A for 000000001[/]"), "{text}");
}

#[test]
fn a_template_of_one_call_gets_one_call_at_a_time() {
    let template = template(ONE_CALL);
    let skills = template.skills;
    assert!(skills.calls && skills.one_call && skills.thinking && skills.thinking_alone);
    let text = render(&template, &two_calls(), &[]).unwrap();
    let (first, second) = (r#"<read {"path": "a"}>"#, r#"<read {"path": "b"}>"#);
    assert!(text.contains(&format!("(think Hm.\n\nLook.){first}")), "{text}");
    assert!(text.ends_with(&format!("{first}[tool]A[/](think ){second}[tool]B[/]")), "{text}");
}

#[test]
fn what_is_lent_to_the_template_is_what_rewriting_would_give() {
    use crate::template::fold::rewrite;
    use crate::template::shape::Shape;
    let function = json!({"name": "read", "arguments": {"a": [1, {"b": null}]}});
    let messages = [
        user("a"),
        json!({"role": "user", "content": "a", "name": "n"}),
        json!({"role": "user", "content": [{"type": "text", "text": "a"}]}),
        json!({"content": "a", "role": "user"}),
        json!({"role": "user"}),
        json!({"role": "system", "content": "s"}),
        json!({"role": "developer", "content": "s"}),
        json!({"role": "tool", "content": "t"}),
        json!({"role": "tool", "content": "t", "tool_call_id": "c"}),
        json!({"role": "assistant", "content": "a"}),
        json!({"role": "assistant", "content": null}),
        json!({"role": "assistant", "content": "a", "reasoning_content": "r"}),
        json!({"role": "assistant", "content": "a", "reasoning_content": null}),
        json!({"role": "assistant", "content": "a", "refusal": "r"}),
        json!({"role": "assistant", "content": "", "tool_calls": []}),
        json!({"role": "assistant", "content": "", "reasoning_content": "r",
               "tool_calls": [{"type": "function", "function": function}]}),
        json!({"role": "assistant", "content": "", "tool_calls": [{"function": function}]}),
        json!({"role": "assistant", "content": "", "tool_calls": [{"name": "a", "arguments": {}}]}),
        json!({"role": "assistant", "content": "",
               "tool_calls": [{"type": "function", "function": {"name": "a", "arguments": "{}"}}]}),
        json!({"role": "assistant", "content": "", "tool_calls": "none"}),
        call("".into(), json!({"a": 1})),
        json!("no object"),
    ];
    let mut lent = 0;
    for bits in 0..64u8 {
        let skills = Skills {
            calls: bits & 1 > 0,
            object_arguments: bits & 2 > 0,
            null_content: bits & 4 > 0,
            system: bits & 8 > 0,
            late_system: bits & 16 > 0,
            thinking: bits & 32 > 0,
            ..Skills::default()
        };
        for message in &messages {
            for index in 0..2 {
                if Shape::of(message).is_plain(index, &skills) {
                    lent += 1;
                    let rewritten = rewrite(message, index, &skills).unwrap();
                    assert_eq!(rewritten.to_string(), message.to_string(), "{skills:?}");
                }
            }
        }
    }
    assert!(lent > 200, "{lent}");
}
