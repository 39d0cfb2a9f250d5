//! Errors in the words of each dialect.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use protocol::prompt::Refusal;
use serde_json::{Value, json};

/// Whose words are spoken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dialect {
    /// Chat Completions, Completions and Responses.
    OpenAi,
    /// Messages.
    Anthropic,
}

/// What went wrong, apart from its words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// The request is wrong.
    Invalid,
    /// The model is not served.
    NoModel,
    /// No such path.
    NoPath,
    /// The path exists, the method does not.
    NoMethod,
    /// What is named by its id is not there.
    NotFound,
    /// The response to go on from is not there.
    NoPrevious,
    /// The body is too large.
    TooLarge,
    /// The body stopped coming.
    Late,
    /// The prompt exceeds the context; lengths in tokens.
    TooLong {
        tokens: u32,
        /// Longest prompt.
        limit: u32,
    },
    /// No key, or none that is good.
    Unauthorised,
    /// The tenant has asked for more than its quota.
    RateLimited,
    /// No room now.
    Busy,
    /// No usable node now.
    NoTarget,
    /// The node that served it went away: nobody's mistake.
    Lost,
    /// Ours to repair.
    Failed,
}

/// An error as a client meets it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ApiError {
    pub(crate) kind: Kind,
    pub(crate) message: String,
    /// Path of the field that is wrong.
    pub(crate) param: Option<String>,
    /// Seconds.
    pub(crate) retry_after: Option<u64>,
}

/// Stands for the field that the prompt is made of, which differs between the dialects.
const PROMPT: &str = "messages";

/// What a client is told whose node was killed, restarted or left.
const LOST: &str = "the node that served this went away (lost, restarted or leaving); try again";

