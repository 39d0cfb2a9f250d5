//! Endpoints that generate: how each reads its body, and how its answers are written.

use crate::ask::Ask;
use crate::bodies::{Bodies, List};
use crate::error::{ApiError, Dialect};
use crate::keeper::Standing;
use crate::responses::record::{Recalled, Record, Wanted};
use crate::seal::Seal;
use crate::stream::{Ending, Piece};
use crate::{chat, completions, messages, responses, sse};
use bytes::Bytes;
use protocol::id::TenantId;
use serde_json::Value;

/// Where a body came in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Endpoint {
    Chat,
    Completions,
    Messages,
    Responses,
}

/// What the answer of a request needs beside the neutral request.
pub(crate) enum Style {
    Chat,
    Completions,
    Messages,
    Responses(Box<responses::Echo>),
}

impl Endpoint {
    /// Whose words its errors are in.
    pub(crate) fn dialect(self) -> Dialect {
        match self {
            Self::Messages => Dialect::Anthropic,
            Self::Chat | Self::Completions | Self::Responses => Dialect::OpenAi,
        }
    }

    /// The field that the prompt is made of.
    pub(crate) fn prompt_field(self) -> &'static str {
        match self {
            Self::Chat | Self::Messages => "messages",
            Self::Completions => "prompt",
            Self::Responses => "input",
        }
    }

    /// The endpoint a body without a path is meant for.
    pub(crate) fn guess(body: &Value) -> Self {
        if body.get("prompt").is_some_and(|prompt| !prompt.is_object()) {
            Self::Completions
        } else if body.get("input").is_some() {
            Self::Responses
        } else if body.get("system").is_some() {
            Self::Messages
        } else {
            Self::Chat
        }
    }

    /// Whether a body may name kept responses.
    pub(crate) fn names_kept(self, body: &[u8]) -> bool {
        match self {
            Self::Responses => Wanted::may_be_in(body),
            Self::Chat | Self::Completions | Self::Messages => false,
        }
    }

    /// As [`Self::read`], of a history whose beginning may be that of an earlier body.
    pub(crate) fn read_on(
        self,
        body: &Bytes,
        bodies: &Bodies,
        tenant: &TenantId,
        seal: impl FnOnce() -> Seal,
        recalled: Recalled,
    ) -> Result<(Ask, Style), ApiError> {
        Ok(match self {
            Self::Chat => {
                (bodies.read(tenant, body, List::Chat, chat::request::read_on)?, Style::Chat)
            }
            Self::Messages => (
                bodies.read(tenant, body, List::Messages, messages::request::read_on)?,
                Style::Messages,
            ),
            Self::Completions | Self::Responses => self.read(body, seal, recalled)?,
        })
    }

    /// Reads a body; `seal` opens what this tenant was given sealed, `recalled` is what was found of
    /// the responses that the body names.
    pub(crate) fn read(
        self,
        body: &[u8],
        seal: impl FnOnce() -> Seal,
        recalled: Recalled,
    ) -> Result<(Ask, Style), ApiError> {
        Ok(match self {
            Self::Chat => (chat::request::read(body)?, Style::Chat),
            Self::Completions => (completions::request::read(body)?, Style::Completions),
            Self::Messages => (messages::request::read(body)?, Style::Messages),
            Self::Responses => {
                let (ask, echo) = responses::request::read(body, &seal(), recalled)?;
                (ask, Style::Responses(Box::new(echo)))
            }
        })
    }
}

/// One answer's dialect and frame.
pub(crate) enum Speech {
    Chat(chat::Frame, bool),
    Completions(chat::Frame, bool),
    Messages(messages::Frame),
    Responses(Box<responses::Frame>),
}

impl Speech {
    /// The speech of `request`, which names the model so; `created` in seconds since the Unix epoch.
    pub(crate) fn new(
        style: Style,
        ask: &Ask,
        request: String,
        model: String,
        created: u64,
        prompt: u32,
    ) -> Self {
        match style {
            Style::Chat => Self::Chat(chat::Frame { request, model, created }, ask.include_usage),
            Style::Completions => {
                let frame = chat::Frame { request, model, created };
                Self::Completions(frame, ask.include_usage)
            }
            Style::Messages => Self::Messages(messages::Frame { request, model }),
            Style::Responses(echo) => {
                let frame = responses::Frame { request, model, created, prompt, echo: *echo };
                Self::Responses(Box::new(frame))
            }
        }
    }

    /// What shall be kept of a whole answer.
    pub(crate) fn record(&self, body: &Value) -> Option<Record> {
        match self {
            Self::Responses(frame) => responses::response::record(frame, body),
            Self::Chat(..) | Self::Completions(..) | Self::Messages(_) => None,
        }
    }

    /// Says in a whole answer how it is kept.
    pub(crate) fn kept(&self, body: &mut Value, standing: &Standing) {
        if matches!(self, Self::Responses(_)) {
            responses::response::kept(body, standing);
        }
    }

    /// The whole answer.
    pub(crate) fn body(&self, pieces: &[Piece], ending: &Ending, nvext: Option<Value>) -> Value {
        match self {
            Self::Chat(frame, _) => chat::response::body(frame, pieces, ending, nvext),
            Self::Completions(frame, _) => {
                completions::response::body(frame, pieces, ending, nvext)
            }
            Self::Messages(frame) => messages::response::body(frame, pieces, ending, nvext),
            Self::Responses(frame) => responses::response::body(frame, pieces, ending, nvext),
        }
    }

    /// Writes the answer as it comes.
    pub(crate) fn writer(self) -> Box<dyn sse::Writer> {
        match self {
            Self::Chat(frame, usage) => Box::new(chat::stream::ChatWriter::new(frame, usage)),
            Self::Completions(frame, usage) => {
                Box::new(completions::stream::CompletionWriter::new(frame, usage))
            }
            Self::Messages(frame) => Box::new(messages::stream::MessagesWriter::new(frame)),
            Self::Responses(frame) => Box::new(responses::stream::ResponsesWriter::new(*frame)),
        }
    }
}
