//! A history in the shape that a template can take: ids that it prints or demands, and one call
//! per message where it shows no more.
//!
//! Ids are counted, not the client's: equal histories must give equal prompts. They depend only on
//! what came before, which keeps the prefix property.

use super::probe::{Ids, Skills};
use serde_json::{Value, json};
use std::borrow::{Borrow, Cow};
use std::collections::VecDeque;

/// A message and its place in the history that was given.
pub(super) type Placed<'a> = (usize, Cow<'a, Value>);

/// The messages, reshaped as far as the template needs it.
pub(super) fn shaped<'a, M: Borrow<Value>>(messages: &'a [M], skills: &Skills) -> Vec<Placed<'a>> {
    let placed = messages.iter().map(|one| Cow::Borrowed(one.borrow())).enumerate().collect();
    if !skills.calls {
        return placed;
    }
    let placed = if skills.one_call { one_call_each(placed) } else { placed };
    if skills.ids == Ids::None { placed } else { numbered(placed, skills.ids) }
}

fn calls(message: &Value) -> &[Value] {
    message.get("tool_calls").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn is_result(message: &Value) -> bool {
    message.get("role").is_some_and(|role| role == "tool")
}

/// Splits messages with several calls; each call is followed by its result.
fn one_call_each(messages: Vec<Placed<'_>>) -> Vec<Placed<'_>> {
    let mut out = Vec::with_capacity(messages.len());
    let mut rest = VecDeque::from(messages);
    while let Some((index, message)) = rest.pop_front() {
        let calls = calls(&message);
        if calls.len() < 2 {
            out.push((index, message));
            continue;
        }
        for (nth, call) in calls.iter().enumerate() {
            let mut single = if nth == 0 {
                message.as_ref().clone()
            } else {
                json!({"role": "assistant", "content": ""})
            };
            if let Some(fields) = single.as_object_mut() {
                fields.insert("tool_calls".into(), json!([call]));
            }
            out.push((index, Cow::Owned(single)));
            let results = rest.iter().take_while(|(_, next)| is_result(next));
            let ids = results.map(|(_, result)| result.get("tool_call_id"));
            let same = |id: Option<&Value>| id.is_some() && id == call.get("id");
            let found = ids.enumerate().find(|(_, id)| same(*id)).map(|(at, _)| at);
            // Without an id the next result is the one.
            let first = rest.front().filter(|(_, next)| is_result(next));
            let first = first.filter(|(_, next)| next.get("tool_call_id").is_none()).map(|_| 0);
            if let Some(at) = found.or(first) {
                out.extend(rest.remove(at));
            }
        }
    }
    out
}

/// Gives every call an id of the template's kind, and every result the id of its call.
fn numbered(messages: Vec<Placed<'_>>, ids: Ids) -> Vec<Placed<'_>> {
    let mut count = 0usize;
    // Calls without a result: the client's id, and ours.
    let mut open: VecDeque<(Option<Value>, Value)> = VecDeque::new();
    let mut give = |(index, message): Placed<'_>| {
        if is_result(&message) {
            let theirs = message.get("tool_call_id");
            let at = open.iter().position(|(id, _)| id.is_some() && id.as_ref() == theirs);
            let Some((_, id)) = open.remove(at.unwrap_or(0)) else {
                return (index, Cow::Owned(message.into_owned()));
            };
            let mut message = message.into_owned();
            if let Some(fields) = message.as_object_mut() {
                fields.insert("tool_call_id".into(), id);
            }
            return (index, Cow::Owned(message));
        }
        if calls(&message).is_empty() {
            return (index, Cow::Owned(message.into_owned()));
        }
        open.clear();
        let mut message = message.into_owned();
        let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
        for call in calls.into_iter().flatten().filter_map(Value::as_object_mut) {
            let function = call.get("function").and_then(|function| function.get("name"));
            let name = function.or(call.get("name")).and_then(Value::as_str).unwrap_or_default();
            let id = Value::String(ids.nth(count, name));
            count += 1;
            open.push_back((call.insert("id".into(), id.clone()), id));
        }
        (index, Cow::Owned(message))
    };
    messages.into_iter().map(&mut give).collect()
}
