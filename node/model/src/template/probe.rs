//! What a template can say by itself: found by rendering small conversations with words in them
//! that occur nowhere else.

use super::ChatTemplate;
use serde_json::{Value, json};

/// What a template renders by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Skills {
    /// Tool definitions.
    pub(super) tools: bool,
    /// An assistant's tool calls and their results.
    pub(super) calls: bool,
    /// … with the arguments as an object (else as a JSON text).
    pub(super) object_arguments: bool,
    /// … with `null` for an absent content (else as an empty text).
    pub(super) null_content: bool,
    /// A system message at the beginning.
    pub(super) system: bool,
    /// A system message at any other place, in its place.
    pub(super) late_system: bool,
}

const TOOL: &str = "probe_tool_qzx";
const ARGUMENT: &str = "probe_argument_qzx";
const RESULT: &str = "probe_result_qzx";
const FIRST: &str = "probe_first_qzx";
const SECOND: &str = "probe_second_qzx";
const SYSTEM: &str = "probe_system_qzx";

/// Finds out. Templates that fail on a probe do not have that skill.
pub(super) fn skills(template: &ChatTemplate) -> Skills {
    let mut skills = Skills {
        tools: tools(template),
        system: system(template),
        late_system: late_system(template),
        ..Skills::default()
    };
    // The plainest form first: what transformers documents, an object and no content.
    for (object_arguments, null_content) in
        [(true, true), (true, false), (false, true), (false, false)]
    {
        if calls(template, object_arguments, null_content) {
            skills = Skills { calls: true, object_arguments, null_content, ..skills };
            break;
        }
    }
    skills
}

fn tools(template: &ChatTemplate) -> bool {
    let tool = json!({"type": "function", "function": {
        "name": TOOL,
        "description": "d",
        "parameters": {"type": "object", "properties": {ARGUMENT: {"type": "string"}}},
    }});
    let user = json!({"role": "user", "content": FIRST});
    let system = json!({"role": "system", "content": SYSTEM});
    let shows = |messages: &[Value], needed: &[&str]| {
        let text = template.render_raw(messages, std::slice::from_ref(&tool), true);
        text.is_ok_and(|text| needed.iter().all(|word| text.contains(word)))
    };
    // With a system message both must come out; a template that knows none may still know tools.
    shows(std::slice::from_ref(&user), &[TOOL, ARGUMENT])
        && (shows(&[system.clone(), user.clone()], &[SYSTEM, TOOL, ARGUMENT])
            || template.render_raw(&[system, user], &[], true).is_err())
}

fn calls(template: &ChatTemplate, object_arguments: bool, null_content: bool) -> bool {
    let arguments = json!({"a": ARGUMENT});
    let arguments = if object_arguments { arguments } else { arguments.to_string().into() };
    let content = if null_content { Value::Null } else { "".into() };
    let function = json!({"name": TOOL, "arguments": arguments});
    let messages = [
        json!({"role": "user", "content": FIRST}),
        json!({"role": "assistant", "content": content, "tool_calls": [
            {"id": "qzxqzxqzx", "type": "function", "function": function},
        ]}),
        json!({"role": "tool", "tool_call_id": "qzxqzxqzx", "name": TOOL, "content": RESULT}),
        json!({"role": "assistant", "content": SECOND}),
    ];
    let Ok(text) = template.render_raw(&messages, &[], false) else {
        return false;
    };
    let python_none = null_content && (text.contains("None") || text.contains("null"));
    // An object printed as Python prints it is no JSON: `{'a': …}`.
    let python_object = text.contains(&format!("'{ARGUMENT}'")) || text.contains("\\\"a\\\"");
    in_order(&text, &[FIRST, TOOL, RESULT, SECOND])
        && in_order(&text, &[FIRST, ARGUMENT, RESULT])
        && !python_none
        && !python_object
}

fn system(template: &ChatTemplate) -> bool {
    let messages =
        [json!({"role": "system", "content": SYSTEM}), json!({"role": "user", "content": FIRST})];
    template.render_raw(&messages, &[], true).is_ok_and(|text| text.contains(SYSTEM))
}

fn late_system(template: &ChatTemplate) -> bool {
    let messages = [
        json!({"role": "user", "content": FIRST}),
        json!({"role": "assistant", "content": SECOND}),
        json!({"role": "system", "content": SYSTEM}),
        json!({"role": "user", "content": RESULT}),
    ];
    let text = template.render_raw(&messages, &[], true);
    text.is_ok_and(|text| in_order(&text, &[FIRST, SECOND, SYSTEM, RESULT]))
}

/// Whether the words occur, each after the one before.
fn in_order(text: &str, words: &[&str]) -> bool {
    let mut rest = text;
    words.iter().all(|word| {
        let after = rest.split_once(word).map(|(_, after)| after);
        rest = after.unwrap_or_default();
        after.is_some()
    })
}
