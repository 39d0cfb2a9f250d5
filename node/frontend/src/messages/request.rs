//! Messages requests to the neutral request.

use crate::ask::{self, Ask, Pin, SamplingAsk, ToolChoice};
use crate::bodies;
use crate::content::{Block, CacheControl, Content, last_pin};
use crate::error::ApiError;
use crate::json;
use crate::limits::{self, MESSAGES_MAX, TOOL_NAME_MAX_MESSAGES, TOOLS_MAX, ToolNames};
use crate::nvext::NvExt;
use crate::pairs::Pairs;
use crate::prefill;
use crate::text_format::{self, Described, Strict};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::mem;

#[derive(Deserialize)]
struct MessagesRequest {
    model: Option<String>,
    messages: Vec<Message>,
    system: Option<Content>,
    tools: Option<Vec<Tool>>,
    tool_choice: Option<Choice>,
    output_config: Option<OutputConfig>,
    /// The beta's name of `output_config.format`.
    output_format: Option<OutputFormat>,
    max_tokens: Option<i64>,
    stop_sequences: Option<Vec<String>>,
    stream: Option<bool>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<i64>,
    min_p: Option<f64>,
    seed: Option<i64>,
    cache_control: Option<CacheControl>,
    nvext: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
struct OutputConfig {
    format: Option<OutputFormat>,
}

#[derive(Deserialize)]
struct OutputFormat {
    #[serde(rename = "type")]
    kind: String,
    #[serde(flatten)]
    described: Described,
}

#[derive(Deserialize)]
struct Message {
    role: String,
    content: Content,
}

#[derive(Deserialize)]
struct Tool {
    #[serde(rename = "type")]
    kind: Option<String>,
    name: Option<String>,
    description: Option<String>,
    input_schema: Option<Value>,
    strict: Option<bool>,
    cache_control: Option<CacheControl>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(rename = "type")]
    kind: String,
    name: Option<String>,
    disable_parallel_tool_use: Option<bool>,
}

/// How the block begins that Claude Code puts first into its system prompt. It differs from
/// session to session and would keep them from sharing any prefix.
const BILLING: &str = "x-anthropic-billing-header:";

/// Reads a request body; `max_tokens` and `stream` mean nothing to `count_tokens`.
pub(crate) fn read(body: &[u8]) -> Result<Ask, ApiError> {
    read_on(body, &mut bodies::History::default())
}

/// As [`read`], of a body whose first messages, left out, are those of `known`.
pub(crate) fn read_on(body: &[u8], known: &mut bodies::History) -> Result<Ask, ApiError> {
    let request: MessagesRequest = json::parse(body)?;
    let sampling = SamplingAsk::checked(
        request.temperature,
        request.top_p,
        request.top_k,
        request.min_p,
        request.seed,
    )?;
    let mut history = History::default();
    if let Some(system) = request.system {
        history.system(system)?;
    }
    let count = known.len() + request.messages.len();
    if count == 0 {
        return Err(ApiError::field("messages", "at least one message is required"));
    }
    limits::at_most("messages", "messages", count, MESSAGES_MAX)?;
    for message in request.messages {
        known.message(message)?;
    }
    history.append(known);
    let tools = history.tools(request.tools.unwrap_or_default())?;
    if let Some(control) = &request.cache_control {
        history.pins.push(Pin::new(history.messages.len(), control));
    }
    let format = request.output_config.and_then(|config| config.format);
    let format = format.map(|format| ("output_config.format", format));
    let format = match format.or(request.output_format.map(|format| ("output_format", format))) {
        None => None,
        Some((at, OutputFormat { kind, described })) => {
            text_format::read(at, &kind, Some(described), at, true)?
        }
    };
    let continues = prefill::at(&history.messages, count - 1);
    let (tool_choice, parallel_calls) = read_choice(request.tool_choice, &tools)?;
    Ok(Ask {
        model: request.model.filter(|name| !name.is_empty()),
        messages: history.messages,
        raw: None,
        history_only: false,
        continues,
        allowed: None,
        tools: tools.into(),
        strict: history.strict,
        format,
        tool_choice,
        parallel_calls,
        max_tokens: ask::max_tokens("max_tokens", request.max_tokens)?,
        sampling,
        stop: ask::stop_strings(
            "stop_sequences",
            request.stop_sequences.unwrap_or_default(),
            ask::STOP_MAX,
        )?,
        stream: request.stream.unwrap_or(false),
        include_usage: false,
        nvext: NvExt::read(request.nvext)?,
        pins: history.pins,
    })
}

