//! A history in the shape that a template can take: ids that it prints or demands, and one call
//! per message where it shows no more.
//!
//! Ids are counted, not the client's: equal histories must give equal prompts. They depend only on
//! what came before, which keeps the prefix property.

use super::probe::{Ids, Skills};
use serde_json::{Value, json};
use std::borrow::{Borrow, Cow};
use std::collections::{BTreeMap, VecDeque};

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

/// The calls of one message that wait for a result.
#[derive(Default)]
struct Open {
    waits: Vec<bool>,
    /// No call before this one waits.
    next: usize,
    /// By the client's id, written as JSON, and by the name of the tool: calls in their order.
    by_id: BTreeMap<String, VecDeque<usize>>,
    by_name: BTreeMap<String, VecDeque<usize>>,
}

impl Open {
    fn new(calls: &[Value]) -> Self {
        let mut open = Self { waits: vec![true; calls.len()], ..Self::default() };
        for (nth, call) in calls.iter().enumerate() {
            if let Some(id) = call.get("id") {
                open.by_id.entry(id.to_string()).or_default().push_back(nth);
            }
            open.by_name.entry(name(call).to_owned()).or_default().push_back(nth);
        }
        open
    }

    /// The first call that waits and has the id of a result, if that has one.
    fn of_id(&mut self, result: &Value) -> Option<usize> {
        let calls = self.by_id.get_mut(&result.get("tool_call_id")?.to_string())?;
        take(calls, &mut self.waits)
    }

    /// The first call that waits: of the tool that a result names, if one of that waits.
    fn first(&mut self, result: &Value) -> Option<usize> {
        let name = result.get("name").and_then(Value::as_str);
        let named = name.and_then(|name| take(self.by_name.get_mut(name)?, &mut self.waits));
        named.or_else(|| {
            while self.waits.get(self.next) == Some(&false) {
                self.next += 1;
            }
            let waits = self.waits.get_mut(self.next)?;
            *waits = false;
            Some(self.next)
        })
    }
}

/// The first of `calls` that waits, which it does no longer.
fn take(calls: &mut VecDeque<usize>, waits: &mut [bool]) -> Option<usize> {
    loop {
        let nth = calls.pop_front()?;
        if let Some(waits) = waits.get_mut(nth).filter(|waits| **waits) {
            *waits = false;
            return Some(nth);
        }
    }
}

/// The name of the tool that is called.
fn name(call: &Value) -> &str {
    let function = call.get("function").and_then(|function| function.get("name"));
    function.or(call.get("name")).and_then(Value::as_str).unwrap_or_default()
}

/// Splits messages with several calls; each call is followed by its result.
fn one_call_each(messages: Vec<Placed<'_>>) -> Vec<Placed<'_>> {
    let mut out = Vec::with_capacity(messages.len());
    let mut rest = messages.into_iter().peekable();
    while let Some((index, message)) = rest.next() {
        let calls = calls(&message);
        if calls.len() < 2 {
            out.push((index, message));
            continue;
        }
        let mut results = Vec::new();
        while let Some(result) = rest.next_if(|(_, next)| is_result(next)) {
            results.push(result);
        }
        let mut open = Open::new(calls);
        let mut of: Vec<Option<usize>> =
            results.iter().map(|(_, result)| open.of_id(result)).collect();
        for (of, (_, result)) in of.iter_mut().zip(&results) {
            if result.get("tool_call_id").is_none() {
                *of = open.first(result);
            }
        }
        let mut answers: Vec<Option<Placed<'_>>> = calls.iter().map(|_| None).collect();
        let mut others = Vec::new();
        for (of, result) in of.into_iter().zip(results) {
            match of.and_then(|nth| answers.get_mut(nth)) {
                Some(answer) => *answer = Some(result),
                None => others.push(result),
            }
        }
        for (nth, (call, answer)) in calls.iter().zip(answers).enumerate() {
            let mut single = if nth == 0 {
                message.as_ref().clone()
            } else {
                json!({"role": "assistant", "content": ""})
            };
            if let Some(fields) = single.as_object_mut() {
                fields.insert("tool_calls".into(), json!([call]));
            }
            out.push((index, Cow::Owned(single)));
            out.extend(answer);
        }
        out.append(&mut others);
    }
    out
}

/// Gives every call an id of the template's kind, and every result the id of its call.
fn numbered(messages: Vec<Placed<'_>>, ids: Ids) -> Vec<Placed<'_>> {
    let mut count = 0usize;
    // The last calls, and the ids that they were given.
    let mut open = Open::default();
    let mut given: Vec<Value> = Vec::new();
    let mut out = Vec::with_capacity(messages.len());
    for (index, mut message) in messages {
        if is_result(&message) {
            let nth = open.of_id(&message).or_else(|| open.first(&message));
            if let Some(id) = nth.and_then(|nth| given.get(nth))
                && let Some(fields) = message.to_mut().as_object_mut()
            {
                fields.insert("tool_call_id".into(), id.clone());
            }
        } else if !calls(&message).is_empty() {
            open = Open::new(calls(&message));
            given.clear();
            let calls = message.to_mut().get_mut("tool_calls").and_then(Value::as_array_mut);
            for call in calls.into_iter().flatten() {
                let id = Value::String(ids.nth(count, name(call)));
                if let Some(call) = call.as_object_mut() {
                    call.insert("id".into(), id.clone());
                    count += 1;
                }
                given.push(id);
            }
        }
        out.push((index, message));
    }
    out
}

#[cfg(test)]
mod tests;
