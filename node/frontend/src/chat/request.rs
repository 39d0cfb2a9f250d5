//! Chat Completions requests to the neutral request.

use crate::ask::{self, Ask, Pin, SamplingAsk, ToolChoice};
use crate::bodies::History;
use crate::content::{CacheControl, Content, last_pin};
use crate::error::ApiError;
use crate::json;
use crate::limits::{self, MESSAGES_MAX, TOOL_NAME_MAX, TOOLS_MAX, ToolNames};
use crate::nvext::NvExt;
use crate::pairs::Pairs;
use crate::text_format::{self, Described, Strict, TextFormat};
use model::Message;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Most stop strings.
const STOP_MAX: usize = 4;

#[derive(Deserialize)]
struct ChatRequest {
    model: Option<String>,
    messages: Vec<ChatMessage>,
    tools: Option<Vec<ChatTool>>,
    tool_choice: Option<Choice>,
    functions: Option<Value>,
    parallel_tool_calls: Option<bool>,
    max_tokens: Option<i64>,
    max_completion_tokens: Option<i64>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<i64>,
    min_p: Option<f64>,
    seed: Option<i64>,
    n: Option<i64>,
    stop: Option<Stop>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    response_format: Option<ResponseFormat>,
    logprobs: Option<bool>,
    cache_salt: Option<String>,
    nvext: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
struct ChatMessage {
    role: String,
    content: Option<Content>,
    refusal: Option<String>,
    tool_calls: Option<Vec<ChatCall>>,
    tool_call_id: Option<String>,
    reasoning_content: Option<String>,
    /// Another name of `reasoning_content`; some clients put other things here.
    reasoning: Option<Value>,
    cache_control: Option<CacheControl>,
}

#[derive(Deserialize)]
struct ChatCall {
    id: Option<String>,
    function: ChatFunction,
}

#[derive(Deserialize)]
struct ChatFunction {
    name: String,
    arguments: Option<Value>,
}

#[derive(Deserialize)]
struct ChatTool {
    #[serde(rename = "type")]
    kind: Option<String>,
    function: Option<FunctionDefinition>,
    cache_control: Option<CacheControl>,
}

#[derive(Deserialize)]
struct FunctionDefinition {
    name: String,
    description: Option<String>,
    parameters: Option<Value>,
    strict: Option<bool>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a word or an object with `function.name`")]
enum Choice {
    Word(String),
    Tool { function: ChosenFunction },
    Allowed { allowed_tools: AllowedTools },
}

#[derive(Deserialize)]
struct AllowedTools {
    mode: String,
    tools: Vec<AllowedTool>,
}

#[derive(Deserialize)]
struct AllowedTool {
    function: Option<ChosenFunction>,
}

#[derive(Deserialize)]
struct ChosenFunction {
    name: String,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
enum Stop {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

#[derive(Deserialize)]
struct ResponseFormat {
    #[serde(rename = "type")]
    kind: String,
    json_schema: Option<Described>,
}

/// Reads a request body.
pub(crate) fn read(body: &[u8]) -> Result<Ask, ApiError> {
    read_on(body, &mut History::default())
}

/// Reads a request body whose first messages, left out, are those of `history`.
pub(crate) fn read_on(body: &[u8], history: &mut History) -> Result<Ask, ApiError> {
    let request: ChatRequest = json::parse(body)?;
    refuse_unsupported(&request)?;
    let sampling = SamplingAsk::checked(
        request.temperature,
        request.top_p,
        request.top_k,
        request.min_p,
        request.seed,
    )?;
    let max_tokens = match request.max_completion_tokens {
        None => ask::max_tokens("max_tokens", request.max_tokens)?,
        some => ask::max_tokens("max_completion_tokens", some)?,
    };
    let stop = match request.stop {
        None => Vec::new(),
        Some(Stop::One(text)) => vec![text],
        Some(Stop::Many(texts)) => texts,
    };
    let count = history.len() + request.messages.len();
    limits::at_most("messages", "messages", count, MESSAGES_MAX)?;
    for message in request.messages {
        let at = format!("messages[{}]", history.len());
        let nth = history.messages.len();
        let (message, pin) = read_message(message, &at, nth, &mut history.pairs)?;
        history.messages.push(message);
        if let Some(control) = pin {
            history.pins.push(Pin::new(history.messages.len(), &control));
        }
        history.end_element();
    }
    let mut messages = history.messages.clone();
    history.pairs.order(&mut messages);
    let mut pins = history.pins.clone();
    let (tools, strict, tool_pin) = read_tools(request.tools.unwrap_or_default())?;
    if let Some(control) = tool_pin {
        pins.push(Pin::new(1, &control));
    }
    let mut nvext = NvExt::read(request.nvext)?;
    nvext.cache_salt = nvext.cache_salt.or(request.cache_salt);
    let (tool_choice, allowed) = read_choice(request.tool_choice, &tools)?;
    Ok(Ask {
        model: request.model.filter(|name| !name.is_empty()),
        messages,
        raw: None,
        history_only: false,
        continues: None,
        tool_choice,
        allowed,
        tools: tools.into(),
        strict,
        format: read_format(request.response_format)?,
        parallel_calls: request.parallel_tool_calls.unwrap_or(true),
        max_tokens,
        sampling,
        stop: ask::stop_strings("stop", stop, STOP_MAX)?,
        stream: request.stream.unwrap_or(false),
        include_usage: request.stream_options.and_then(|o| o.include_usage).unwrap_or(false),
        nvext,
        pins,
    })
}

/// What would silently give another answer than the one asked for.
fn refuse_unsupported(request: &ChatRequest) -> Result<(), ApiError> {
    if request.n.is_some_and(|n| n != 1) {
        return Err(ApiError::field("n", "only one choice is supported: n must be 1"));
    }
    if request.functions.as_ref().is_some_and(|functions| !functions.is_null()) {
        return Err(ApiError::field("functions", "was replaced by `tools`, which is supported"));
    }
    if request.logprobs == Some(true) {
        return Err(ApiError::field("logprobs", "log probabilities are not supported"));
    }
    Ok(())
}

fn read_format(format: Option<ResponseFormat>) -> Result<Option<TextFormat>, ApiError> {
    const AT: &str = "response_format";
    let Some(ResponseFormat { kind, json_schema }) = format else { return Ok(None) };
    text_format::read(AT, &kind, json_schema, "response_format.json_schema", false)
}

/// Reads the message with the number `nth`.
fn read_message(
    message: ChatMessage,
    at: &str,
    nth: usize,
    pairs: &mut Pairs,
) -> Result<(Message, Option<CacheControl>), ApiError> {
    let content_at = format!("{at}.content");
    let mut pin = message.cache_control;
    if let Some(Content::Blocks(blocks)) = &message.content {
        pin = last_pin(blocks).or(pin);
    }
    let text = match message.content {
        Some(content) if message.role == "tool" => Some(content.into_result(&content_at)?),
        Some(content) => Some(content.into_text(&content_at)?),
        None => None,
    };
    let role = match message.role.as_str() {
        "assistant" => {
            let reasoning = message.reasoning_content.or(match message.reasoning {
                Some(Value::String(text)) => Some(text),
                _ => None,
            });
            pairs.turn();
            let mut calls = Vec::new();
            for (i, call) in message.tool_calls.unwrap_or_default().into_iter().enumerate() {
                let ChatFunction { name, arguments } = call.function;
                pairs.call(call.id.as_deref(), &name, &format!("{at}.tool_calls[{i}].id"))?;
                calls.push(ask::tool_call(name, arguments.unwrap_or_default()));
            }
            let text = text.or(message.refusal).unwrap_or_default();
            let assistant = ask::assistant(text, reasoning.unwrap_or_default(), calls);
            return Ok((assistant, pin));
        }
        "system" | "developer" => "system",
        "user" => "user",
        // A tool may well return nothing.
        "tool" | "function" => {
            let id_at = format!("{at}.tool_call_id");
            let tool = pairs.result(message.tool_call_id.as_deref(), nth, &id_at)?;
            return Ok((ask::result(text.unwrap_or_default(), tool), pin));
        }
        other => {
            return Err(ApiError::field(
                &format!("{at}.role"),
                format_args!("`{other}` is not a role (system, developer, user, assistant, tool)"),
            ));
        }
    };
    let text = text.ok_or_else(|| ApiError::field(&content_at, "missing field"))?;
    Ok((ask::message(role, text), pin))
}

/// Tools as the prompt shows them, and those that are strict.
type Tools = (Vec<Message>, Vec<Strict>, Option<CacheControl>);

fn read_tools(tools: Vec<ChatTool>) -> Result<Tools, ApiError> {
    limits::at_most("tools", "tools", tools.len(), TOOLS_MAX)?;
    let (mut read, mut strict) = (Vec::new(), Vec::new());
    let mut names = ToolNames::new(TOOL_NAME_MAX);
    let mut pin = None;
    for (i, tool) in tools.into_iter().enumerate() {
        pin = tool.cache_control.or(pin);
        match (tool.kind.as_deref(), tool.function) {
            (_, Some(f)) => {
                names.take(&f.name, &format!("tools[{i}].function.name"))?;
                let at = format!("tools[{i}].function.parameters");
                limits::schema(&at, f.parameters.as_ref())?;
                if f.strict == Some(true) {
                    strict.push(Strict { tool: f.name.clone(), at });
                }
                read.push(ask::tool(f.name, f.description, f.parameters));
            }
            (None | Some("function"), None) => {
                return Err(ApiError::field(&format!("tools[{i}].function"), "missing field"));
            }
            (Some("custom"), None) => {
                let why = "free-text tools exist in /v1/responses: declare a function here";
                return Err(ApiError::field(&format!("tools[{i}].type"), why));
            }
            // Tools that the provider's own servers run: there are none here.
            (Some(_), None) => {}
        }
    }
    Ok((read, strict, pin))
}

/// The choice, and the tools that alone may be called.
type Chosen = (ToolChoice, Option<Vec<String>>);

fn read_choice(choice: Option<Choice>, tools: &[Message]) -> Result<Chosen, ApiError> {
    let mut allowed = None;
    let choice = match choice {
        None => ToolChoice::Auto,
        Some(Choice::Allowed { allowed_tools: AllowedTools { mode, tools: named } }) => {
            const AT: &str = "tool_choice.allowed_tools";
            let names = named.into_iter().map(|tool| tool.function.map(|f| f.name)).collect();
            allowed = Some(ask::allowed(&format!("{AT}.tools"), names, tools)?);
            ToolChoice::of_allowed(&mode, &format!("{AT}.mode"))?
        }
        Some(Choice::Tool { function }) => ToolChoice::Named(function.name),
        Some(Choice::Word(word)) => match word.as_str() {
            "auto" => ToolChoice::Auto,
            "none" => ToolChoice::None,
            "required" => ToolChoice::Required,
            other => {
                return Err(ApiError::field(
                    "tool_choice",
                    format_args!("`{other}` is not a choice (auto, none, required, or a function)"),
                ));
            }
        },
    };
    Ok((choice.checked("tool_choice", tools)?, allowed))
}
