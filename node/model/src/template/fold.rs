//! Messages in the shape and words that a template understands.
//!
//! Each message is rewritten by itself (the first also receives the tools), whatever follows it:
//! this keeps the prefix property. [`history`] has given it its shape before.

use super::probe::Skills;
use super::shape::Shape;
use super::{AsMessage, RenderRequest, TemplateError, history, json};
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// Marks around a tool call in an answer, where the template has none of its own (as in Hermes
/// and Qwen): between them one object `{"name": …, "arguments": {…}}`.
pub const TOOL_CALL: (&str, &str) = ("<tool_call>", "</tool_call>");
/// Marks around a tool's result in a user turn, where the template has no turn for it.
pub const TOOL_RESPONSE: (&str, &str) = ("<tool_response>", "</tool_response>");
/// Marks around a system message in a user turn, where the template has no place for it.
const SYSTEM: (&str, &str) = ("<system>", "</system>");

/// A message to give to the template, and its place in the history that was given.
pub(super) type Folded<'a> = history::Placed<'a>;

/// The messages to give to the template; those that it understands as they are, are lent.
pub(super) fn messages<'a, M: AsMessage>(
    request: &RenderRequest<'a, M>,
    skills: &Skills,
) -> Result<Vec<Folded<'a>>, TemplateError> {
    let rewrite = |(index, message): Folded<'a>| {
        let shape = match (&message, request.messages.get(index)) {
            (Cow::Borrowed(_), Some(given)) => given.shape(),
            (message, _) => Shape::of(message),
        };
        if shape.is_plain(index, skills) {
            return Ok((index, message));
        }
        let rewritten = rewrite(&message, index, skills).map(|json| (index, Cow::Owned(json)));
        rewritten.map_err(|problem| TemplateError::Message { index, problem })
    };
    let shaped = history::shaped(request.messages, skills);
    let mut messages: Vec<Folded<'a>> =
        shaped.into_iter().map(rewrite).collect::<Result<_, _>>()?;
    if !skills.tools && !request.tools.is_empty() {
        add_tools(&mut messages, request.tools, skills);
    }
    Ok(messages)
}

pub(super) fn rewrite(message: &Value, index: usize, skills: &Skills) -> Result<Value, String> {
    let message = message.as_object().ok_or("is not an object")?;
    let role = message.get("role").and_then(Value::as_str).ok_or("`role` is not a string")?;
    let content = content(message)?;
    let text = content.as_deref().unwrap_or_default();
    match role {
        "system" | "developer" => Ok(system(text, index, skills)),
        "tool" if !skills.calls => Ok(turn("user", &wrap(TOOL_RESPONSE, text))),
        "assistant" => assistant(message, content, skills),
        _ => {
            let mut out = turn(role, text);
            for name in ["name", "tool_call_id"] {
                copy(message, &mut out, name);
            }
            Ok(out)
        }
    }
}

fn turn(role: &str, text: &str) -> Value {
    json!({"role": role, "content": text})
}

fn wrap((open, close): (&str, &str), text: &str) -> String {
    format!("{open}{text}{close}")
}

fn copy(from: &Map<String, Value>, to: &mut Value, name: &str) {
    if let (Some(value), Some(to)) = (from.get(name).filter(|v| !v.is_null()), to.as_object_mut()) {
        to.insert(name.to_owned(), value.clone());
    }
}

/// Text, or the texts of text parts joined; `None` when absent.
fn content(message: &Map<String, Value>) -> Result<Option<String>, String> {
    match message.get("content") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(Value::Array(parts)) => {
            let text = |part: &Value| match part {
                Value::String(text) => Some(text.clone()),
                part => part.get("text").and_then(Value::as_str).map(str::to_owned),
            };
            let texts = parts.iter().map(text).collect::<Option<Vec<_>>>();
            let texts =
                texts.ok_or("`content` has a part without text; only text is understood")?;
            Ok(Some(texts.concat()))
        }
        Some(_) => Err("`content` is neither a string nor a list of text parts".into()),
    }
}

/// A system message stays where it is, also in the middle: moving it to the top would change all
/// that was rendered before.
fn system(text: &str, index: usize, skills: &Skills) -> Value {
    let known = if index == 0 { skills.system } else { skills.late_system };
    if known { turn("system", text) } else { turn("user", &wrap(SYSTEM, text)) }
}

