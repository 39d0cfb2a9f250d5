//! What a message is made of, as far as it decides whether a template can take it as it is.

use super::probe::Skills;
use serde_json::Value;

/// The form of a message, whatever the template, and about how long it is. Cheap to keep: histories
/// are looked at again with every turn.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    form: Form,
    /// Bytes of its content, or some where it has none.
    bytes: usize,
}

#[derive(Clone, Copy, Debug)]
enum Form {
    User,
    System,
    Tool,
    Assistant {
        reasoning: bool,
        /// Calls that have [the form](is_native) that templates know.
        calls: bool,
    },
    /// What no template should see.
    Other,
}

impl Shape {
    pub(super) fn of(message: &Value) -> Self {
        const WITHOUT: usize = 64;
        let text = message.get("content").and_then(Value::as_str);
        Self {
            form: Form::of(message).unwrap_or(Form::Other),
            bytes: text.map_or(WITHOUT, str::len),
        }
    }

    /// Whether [`rewrite`](super::fold::rewrite) would give the message, the one with this index,
    /// back as it is: most of a history are such.
    pub(super) fn is_plain(self, index: usize, skills: &Skills) -> bool {
        match self.form {
            Form::User => true,
            Form::System if index == 0 => skills.system,
            Form::System => skills.late_system,
            Form::Tool => skills.calls,
            Form::Assistant { reasoning, calls } => {
                !(reasoning && skills.thinking)
                    && (!calls || skills.calls && skills.object_arguments)
            }
            Form::Other => false,
        }
    }

    /// About how long it is rendered, in bytes.
    pub(super) fn rendered(self) -> usize {
        const AROUND: usize = 64;
        (self.bytes + AROUND) * 9 / 8
    }
}

impl Form {
    fn of(message: &Value) -> Option<Self> {
        let mut fields = message.as_object()?.iter().map(|(name, value)| (name.as_str(), value));
        let (Some(("role", Value::String(role))), Some(("content", Value::String(_)))) =
            (fields.next(), fields.next())
        else {
            return None;
        };
        let mut rest = fields.peekable();
        let form = match role.as_str() {
            "user" => Self::User,
            "system" => Self::System,
            "tool" => {
                rest.next_if(|(name, tool)| *name == "name" && tool.is_string());
                Self::Tool
            }
            "assistant" => {
                let reasoning = |(name, value): &(&str, &Value)| {
                    *name == "reasoning_content" && !value.is_null()
                };
                let reasoning = rest.next_if(reasoning).is_some();
                let calls = |(name, value): &(&str, &Value)| {
                    let calls = value.as_array().filter(|calls| !calls.is_empty());
                    *name == "tool_calls" && calls.is_some_and(|calls| calls.iter().all(is_native))
                };
                Self::Assistant { reasoning, calls: rest.next_if(calls).is_some() }
            }
            _ => return None,
        };
        rest.peek().is_none().then_some(form)
    }
}

/// Whether a call has the form of `Call::native` in [`fold`](super::fold) with an object of arguments,
/// and no id.
fn is_native(call: &Value) -> bool {
    let Some(call) = call.as_object().filter(|call| call.len() == 2) else { return false };
    let mut call = call.iter();
    let function = match (call.next(), call.next()) {
        (Some((kind, Value::String(word))), Some((name, Value::Object(function))))
            if kind == "type" && word == "function" && name == "function" =>
        {
            function
        }
        _ => return false,
    };
    let mut function = function.iter();
    matches!(
        (function.next(), function.next(), function.next()),
        (Some((name, Value::String(_))), Some((arguments, Value::Object(_))), None)
            if name == "name" && arguments == "arguments"
    )
}
