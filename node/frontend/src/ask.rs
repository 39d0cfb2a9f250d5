//! The neutral request in which all dialects meet.

use crate::content::CacheControl;
use crate::error::ApiError;
use crate::limits::{self, TOOLS_MAX};
use crate::nvext::NvExt;
use crate::nvext::outcome::Verdict;
use crate::text_format::{Strict, TextFormat};
use model::Message;
use protocol::hash::Token;
use protocol::time::Span;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A request without a dialect.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Ask {
    /// As the client wrote it; `None` when absent or empty.
    pub(crate) model: Option<String>,
    /// History in the shape chat templates read: `role`, `content`, `tool_calls`,
    /// `reasoning_content`. Without ids, which must not reach the prompt.
    pub(crate) messages: Vec<Message>,
    /// A prompt without a template, instead of messages and tools (Completions only).
    pub(crate) raw: Option<Raw>,
    /// The prompt ends with the history, without the head of an answer.
    pub(crate) history_only: bool,
    /// The answer goes on from the last message, which is the assistant's: the path of its text.
    pub(crate) continues: Option<String>,
    /// Tools in the shape chat templates read.
    pub(crate) tools: Arc<[Message]>,
    pub(crate) tool_choice: ToolChoice,
    /// The only tools that may be called, where not all of them; the prompt shows all the same.
    pub(crate) allowed: Option<Vec<String>>,
    /// The tools whose arguments must be exactly of their schema when a call is demanded.
    pub(crate) strict: Vec<Strict>,
    /// The form that the answer's text must have.
    pub(crate) format: Option<TextFormat>,
    /// Whether one answer may hold several calls.
    pub(crate) parallel_calls: bool,
    /// Upper bound of new tokens.
    pub(crate) max_tokens: Option<u32>,
    pub(crate) sampling: SamplingAsk,
    /// Texts that end the answer; none is empty.
    pub(crate) stop: Vec<String>,
    pub(crate) stream: bool,
    /// A stream ends with a chunk of usage (Chat Completions and Completions only).
    pub(crate) include_usage: bool,
    pub(crate) nvext: NvExt,
    pub(crate) pins: Vec<Pin>,
}

impl Ask {
    /// Whether the model may call this tool.
    pub(crate) fn allows(&self, tool: &str) -> bool {
        self.allowed.as_ref().is_none_or(|allowed| allowed.iter().any(|name| name == tool))
    }
}

/// A prompt that is used as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Raw {
    /// To be tokenised, with what the tokenizer puts around every text.
    Text(String),
    Tokens(Vec<Token>),
}

impl Raw {
    /// Its tokens; `add_special` adds what the tokenizer puts around every text.
    pub(crate) fn tokens(&self, tokenizer: &model::Tokenizer, add_special: bool) -> Vec<Token> {
        match self {
            Self::Text(text) => tokenizer.encode(text, add_special),
            Self::Tokens(tokens) => tokens.clone(),
        }
    }
}

/// Whether and how tools are called.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum ToolChoice {
    /// As the model likes.
    #[default]
    Auto,
    /// No calls: the tools are not shown.
    None,
    /// At least one call.
    Required,
    /// This one.
    Named(String),
}

impl ToolChoice {
    /// How the tools that alone may be called are called; `at` is the path of the mode.
    pub(crate) fn of_allowed(mode: &str, at: &str) -> Result<Self, ApiError> {
        match mode {
            "auto" => Ok(Self::Auto),
            "required" => Ok(Self::Required),
            other => {
                Err(ApiError::field(at, format_args!("`{other}` is not a mode (auto, required)")))
            }
        }
    }

    /// A demanded tool must be there.
    pub(crate) fn checked(self, at: &str, tools: &[Message]) -> Result<Self, ApiError> {
        let known = |name: &str| tools.iter().any(|tool| tool["function"]["name"] == name);
        match &self {
            Self::Required if tools.is_empty() => {
                Err(ApiError::field(at, "a call is demanded, but no tools are given"))
            }
            Self::Named(name) if !known(name) => {
                Err(ApiError::field(at, format_args!("no tool is named `{name}`")))
            }
            _ => Ok(self),
        }
    }
}

/// Checks the tools that alone may be called; `at` is the path of their list.
pub(crate) fn allowed(
    at: &str,
    names: Vec<Option<String>>,
    tools: &[Message],
) -> Result<Vec<String>, ApiError> {
    limits::at_most(at, "tools", names.len(), TOOLS_MAX)?;
    let known: BTreeSet<&str> =
        tools.iter().filter_map(|tool| tool["function"]["name"].as_str()).collect();
    // Those without a name are tools of the provider's own servers: there are none here.
    let mut allowed: Vec<String> = Vec::new();
    for (i, name) in names.into_iter().enumerate() {
        match name {
            Some(name) if !known.contains(name.as_str()) => {
                let why = format_args!("no tool is named `{name}`").to_string();
                return Err(ApiError::field(&format!("{at}[{i}]"), why));
            }
            name => allowed.extend(name),
        }
    }
    match allowed.is_empty() {
        true => Err(ApiError::field(at, "at least one function is required")),
        false => Ok(allowed),
    }
}