fn read_choice(
    choice: Option<Choice>,
    tools: &[model::Message],
) -> Result<(ToolChoice, bool), ApiError> {
    let Some(choice) = choice else {
        return Ok((ToolChoice::Auto, true));
    };
    let parallel = !choice.disable_parallel_tool_use.unwrap_or(false);
    let read = match (choice.kind.as_str(), choice.name) {
        ("auto", _) => ToolChoice::Auto,
        ("none", _) => ToolChoice::None,
        ("any", _) => ToolChoice::Required,
        ("tool", Some(name)) => ToolChoice::Named(name),
        ("tool", None) => return Err(ApiError::field("tool_choice.name", "missing field")),
        (other, _) => {
            return Err(ApiError::field(
                "tool_choice.type",
                format_args!("`{other}` is not a choice (auto, any, tool, none)"),
            ));
        }
    };
    Ok((read.checked("tool_choice", tools)?, parallel))
}

/// The neutral history as it grows.
#[derive(Default)]
struct History {
    messages: Vec<model::Message>,
    pairs: Pairs,
    pins: Vec<Pin>,
    strict: Vec<Strict>,
}

impl bodies::History {
    fn message(&mut self, message: Message) -> Result<(), ApiError> {
        let at = format!("messages[{}]", self.len());
        let (messages, pins) = (mem::take(&mut self.messages), mem::take(&mut self.pins));
        let pairs = mem::take(&mut self.pairs);
        let mut history = History { messages, pairs, pins, strict: Vec::new() };
        history.message(message, &at)?;
        (self.messages, self.pins) = (history.messages, history.pins);
        self.pairs = history.pairs;
        self.end_element();
        Ok(())
    }
}

impl History {
    fn system(&mut self, system: Content) -> Result<(), ApiError> {
        let mut blocks = system.into_blocks();
        for block in &mut blocks {
            if let Some(text) = &mut block.text {
                strip_billing(text);
            }
        }
        // A block that held nothing but the header is gone with it.
        blocks.retain(|b| b.kind != "text" || b.text.as_deref() != Some(""));
        let pin = last_pin(&blocks);
        let text = Content::Blocks(blocks).into_text("system")?;
        if !text.is_empty() {
            self.messages.push(ask::message("system", text));
            self.pin(pin);
        }
        Ok(())
    }

    /// Adds the messages of the body behind what is there.
    fn append(&mut self, body: &bodies::History) {
        let before = self.messages.len();
        self.messages.extend(body.messages.iter().cloned());
        body.pairs.order(self.messages.get_mut(before..).unwrap_or_default());
        let later = |pin: &Pin| Pin { messages: before + pin.messages, ..pin.clone() };
        self.pins.extend(body.pins.iter().map(later));
    }

    /// The tools; a pin on one reaches through the first message, which holds them.
    fn tools(&mut self, tools: Vec<Tool>) -> Result<Vec<model::Message>, ApiError> {
        limits::at_most("tools", "tools", tools.len(), TOOLS_MAX)?;
        let mut read = Vec::new();
        let mut names = ToolNames::new(TOOL_NAME_MAX_MESSAGES);
        for (i, tool) in tools.into_iter().enumerate() {
            if let Some(control) = &tool.cache_control {
                self.pins.push(Pin::new(1, control));
            }
            match (tool.name, tool.input_schema) {
                (Some(name), Some(schema)) => {
                    names.take(&name, &format!("tools[{i}].name"))?;
                    let at = format!("tools[{i}].input_schema");
                    limits::schema(&at, Some(&schema))?;
                    if tool.strict == Some(true) {
                        self.strict.push(Strict { tool: name.clone(), at });
                    }
                    read.push(ask::tool(name, tool.description, Some(schema)));
                }
                // Tools that the provider's own servers run: there are none here.
                (Some(_), None) => {}
                (None, None) if tool.kind.is_some_and(|kind| kind != "custom") => {}
                (None, _) => {
                    return Err(ApiError::field(&format!("tools[{i}].name"), "missing field"));
                }
            }
        }
        Ok(read)
    }