impl ApiError {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), param: None, retry_after: None }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Kind::Invalid, message)
    }

    /// `path` is wrong because of `why`.
    pub(crate) fn field(path: &str, why: impl std::fmt::Display) -> Self {
        Self { param: Some(path.to_owned()), ..Self::invalid(format!("{path}: {why}")) }
    }

    /// The same about a request whose prompt is made of the field `field`.
    pub(crate) fn about(mut self, field: &str) -> Self {
        if matches!(self.kind, Kind::TooLong { .. }) || self.param.as_deref() == Some(PROMPT) {
            self.param = Some(field.to_owned());
        }
        self
    }

    /// The prompt as a whole is wrong because of `why`.
    pub(crate) fn prompt(why: impl Into<String>) -> Self {
        Self { param: Some(PROMPT.to_owned()), ..Self::invalid(why) }
    }

    pub(crate) fn no_model(asked: &str, served: &[String]) -> Self {
        let served = if served.is_empty() { "none".to_owned() } else { served.join(", ") };
        let message = if asked.is_empty() {
            format!("no model is named in the request; served models: {served}")
        } else {
            format!("the model `{asked}` does not exist here; served models: {served}")
        };
        Self { param: Some("model".into()), ..Self::new(Kind::NoModel, message) }
    }

    /// The model is another node's, and its tokenizer is on the way here.
    pub(crate) fn awaited(asked: &str, served: &[String]) -> Self {
        let served = if served.is_empty() { "none".to_owned() } else { served.join(", ") };
        let asked = match asked {
            "" => "which model is meant".to_owned(),
            named => format!("the model `{named}`"),
        };
        let message = format!(
            "{asked} is not known here yet (known models: {served}): this node is still hearing what others serve, \
             or fetching its tokenizer; retry in a second"
        );
        Self { retry_after: Some(1), ..Self::new(Kind::NoTarget, message) }
    }

    fn status(&self, dialect: Dialect) -> StatusCode {
        let overloaded = StatusCode::from_u16(529).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        match (self.kind, dialect) {
            (Kind::Invalid | Kind::TooLong { .. } | Kind::NoPrevious, _) => StatusCode::BAD_REQUEST,
            (Kind::NoModel | Kind::NoPath | Kind::NotFound, _) => StatusCode::NOT_FOUND,
            (Kind::NoMethod, _) => StatusCode::METHOD_NOT_ALLOWED,
            (Kind::TooLarge, _) => StatusCode::PAYLOAD_TOO_LARGE,
            (Kind::Late, _) => StatusCode::REQUEST_TIMEOUT,
            (Kind::Unauthorised, _) => StatusCode::UNAUTHORIZED,
            (Kind::RateLimited, _) => StatusCode::TOO_MANY_REQUESTS,
            (Kind::Busy, Dialect::Anthropic) => overloaded,
            (Kind::Busy, Dialect::OpenAi) | (Kind::NoTarget | Kind::Lost, _) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            (Kind::Failed, _) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The words for a prompt that is too long are those that harnesses recognise.
    fn words(&self, dialect: Dialect) -> String {
        match (self.kind, dialect) {
            (Kind::TooLong { tokens, limit }, Dialect::Anthropic) => {
                format!("prompt is too long: {tokens} tokens > {limit} maximum")
            }
            (Kind::TooLong { tokens, limit }, Dialect::OpenAi) => format!(
                "This model's maximum context length is {} tokens. However, your messages \
                 resulted in {tokens} tokens. Please reduce the length of the messages.",
                limit.saturating_add(1)
            ),
            _ => self.message.clone(),
        }
    }

    fn openai(&self) -> Value {
        let (kind, code) = match self.kind {
            Kind::Invalid | Kind::TooLarge | Kind::Late | Kind::NotFound => {
                ("invalid_request_error", None)
            }
            Kind::NoPrevious => ("invalid_request_error", Some("previous_response_not_found")),
            Kind::NoModel => ("invalid_request_error", Some("model_not_found")),
            Kind::NoPath => ("invalid_request_error", Some("unknown_url")),
            Kind::NoMethod => ("invalid_request_error", Some("method_not_allowed")),
            Kind::TooLong { .. } => ("invalid_request_error", Some("context_length_exceeded")),
            Kind::Unauthorised => ("invalid_request_error", Some("invalid_api_key")),
            Kind::RateLimited => ("rate_limit_error", Some("rate_limit_exceeded")),
            Kind::Busy => ("overloaded_error", Some("overloaded")),
            Kind::NoTarget => ("server_error", Some("no_target")),
            Kind::Lost | Kind::Failed => ("server_error", Some("server_error")),
        };
        let param = self.param.as_deref();
        let message = self.words(Dialect::OpenAi);
        json!({ "error": { "message": message, "type": kind, "param": param, "code": code } })
    }

    fn anthropic(&self, request: &str, streaming: bool) -> Value {
        let kind = match self.kind {
            Kind::Invalid | Kind::TooLong { .. } | Kind::NoMethod | Kind::NoPrevious => {
                "invalid_request_error"
            }
            Kind::NoModel | Kind::NoPath | Kind::NotFound => "not_found_error",
            Kind::TooLarge => "request_too_large",
            Kind::Late => "timeout_error",
            Kind::Unauthorised => "authentication_error",
            Kind::RateLimited => "rate_limit_error",
            Kind::Busy | Kind::NoTarget | Kind::Lost => "overloaded_error",
            // Within a stream this is the type that clients take as "try again".
            Kind::Failed if streaming => "overloaded_error",
            Kind::Failed => "api_error",
        };
        let message = self.words(Dialect::Anthropic);
        json!({
            "type": "error",
            "error": { "type": kind, "message": message },
            "request_id": request,
        })
    }

    /// The code of a failed Responses answer.
    pub(crate) fn response_code(&self) -> &'static str {
        match self.kind {
            Kind::Busy | Kind::RateLimited => "rate_limit_exceeded",
            Kind::Invalid | Kind::TooLong { .. } | Kind::TooLarge => "invalid_prompt",
            _ => "server_error",
        }
    }

    /// The body, also of an error event inside a stream.
    pub(crate) fn body(&self, dialect: Dialect, request: &str, streaming: bool) -> Value {
        match dialect {
            Dialect::OpenAi => self.openai(),
            Dialect::Anthropic => self.anthropic(request, streaming),
        }
    }

    /// The whole response.
    pub(crate) fn response(&self, dialect: Dialect, request: &str) -> Response {
        let mut response =
            Response::new(Body::from(self.body(dialect, request, false).to_string()));
        *response.status_mut() = self.status(dialect);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let message = match &refusal {
            Refusal::Gone => LOST.to_owned(),
            other => other.to_string(),
        };
        let (kind, retry_after) = match refusal {
            Refusal::Busy { retry_after } => {
                let seconds = (retry_after.as_ms() / 1000.0).ceil().max(1.0);
                (Kind::Busy, Some(seconds as u64))
            }
            Refusal::NoTarget { .. } => (Kind::NoTarget, Some(1)),
            Refusal::Gone => (Kind::Lost, Some(1)),
            Refusal::TooLong { tokens, limit } => (Kind::TooLong { tokens, limit }, None),
            Refusal::Failed(_) => (Kind::Failed, None),
        };
        Self { retry_after, ..Self::new(kind, message) }
    }
}

#[cfg(test)]
mod tests;
