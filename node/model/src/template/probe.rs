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
    /// … with ids of this kind.
    pub(super) ids: Ids,
    /// … of which it shows only the first in each message.
    pub(super) one_call: bool,
    /// … with the reasoning before them in `thinking` (else in `reasoning_content`, if anywhere).
    pub(super) thinking: bool,
    /// … which allows no content beside it.
    pub(super) thinking_alone: bool,
    /// … with `null` for an absent content (else as an empty text).
    pub(super) null_content: bool,
    /// A system message at the beginning.
    pub(super) system: bool,
    /// A system message at any other place, in its place.
    pub(super) late_system: bool,
}

/// The ids that calls have in a template.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Ids {
    /// They are not shown, or not needed.
    #[default]
    None,
    /// Nine letters or digits (Mistral).
    Nine,
    /// The function's name and a number, in place of the name (Kimi K2).
    Named,
}

impl Ids {
    /// The id of the call that `count` calls of the history precede.
    pub(super) fn nth(self, count: usize, name: &str) -> String {
        match self {
            Self::None => String::new(),
            Self::Nine => format!("{count:09}"),
            Self::Named => format!("functions.{name}:{count}"),
        }
    }
}

const TOOL: &str = "probe_tool_qzx";
const ARGUMENT: &str = "probe_argument_qzx";
const REASON: &str = "probe_reason_qzx";
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
    // The plainest form first: what transformers documents, an object and no content; no ids.
    let forms = [(true, true), (true, false), (false, true), (false, false)];
    let with_ids = [Ids::None, Ids::Nine, Ids::Named].map(|ids| forms.map(|form| (ids, form)));
    let found = with_ids.into_iter().flatten().find(|(ids, form)| calls(template, *ids, *form));
    if let Some((ids, (object_arguments, null_content))) = found {
        skills = Skills { calls: true, ids, object_arguments, null_content, ..skills };
        skills.one_call = one_call(template, &skills);
        skills.thinking = thinking(template, &skills, "thinking", "").unwrap_or(false)
            && !thinking(template, &skills, "reasoning_content", "").unwrap_or(false);
        skills.thinking_alone =
            skills.thinking && thinking(template, &skills, "thinking", SECOND).is_none();
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

fn call(ids: Ids, object_arguments: bool, count: usize, argument: &str) -> Value {
    let arguments = json!({"a": argument});
    let arguments = if object_arguments { arguments } else { arguments.to_string().into() };
    let mut call = json!({"type": "function", "function": {"name": TOOL, "arguments": arguments}});
    if let (Some(fields), false) = (call.as_object_mut(), ids == Ids::None) {
        fields.insert("id".into(), ids.nth(count, TOOL).into());
    }
    call
}

fn result(ids: Ids) -> Value {
    let mut result = json!({"role": "tool", "name": TOOL, "content": RESULT});
    if let (Some(fields), false) = (result.as_object_mut(), ids == Ids::None) {
        fields.insert("tool_call_id".into(), ids.nth(0, TOOL).into());
    }
    result
}

/// Whether only the first of two calls in one message comes out.
fn one_call(template: &ChatTemplate, skills: &Skills) -> bool {
    let Skills { ids, object_arguments, .. } = *skills;
    let calls = [ARGUMENT, REASON].into_iter().enumerate();
    let calls: Vec<Value> = calls.map(|(n, text)| call(ids, object_arguments, n, text)).collect();
    let messages = [
        json!({"role": "user", "content": FIRST}),
        json!({"role": "assistant", "content": "", "tool_calls": calls}),
    ];
    let text = template.render_raw(&messages, &[], false);
    text.is_ok_and(|text| text.contains(ARGUMENT) && !text.contains(REASON))
}

/// Whether reasoning in the field `key` comes out before a call; `None` when the template fails.
fn thinking(template: &ChatTemplate, skills: &Skills, key: &str, content: &str) -> Option<bool> {
    let call = call(skills.ids, skills.object_arguments, 0, ARGUMENT);
    let messages = [
        json!({"role": "user", "content": FIRST}),
        json!({"role": "assistant", "content": content, key: REASON, "tool_calls": [call]}),
        result(skills.ids),
    ];
    let text = template.render_raw(&messages, &[], true).ok()?;
    Some(in_order(&text, &[REASON, ARGUMENT]))
}

fn calls(template: &ChatTemplate, ids: Ids, form: (bool, bool)) -> bool {
    let (object_arguments, null_content) = form;
    let content = if null_content { Value::Null } else { "".into() };
    let call = call(ids, object_arguments, 0, ARGUMENT);
    let messages = [
        json!({"role": "user", "content": FIRST}),
        json!({"role": "assistant", "content": content, "tool_calls": [call]}),
        result(ids),
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
