//! Answers that the client has begun: the last message of a Messages request is the assistant's.
//!
//! The prompt is the history as the template writes it, cut behind the text that was begun: what
//! the template puts after a finished message must not come yet.

use crate::ask::{Ask, ToolChoice};
use crate::cluster::ServedModel;
use crate::error::ApiError;
use crate::markup::Opening;
use model::Message;
use serde_json::Value;

/// The text that a history ends with, where that is an answer without calls. One without text
/// either is a turn that ended.
fn last_text(messages: &[Message]) -> Option<&str> {
    let last = messages.last().filter(|last| last["role"] == "assistant")?;
    let calls = last.get("tool_calls").is_some();
    last["content"].as_str().filter(|text| !calls && !text.is_empty())
}

/// The same where it is more than white space: its place is found again in what templates write,
/// many of which leave white space at the ends out.
fn begun(messages: &[Message]) -> Option<&str> {
    last_text(messages).filter(|text| !text.trim().is_empty())
}

/// The path of the text that an answer goes on from, where one does; `last` is the number of the
/// request's last message.
pub(crate) fn at(messages: &[Message], last: usize) -> Option<String> {
    last_text(messages).map(|_| format!("messages[{last}].content"))
}

/// Makes sure that an answer that the client has begun can be served. (Its tokens can be counted in
/// any case: harnesses count histories that end anywhere.)
///
/// # Errors
/// The text ends with white space or is nothing else, or a form is demanded of the whole answer.
pub(crate) fn checked(ask: &Ask) -> Result<(), ApiError> {
    let (Some(at), Some(text)) = (&ask.continues, last_text(&ask.messages)) else { return Ok(()) };
    if text.ends_with(char::is_whitespace) {
        let why = "the answer that is gone on with must not end with white space";
        return Err(ApiError::field(at, why));
    }
    if let Some(format) = &ask.format {
        let why = "an answer that the client has begun cannot be held to a form";
        return Err(ApiError::field(&format.at, why));
    }
    if matches!(ask.tool_choice, ToolChoice::Required | ToolChoice::Named(_)) {
        let why = "no call can be demanded of an answer that the client has begun";
        return Err(ApiError::field("tool_choice", why));
    }
    Ok(())
}

/// How an answer goes on behind the text that was begun.
pub(crate) fn opening(served: &ServedModel, text: &str) -> Opening {
    match served.format.tags() {
        Some(_) if served.format.thinks_at_end_of(text).is_some() => Opening::Thinking,
        Some(_) => Opening::Free,
        // Within a message of that format there are no marks of another.
        None => Opening::Plain,
    }
}

/// Stands behind the text that was begun while the history is rendered, so that the place is found
/// again among what the template writes. Of Unicode's private use.
const HERE: &str = "\u{f8d1}here\u{f8d1}";

/// The history with a mark behind the text that was begun; `None` where that is white space only,
/// which is counted as a turn that ended.
pub(crate) fn marked(messages: &[Message]) -> Option<Vec<Message>> {
    let content = format!("{}{HERE}", begun(messages)?);
    let mut messages = messages.to_vec();
    let last = messages.last_mut()?;
    let mut value: Value = (**last).clone();
    value["content"] = content.into();
    *last = value.into();
    Some(messages)
}

/// A rendered history that was [`marked`], without the head of an answer, up to its mark.
pub(crate) fn cut(mut text: String, messages: &[Message]) -> Result<String, ApiError> {
    let begun = begun(messages).unwrap_or_default().trim_start();
    let end = text.rfind(HERE);
    let whole = |end: &usize| text.get(..*end).is_some_and(|text| text.ends_with(begun));
    let end = end.filter(|end| !begun.is_empty() && whole(end)).ok_or_else(|| {
        ApiError::prompt(
            "the model's chat template changes the last message: an answer cannot be gone on with; \
             end with a user's message",
        )
    })?;
    text.truncate(end);
    Ok(text)
}