fn assistant(
    message: &Map<String, Value>,
    content: Option<String>,
    skills: &Skills,
) -> Result<Value, String> {
    let calls = match message.get("tool_calls") {
        None | Some(Value::Null) => &[],
        Some(Value::Array(calls)) => calls.as_slice(),
        Some(_) => return Err("`tool_calls` is not a list".into()),
    };
    let mut out = turn("assistant", content.as_deref().unwrap_or_default());
    copy(message, &mut out, "reasoning_content");
    if skills.thinking
        && let (Some(fields), Some(text)) =
            (out.as_object_mut(), message.get("reasoning_content").filter(|text| text.is_string()))
    {
        fields.insert("thinking".into(), text.clone());
    }
    if calls.is_empty() {
        return Ok(out);
    }
    let calls = calls.iter().map(|call| Call::read(call, skills)).collect::<Result<Vec<_>, _>>()?;
    if skills.calls {
        if let Some(fields) = out.as_object_mut() {
            if content.is_none() && skills.null_content {
                fields.insert("content".into(), Value::Null);
            }
            fields.insert("tool_calls".into(), calls.iter().map(Call::native).collect());
            if skills.thinking_alone {
                joined_thinking(fields);
            }
        }
        return Ok(out);
    }
    let texts: Vec<String> = calls.iter().map(Call::text).collect();
    let said = content.filter(|text| !text.is_empty());
    let text: Vec<String> = said.into_iter().chain(texts).collect();
    copy_content(&mut out, text.join("\n"));
    Ok(out)
}

/// Puts what is said before a call behind the thinking, for templates that take only one of them.
fn joined_thinking(message: &mut Map<String, Value>) {
    let text = |name: &str| message.get(name).and_then(Value::as_str).unwrap_or_default();
    let (thinking, content) = (text("thinking"), text("content"));
    if !thinking.is_empty() && !content.is_empty() {
        let joined = format!("{thinking}\n\n{content}");
        message.insert("thinking".into(), joined.into());
        message.insert("content".into(), "".into());
    }
}

fn copy_content(message: &mut Value, text: String) {
    if let Some(fields) = message.as_object_mut() {
        fields.insert("content".into(), text.into());
    }
}

/// One tool call: its id, if any, name and arguments.
struct Call {
    id: Option<Value>,
    name: String,
    arguments: Value,
}

impl Call {
    /// OpenAI's clients send arguments as a JSON text, transformers documents an object: both are
    /// read, and given on in the form that the template renders well.
    fn read(call: &Value, skills: &Skills) -> Result<Self, String> {
        let function = call.get("function").unwrap_or(call);
        let name = function.get("name").and_then(Value::as_str);
        let name = name.ok_or("a tool call has no `function.name`")?.to_owned();
        let arguments = match function.get("arguments") {
            None | Some(Value::Null) => json!({}),
            Some(Value::String(text)) if text.trim().is_empty() => json!({}),
            Some(Value::String(text)) => match serde_json::from_str::<Value>(text) {
                Ok(parsed @ Value::Object(_)) => parsed,
                // The model wrote it so; the text is shown to it again as it is.
                _ => Value::String(text.clone()),
            },
            Some(other) => other.clone(),
        };
        let arguments = match arguments {
            object @ Value::Object(_) if skills.calls && !skills.object_arguments => {
                Value::String(json::dumps_json(&object))
            }
            other => other,
        };
        Ok(Self { id: call.get("id").filter(|id| id.is_string()).cloned(), name, arguments })
    }

    fn native(&self) -> Value {
        let function = json!({"name": self.name, "arguments": self.arguments});
        let mut call = json!({"type": "function", "function": function});
        if let (Some(id), Some(fields)) = (&self.id, call.as_object_mut()) {
            fields.insert("id".into(), id.clone());
        }
        call
    }

    fn text(&self) -> String {
        let call = json!({"name": self.name, "arguments": self.arguments});
        wrap(TOOL_CALL, &json::dumps_json(&call))
    }
}

/// Puts the tools into the system turn, which is made if there is none.
fn add_tools<M: AsMessage>(messages: &mut Vec<Folded<'_>>, tools: &[M], skills: &Skills) {
    let text = instructions(tools);
    let system =
        |(_, message): &&mut Folded<'_>| message.get("role").is_some_and(|role| role == "system");
    match messages.first_mut().filter(system) {
        Some((_, first)) => {
            let before = first.get("content").and_then(Value::as_str).unwrap_or_default();
            let text = if before.is_empty() { text } else { format!("{before}\n\n{text}") };
            copy_content(first.to_mut(), text);
        }
        None => messages.insert(0, (0, Cow::Owned(self::system(&text, 0, skills)))),
    }
}

fn instructions<M: AsMessage>(tools: &[M]) -> String {
    let mut text = String::from(
        "# Tools\n\nYou may call functions to help with the user's query. \
         These are their definitions:\n<tools>\n",
    );
    for tool in tools {
        let written = json::dumps_plainly(&tool.value()).ok();
        let plain = || tool.borrow().to_string();
        text.push_str(written.as_ref().and_then(|text| text.as_str()).unwrap_or(&plain()));
        text.push('\n');
    }
    let (open, close) = TOOL_CALL;
    text.push_str("</tools>\n\nTo call a function, answer with one line for each call:\n");
    text.push_str(open);
    text.push_str(r#"{"name": <function name>, "arguments": <arguments as a JSON object>}"#);
    text.push_str(close);
    text
}