    fn pin(&mut self, control: Option<CacheControl>) {
        if let Some(control) = control {
            self.pins.push(Pin::new(self.messages.len(), &control));
        }
    }

    fn message(&mut self, message: Message, at: &str) -> Result<(), ApiError> {
        let content_at = format!("{at}.content");
        let blocks = message.content.into_blocks();
        match message.role.as_str() {
            "user" => self.user(blocks, &content_at),
            "assistant" => self.assistant(blocks, &content_at),
            "system" | "developer" => {
                let pin = last_pin(&blocks);
                let text = Content::Blocks(blocks).into_text(&content_at)?;
                self.messages.push(ask::message("system", text));
                self.pin(pin);
                Ok(())
            }
            other => Err(ApiError::field(
                &format!("{at}.role"),
                format_args!("`{other}` is not a role (user, assistant, system)"),
            )),
        }
    }

    /// Results of tools are turns of their own, at their place between the texts.
    fn user(&mut self, blocks: Vec<Block>, at: &str) -> Result<(), ApiError> {
        let mut text: Option<String> = None;
        let empty = blocks.is_empty();
        for (i, mut block) in blocks.into_iter().enumerate() {
            let at = format!("{at}[{i}]");
            let pin = block.cache_control.take();
            if block.kind == "tool_result" {
                if let Some(text) = text.take() {
                    self.messages.push(ask::message("user", text));
                }
                let result = match block.content {
                    Some(content) => content.into_result(&format!("{at}.content"))?,
                    None => String::new(),
                };
                let (id, nth) = (block.tool_use_id.as_deref(), self.messages.len());
                let tool = self.pairs.result(id, nth, &format!("{at}.tool_use_id"))?;
                self.messages.push(ask::result(result, tool));
                self.pin(pin);
            } else {
                text.get_or_insert_default().push_str(&block.into_text(&at)?);
                if let Some(control) = pin {
                    // The text's message is pushed later: count it now.
                    let messages = self.messages.len() + 1;
                    self.pins.push(Pin::new(messages, &control));
                }
            }
        }
        if let Some(text) = text.or(empty.then(String::new)) {
            self.messages.push(ask::message("user", text));
        }
        Ok(())
    }

    fn assistant(&mut self, blocks: Vec<Block>, at: &str) -> Result<(), ApiError> {
        let (mut text, mut reasoning) = (String::new(), String::new());
        let mut calls = Vec::new();
        let pin = last_pin(&blocks);
        self.pairs.turn();
        for (i, block) in blocks.into_iter().enumerate() {
            let at = format!("{at}[{i}]");
            match block.kind.as_str() {
                "thinking" => reasoning.push_str(&block.thinking.unwrap_or_default()),
                // Nothing here can read it.
                "redacted_thinking" => {}
                // What tools of the provider's own servers did: there are none here.
                "server_tool_use" | "mcp_tool_use" => {}
                kind if kind.ends_with("_tool_result") => {}
                "tool_use" => {
                    let name = block
                        .name
                        .ok_or_else(|| ApiError::field(&format!("{at}.name"), "missing field"))?;
                    self.pairs.call(block.id.as_deref(), &name, &format!("{at}.id"))?;
                    calls.push(ask::tool_call(name, block.input.unwrap_or_default()));
                }
                _ => text.push_str(&block.into_text(&at)?),
            }
        }
        self.messages.push(ask::assistant(text, reasoning, calls));
        self.pin(pin);
        Ok(())
    }
}

/// Takes a leading billing line away.
fn strip_billing(text: &mut String) {
    if text.trim_start().starts_with(BILLING) {
        let rest = text.trim_start().split_once('\n').map(|(_, rest)| rest.to_owned());
        *text = rest.unwrap_or_default();
    }
}
