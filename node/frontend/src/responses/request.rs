//! Responses requests to the neutral request.

use super::Echo;
use super::history::History;
use super::record::{Draft, Recalled, said, unknown_previous};
use super::tools::{ToolTable, repeated};
use crate::ask::{self, Ask, Pin, SamplingAsk, ToolChoice};
use crate::error::ApiError;
use crate::json;
use crate::limits::{self, MESSAGES_MAX};
use crate::nvext::NvExt;
use crate::seal::Seal;
use crate::text_format::{self, Described};
use crate::weight::weight;
use model::Message;
use serde::Deserialize;
use serde_json::{Map, Value, json};

#[derive(Deserialize)]
struct ResponsesRequest {
    model: Option<String>,
    input: Option<Value>,
    instructions: Option<String>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    max_output_tokens: Option<i64>,
    max_tool_calls: Option<i64>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<i64>,
    min_p: Option<f64>,
    seed: Option<i64>,
    presence_penalty: Option<f64>,
    frequency_penalty: Option<f64>,
    top_logprobs: Option<i64>,
    stream: Option<bool>,
    text: Option<Text>,
    reasoning: Option<Map<String, Value>>,
    include: Option<Vec<String>>,
    store: Option<bool>,
    previous_response_id: Option<String>,
    conversation: Option<Value>,
    prompt: Option<Value>,
    background: Option<bool>,
    truncation: Option<String>,
    metadata: Option<Map<String, Value>>,
    prompt_cache_key: Option<String>,
    safety_identifier: Option<String>,
    cache_salt: Option<String>,
    nvext: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
struct Text {
    format: Option<Value>,
    verbosity: Option<String>,
}

#[derive(Deserialize)]
struct Format {
    #[serde(rename = "type")]
    kind: String,
    #[serde(flatten)]
    described: Described,
}

/// Reads a request body; `recalled` is what was found of the responses that it names.
pub(crate) fn read(
    body: &[u8],
    seal: &Seal,
    mut recalled: Recalled,
) -> Result<(Ask, Echo), ApiError> {
    let mut request: ResponsesRequest = json::parse(body)?;
    if let Some(Value::Array(items)) = &request.input {
        limits::at_most("input", "items", items.len(), MESSAGES_MAX)?;
    }
    refuse_unsupported(&request)?;
    let sampling = SamplingAsk::checked(
        request.temperature,
        request.top_p,
        request.top_k,
        request.min_p,
        request.seed,
    )?;
    let max_tokens = ask::max_tokens("max_output_tokens", request.max_output_tokens)?;
    let (mut table, shown, tool_pin) =
        ToolTable::read(request.tools.as_deref().unwrap_or_default())?;
    let mut history = History::new(seal, &table);
    if let Some(instructions) = request.instructions.clone().filter(|text| !text.is_empty()) {
        history.say("system", instructions);
    }
    let previous = match (&request.previous_response_id, recalled.previous.take()) {
        (Some(_), Some((record, items))) => {
            history.items("previous_response_id", items)?;
            Some(record)
        }
        (Some(id), None) => return Err(unknown_previous(id)),
        (None, _) => None,
    };
    let input = match request.input.take() {
        Some(Value::String(text)) => vec![said(&text)],
        Some(Value::Array(items)) if !items.is_empty() => recalled.resolve(items)?,
        Some(Value::Array(_)) => {
            return Err(ApiError::field("input", "at least one item is required"));
        }
        Some(_) => return Err(ApiError::field("input", "expected a string or a list of items")),
        None => return Err(ApiError::field("input", "missing field")),
    };
    let keep = request.store.unwrap_or(true).then(|| Draft { previous, input: input.clone() });
    history.items("input", input)?;
    let (messages, mut pins) = history.end();
    if let Some(control) = tool_pin {
        pins.push(Pin::new(1, &control));
    }
    let (tool_choice, allowed) = read_choice(request.tool_choice.as_ref(), &table, &shown)?;
    let format = match request.text.as_ref().and_then(|text| text.format.clone()) {
        None | Some(Value::Null) => None,
        Some(format) => {
            const AT: &str = "text.format";
            let Format { kind, described } = json::typed(AT, format)?;
            text_format::read(AT, &kind, Some(described), AT, false)?
        }
    };
    let mut nvext = NvExt::read(request.nvext.clone())?;
    nvext.cache_salt = nvext.cache_salt.or_else(|| request.cache_salt.clone());
    let ask = Ask {
        model: request.model.clone().filter(|name| !name.is_empty()),
        messages,
        tools: shown.into(),
        tool_choice,
        allowed,
        strict: table.take_strict(),
        format,
        parallel_calls: request.parallel_tool_calls.unwrap_or(true),
        max_tokens,
        sampling,
        stream: request.stream.unwrap_or(false),
        nvext,
        pins,
        ..Ask::default()
    };
    let wanted = |what: &str| request.include.iter().flatten().any(|name| name == what);
    let seal = wanted("reasoning.encrypted_content").then(|| seal.clone());
    let echo = Echo { fields: fields(request), seal, keep, unkept: None, tools: table };
    let shown = ask.messages.iter().chain(&*ask.tools);
    let shown = shown.map(|message| weight(message)).sum();
    Ok((ask, echo.bounded(shown)))
}

/// What would silently give another answer than the one asked for.
fn refuse_unsupported(request: &ResponsesRequest) -> Result<(), ApiError> {
    let refuse = |at: &str, why: &str| Err(ApiError::field(at, why));
    if request.conversation.as_ref().is_some_and(|value| !value.is_null()) {
        return refuse(
            "conversation",
            "conversations are not kept here: use `previous_response_id`",
        );
    }
    if request.prompt.as_ref().is_some_and(|value| !value.is_null()) {
        return refuse("prompt", "stored prompts are not supported");
    }
    let long = |(name, value): (&String, &Value)| {
        name.chars().count() > 64 || value.as_str().is_some_and(|text| text.chars().count() > 512)
    };
    if request.metadata.as_ref().is_some_and(|data| data.len() > 16 || data.iter().any(long)) {
        let most = "at most 16 entries, names of 64 and values of 512 characters";
        return refuse("metadata", most);
    }
    if request.background == Some(true) {
        return refuse("background", "background responses are not supported");
    }
    if request.top_logprobs.is_some_and(|n| n != 0) {
        return refuse("top_logprobs", "log probabilities are not supported");
    }
    Ok(())
}

fn read_choice(
    choice: Option<&Value>,
    table: &ToolTable,
    shown: &[Message],
) -> Result<(ToolChoice, Option<Vec<String>>), ApiError> {
    let mut allowed = None;
    let word = |word: &str, at: &str| match word {
        "auto" => Ok(ToolChoice::Auto),
        "none" => Ok(ToolChoice::None),
        "required" => Ok(ToolChoice::Required),
        other => Err(ApiError::field(
            at,
            format_args!("`{other}` is not a choice (auto, none, required, or a tool)"),
        )),
    };
    let choice = match choice {
        None | Some(Value::Null) => ToolChoice::Auto,
        Some(Value::String(text)) => word(text, "tool_choice")?,
        Some(Value::Object(object)) => {
            let text = |key: &str| object.get(key).and_then(Value::as_str);
            match text("type") {
                Some("function" | "custom") => {
                    let name = text("name")
                        .ok_or_else(|| ApiError::field("tool_choice.name", "missing field"))?;
                    ToolChoice::Named(table.shown(text("namespace"), name))
                }
                Some("allowed_tools") => {
                    const AT: &str = "tool_choice.tools";
                    let tools = object.get("tools").and_then(Value::as_array);
                    let tools = tools.ok_or_else(|| ApiError::field(AT, "expected a list"))?;
                    let name = |tool: &Value| {
                        let runs_here = ["function", "custom"].iter().any(|k| tool["type"] == *k);
                        let name = tool["name"].as_str().filter(|_| runs_here)?;
                        Some(table.shown(tool["namespace"].as_str(), name))
                    };
                    let names = tools.iter().map(name).collect();
                    allowed = Some(ask::allowed(AT, names, shown)?);
                    ToolChoice::of_allowed(text("mode").unwrap_or("auto"), "tool_choice.mode")?
                }
                Some(other) => {
                    return Err(ApiError::field(
                        "tool_choice.type",
                        format_args!("tools of type `{other}` do not run here"),
                    ));
                }
                None => return Err(ApiError::field("tool_choice.type", "missing field")),
            }
        }
        Some(_) => return Err(ApiError::field("tool_choice", "expected a word or an object")),
    };
    Ok((choice.checked("tool_choice", shown)?, allowed))
}

/// A format as the response object repeats it: what the specification demands is filled in.
fn repeated_format(mut format: Value) -> Value {
    if format["type"] == "json_schema"
        && let Some(format) = format.as_object_mut()
    {
        let filled =
            [("name", "answer".into()), ("description", "".into()), ("strict", false.into())];
        for (key, default) in filled {
            if format.get(key).is_none_or(Value::is_null) {
                format.insert(key.into(), default);
            }
        }
    }
    format
}

/// The fields of the response object that repeat the request, defaults filled in.
fn fields(request: ResponsesRequest) -> Map<String, Value> {
    let reasoning = request.reasoning.unwrap_or_default();
    let part = |key: &str| reasoning.get(key).cloned().unwrap_or(Value::Null);
    let (format, verbosity) =
        request.text.map_or((None, None), |text| (text.format, text.verbosity));
    let format = format.filter(Value::is_object).map(repeated_format);
    let mut text = json!({ "format": format.unwrap_or(json!({ "type": "text" })) });
    if let Some(verbosity) = verbosity {
        text["verbosity"] = verbosity.into();
    }
    let fields = json!({
        "background": false,
        "frequency_penalty": request.frequency_penalty.unwrap_or(0.0),
        "instructions": request.instructions,
        "max_output_tokens": request.max_output_tokens,
        "max_tool_calls": request.max_tool_calls,
        "metadata": request.metadata.unwrap_or_default(),
        "parallel_tool_calls": request.parallel_tool_calls.unwrap_or(true),
        "presence_penalty": request.presence_penalty.unwrap_or(0.0),
        "previous_response_id": request.previous_response_id,
        "prompt_cache_key": request.prompt_cache_key,
        "reasoning": { "effort": part("effort"), "summary": part("summary") },
        "safety_identifier": request.safety_identifier,
        "service_tier": "default",
        "store": request.store.unwrap_or(true),
        "temperature": request.temperature.unwrap_or(1.0),
        "text": text,
        "tool_choice": request.tool_choice.filter(|c| !c.is_null()).unwrap_or("auto".into()),
        "tools": repeated(request.tools.unwrap_or_default()),
        "top_logprobs": 0,
        "top_p": request.top_p.unwrap_or(1.0),
        "truncation": request.truncation.unwrap_or("disabled".into()),
    });
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}
