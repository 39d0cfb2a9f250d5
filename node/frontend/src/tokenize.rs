//! Text to tokens and back, in the shapes that clients of vLLM know.

use crate::ask::{Ask, Raw};
use crate::error::ApiError;
use crate::{chat, json};
use model::Tokenizer;
use protocol::hash::Token;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use std::fmt::Write;

/// What shall become tokens.
pub(crate) struct ToTokens {
    pub(crate) ask: Ask,
    /// Whether the tokenizer puts around the text what it puts around every text.
    pub(crate) add_special: bool,
    /// Whether the vocabulary's spellings are told too.
    pub(crate) spellings: bool,
}

#[derive(Deserialize)]
struct TokenizeRequest {
    model: Option<String>,
    prompt: Option<String>,
    messages: Option<IgnoredAny>,
    add_special_tokens: Option<bool>,
    add_generation_prompt: Option<bool>,
    return_token_strs: Option<bool>,
}

/// Reads a body of `/tokenize`: a text, or a conversation as Chat Completions has it.
pub(crate) fn read(body: &[u8]) -> Result<ToTokens, ApiError> {
    let request: TokenizeRequest = json::parse(body)?;
    let is_chat = request.messages.is_some();
    let ask = match (request.prompt, is_chat) {
        (Some(_), true) => {
            return Err(ApiError::field("prompt", "give either `prompt` or `messages`"));
        }
        (None, true) => chat::request::read(body)?,
        (Some(text), false) => Ask {
            model: request.model.filter(|name| !name.is_empty()),
            raw: Some(Raw::Text(text)),
            ..Ask::default()
        },
        (None, false) => {
            return Err(ApiError::field("prompt", "missing field (or `messages`)"));
        }
    };
    let history_only = !request.add_generation_prompt.unwrap_or(true);
    Ok(ToTokens {
        ask: Ask { history_only, ..ask },
        add_special: request.add_special_tokens.unwrap_or(!is_chat),
        spellings: request.return_token_strs.unwrap_or(false),
    })
}

/// The answer of `/tokenize`, as JSON text: a value of it would take many times its bytes.
/// `context` is the most tokens that prompt and answer may have.
pub(crate) fn body(
    tokens: &[Token],
    tokenizer: &Tokenizer,
    context: u32,
    spellings: bool,
) -> String {
    let mut text = format!(r#"{{"count":{},"max_model_len":{context},"tokens":["#, tokens.len());
    for (i, token) in tokens.iter().enumerate() {
        let comma = if i > 0 { "," } else { "" };
        // Writing to a string does not fail.
        let _ = write!(text, "{comma}{}", token.0);
    }
    text.push_str(r#"],"token_strs":"#);
    if spellings {
        for (i, token) in tokens.iter().enumerate() {
            let spelling = tokenizer.spelling(*token).unwrap_or_default();
            let comma = if i > 0 { "," } else { "[" };
            let _ = write!(text, "{comma}{}", Value::String(spelling));
        }
        text.push_str(if tokens.is_empty() { "[]" } else { "]" });
    } else {
        text.push_str("null");
    }
    text.push('}');
    text
}

#[derive(Deserialize)]
struct DetokenizeRequest {
    model: Option<String>,
    tokens: Vec<u32>,
}

/// Reads a body of `/detokenize`: the model that is asked for, and the tokens.
pub(crate) fn read_tokens(body: &[u8]) -> Result<(Option<String>, Vec<Token>), ApiError> {
    let request: DetokenizeRequest = json::parse(body)?;
    let model = request.model.filter(|name| !name.is_empty());
    Ok((model, request.tokens.into_iter().map(Token).collect()))
}

/// The text of tokens. Control tokens are written as the vocabulary spells them, so that the text
/// gives the same tokens again where they are those of a text.
pub(crate) fn text(tokens: &[Token], tokenizer: &Tokenizer) -> Result<String, ApiError> {
    let unknown = |token: &Token| token.0 as usize >= tokenizer.vocab_size();
    if let Some(at) = tokens.iter().position(unknown) {
        return Err(ApiError::field(&format!("tokens[{at}]"), "there is no such token"));
    }
    let mut text = String::new();
    for run in tokens.chunk_by(|a, b| tokenizer.is_special(*a) == tokenizer.is_special(*b)) {
        match run.first().is_some_and(|token| tokenizer.is_special(*token)) {
            true => text.extend(run.iter().filter_map(|token| tokenizer.spelling(*token))),
            false => text.push_str(&tokenizer.decode(run)),
        }
    }
    Ok(text)
}
