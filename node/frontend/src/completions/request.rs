//! Completions requests to the neutral request.

use crate::ask::{self, Ask, Raw, SamplingAsk};
use crate::error::ApiError;
use crate::json;
use crate::nvext::NvExt;
use protocol::hash::Token;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Most stop strings.
const STOP_MAX: usize = 4;
/// Tokens of an answer whose length was not said, as the dialect has it.
const MAX_TOKENS: u32 = 16;

#[derive(Deserialize)]
struct CompletionRequest {
    model: Option<String>,
    prompt: Option<Value>,
    suffix: Option<String>,
    max_tokens: Option<i64>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<i64>,
    min_p: Option<f64>,
    seed: Option<i64>,
    n: Option<i64>,
    best_of: Option<i64>,
    echo: Option<bool>,
    logprobs: Option<i64>,
    stop: Option<Value>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    cache_salt: Option<String>,
    nvext: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

/// Reads a request body.
pub(crate) fn read(body: &[u8]) -> Result<Ask, ApiError> {
    let request: CompletionRequest = json::parse(body)?;
    let refuse = |at: &str, why: &str| Err(ApiError::field(at, why));
    if request.n.is_some_and(|n| n != 1) || request.best_of.is_some_and(|n| n != 1) {
        return refuse("n", "only one choice is supported: n and best_of must be 1");
    }
    if request.echo == Some(true) {
        return refuse("echo", "repeating the prompt is not supported");
    }
    if request.logprobs.is_some() {
        return refuse("logprobs", "log probabilities are not supported");
    }
    if request.suffix.is_some_and(|suffix| !suffix.is_empty()) {
        return refuse("suffix", "filling in the middle is not supported");
    }
    let stop = match request.stop {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(text)) => vec![text],
        Some(list) => json::typed("stop", list)?,
    };
    let mut nvext = NvExt::read(request.nvext)?;
    nvext.cache_salt = nvext.cache_salt.or(request.cache_salt);
    Ok(Ask {
        model: request.model.filter(|name| !name.is_empty()),
        raw: Some(read_prompt(request.prompt)?),
        max_tokens: ask::max_tokens("max_tokens", request.max_tokens)?.or(Some(MAX_TOKENS)),
        sampling: SamplingAsk::checked(
            request.temperature,
            request.top_p,
            request.top_k,
            request.min_p,
            request.seed,
        )?,
        stop: ask::stop_strings("stop", stop, STOP_MAX)?,
        stream: request.stream.unwrap_or(false),
        include_usage: request.stream_options.and_then(|o| o.include_usage).unwrap_or(false),
        nvext,
        ..Ask::default()
    })
}

/// A text, a list of tokens, or a list with one of these.
fn read_prompt(prompt: Option<Value>) -> Result<Raw, ApiError> {
    let wrong = |why: &str| Err(ApiError::field("prompt", why));
    let one = match prompt {
        None | Some(Value::Null) => return wrong("missing field"),
        Some(Value::Array(mut list)) => match list.as_slice() {
            [Value::String(_) | Value::Array(_)] => list.swap_remove(0),
            [Value::String(_) | Value::Array(_), ..] => {
                return wrong("only one prompt is supported: send one request for each");
            }
            _ => Value::Array(list),
        },
        Some(one) => one,
    };
    match one {
        Value::String(text) => Ok(Raw::Text(text)),
        Value::Array(list) => match list.first() {
            None => wrong("must not be empty"),
            Some(Value::Number(_)) => {
                let tokens: Vec<u32> = json::typed("prompt", Value::Array(list))?;
                Ok(Raw::Tokens(tokens.into_iter().map(Token).collect()))
            }
            Some(_) => wrong("expected texts or tokens"),
        },
        _ => wrong("expected a string or a list of tokens"),
    }
}