/// What the client said about choosing tokens; the rest comes from the model.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct SamplingAsk {
    pub(crate) temperature: Option<f32>,
    pub(crate) top_p: Option<f32>,
    pub(crate) top_k: Option<u32>,
    pub(crate) min_p: Option<f32>,
    pub(crate) seed: Option<u64>,
}

/// A wish to keep the prompt through the first `messages` messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pin {
    pub(crate) messages: usize,
    pub(crate) ttl: Span,
    /// What became of the time that was asked for.
    pub(crate) verdict: Verdict,
}

impl Pin {
    pub(crate) fn new(messages: usize, control: &CacheControl) -> Self {
        let (ttl, verdict) = control.ttl();
        Self { messages, ttl, verdict }
    }
}

/// Most stop strings of one request; Chat Completions allows fewer.
pub(crate) const STOP_MAX: usize = 64;
/// Longest stop string in bytes.
pub(crate) const STOP_BYTES_MAX: usize = 1024;

impl SamplingAsk {
    /// Checks ranges. Fields are named alike in all dialects.
    pub(crate) fn checked(
        temperature: Option<f64>,
        top_p: Option<f64>,
        top_k: Option<i64>,
        min_p: Option<f64>,
        seed: Option<i64>,
    ) -> Result<Self, ApiError> {
        let within = |name: &str, value: Option<f64>, max: f64| match value {
            Some(x) if !(0.0..=max).contains(&x) => {
                Err(ApiError::field(name, format_args!("must be between 0 and {max}, got {x}")))
            }
            other => Ok(other.map(|x| x as f32)),
        };
        let top_k = match top_k {
            Some(k) if k < -1 => {
                return Err(ApiError::field("top_k", format_args!("must be at least -1, got {k}")));
            }
            other => other.map(|k| u32::try_from(k.max(0)).unwrap_or(u32::MAX)),
        };
        Ok(Self {
            temperature: within("temperature", temperature, 2.0)?,
            top_p: within("top_p", top_p, 1.0)?,
            top_k,
            min_p: within("min_p", min_p, 1.0)?,
            seed: seed.map(|s| s as u64),
        })
    }
}

/// An upper bound of new tokens; it must be positive, and is only a bound.
pub(crate) fn max_tokens(name: &str, value: Option<i64>) -> Result<Option<u32>, ApiError> {
    match value {
        None => Ok(None),
        Some(n) if n <= 0 => {
            Err(ApiError::field(name, format_args!("must be at least 1, got {n}")))
        }
        Some(n) => Ok(Some(u32::try_from(n).unwrap_or(u32::MAX))),
    }
}

/// Checks stop strings; empty ones say nothing and are dropped.
pub(crate) fn stop_strings(
    name: &str,
    stop: Vec<String>,
    most: usize,
) -> Result<Vec<String>, ApiError> {
    if stop.len() > most {
        return Err(ApiError::field(
            name,
            format_args!("at most {most} stop strings are allowed, got {}", stop.len()),
        ));
    }
    if stop.iter().any(|s| s.len() > STOP_BYTES_MAX) {
        return Err(ApiError::field(
            name,
            format_args!("a stop string may have at most {STOP_BYTES_MAX} bytes"),
        ));
    }
    Ok(stop.into_iter().filter(|s| !s.is_empty()).collect())
}

/// A plain message.
pub(crate) fn message(role: &str, content: String) -> Message {
    json!({ "role": role, "content": content }).into()
}

/// What a tool gave back, under the name of the tool where its call is known.
pub(crate) fn result(content: String, tool: Option<&str>) -> Message {
    match tool {
        None => message("tool", content),
        Some(tool) => json!({ "role": "tool", "content": content, "name": tool }).into(),
    }
}

/// An assistant message; what is empty is left out, so that all ways to say "nothing" are one.
pub(crate) fn assistant(content: String, reasoning: String, calls: Vec<Value>) -> Message {
    let mut message = Map::new();
    message.insert("role".into(), "assistant".into());
    message.insert("content".into(), content.into());
    if !reasoning.is_empty() {
        message.insert("reasoning_content".into(), reasoning.into());
    }
    if !calls.is_empty() {
        message.insert("tool_calls".into(), Value::Array(calls));
    }
    Value::Object(message).into()
}

/// A call in an assistant message. Arguments that are JSON text of an object are read, so that
/// the template writes them as it writes its own.
pub(crate) fn tool_call(name: String, arguments: Value) -> Value {
    let arguments = match arguments {
        Value::Null => json!({}),
        Value::String(text) if text.trim().is_empty() => json!({}),
        Value::String(text) => match serde_json::from_str::<Value>(&text) {
            Ok(value @ Value::Object(_)) => value,
            _ => Value::String(text),
        },
        other => other,
    };
    json!({ "type": "function", "function": { "name": name, "arguments": arguments } })
}

/// A tool definition: equal tools of all dialects give equal prompts.
pub(crate) fn tool(
    name: String,
    description: Option<String>,
    parameters: Option<Value>,
) -> Message {
    let mut function = Map::new();
    function.insert("name".into(), name.into());
    if let Some(description) = description {
        function.insert("description".into(), description.into());
    }
    let parameters = match parameters {
        Some(value @ Value::Object(_)) => value,
        _ => json!({ "type": "object", "properties": {} }),
    };
    function.insert("parameters".into(), parameters);
    json!({ "type": "function", "function": function }).into()
}
