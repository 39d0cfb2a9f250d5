//! One streamed call to a node, in either dialect, and everything that can be learnt from it.
//!
//! A dialect is two pure functions: `chat` and `messages` write a body and read one event of
//! the stream. [`Client::call`] does the I/O and takes the times.

mod assemble;
mod chat;
mod messages;

use crate::error::LoadError;
use crate::talk::{Conversation, ToolCall};
use assemble::{Assembler, Piece};
use eventsource_stream::Eventsource;
use futures::StreamExt;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest stream that is read, in events. Our calls have tens of tokens; more is a fault.
const EVENTS_MAX: usize = 65_536;
/// Longest body of an error that is shown, in characters.
const MESSAGE_MAX: usize = 300;

/// Reads the data of one event of a dialect's stream.
type ReadEvent = fn(&str) -> Result<Vec<Piece>, CallError>;

/// Which API is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// `POST /v1/chat/completions`.
    Chat,
    /// `POST /v1/messages`.
    Messages,
}

impl Dialect {
    /// Short name for tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Messages => "messages",
        }
    }
}

/// One call.
#[derive(Debug, Clone)]
pub struct Call {
    /// Base address of the entry node, as `http://127.0.0.1:8000`.
    pub entry: String,
    /// API spoken.
    pub dialect: Dialect,
    /// Served model name.
    pub model: String,
    /// The input.
    pub conversation: Conversation,
    /// Most tokens to generate. Generation is greedy.
    pub max_tokens: u32,
    /// Session and its parent session, sent as headers.
    pub session: Option<(String, Option<String>)>,
    /// `nvext.cache_salt`: shares cached blocks only with calls of the same salt.
    pub cache_salt: Option<String>,
    /// `nvext.target`: id of the node that must serve it.
    pub target: Option<String>,
}

impl Call {
    /// A plain call without session, salt or target.
    pub fn new(entry: &str, dialect: Dialect, model: &str, conversation: Conversation) -> Self {
        Self {
            entry: entry.to_owned(),
            dialect,
            model: model.to_owned(),
            conversation,
            max_tokens: 32,
            session: None,
            cache_salt: None,
            target: None,
        }
    }

    fn nvext(&self) -> Value {
        let mut nvext = Map::new();
        nvext.insert("extra_fields".into(), json!(["timing", "route", "token_ids"]));
        nvext.insert("agent_hints".into(), json!({ "osl": self.max_tokens }));
        if let Some(salt) = &self.cache_salt {
            nvext.insert("cache_salt".into(), json!(salt));
        }
        if let Some(target) = &self.target {
            nvext.insert("target".into(), json!(target));
        }
        Value::Object(nvext)
    }

    fn body(&self) -> Value {
        let mut body = match self.dialect {
            Dialect::Chat => chat::body(&self.conversation),
            Dialect::Messages => messages::body(&self.conversation),
        };
        body.insert("model".into(), json!(self.model));
        body.insert("max_tokens".into(), json!(self.max_tokens));
        body.insert("temperature".into(), json!(0));
        body.insert("stream".into(), json!(true));
        if self.dialect == Dialect::Chat {
            body.insert("stream_options".into(), json!({ "include_usage": true }));
        }
        body.insert("nvext".into(), self.nvext());
        Value::Object(body)
    }
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Nothing listens there, or the connection broke before the head of the answer.
    #[error("no connection: {0}")]
    Connect(String),
    /// The node refused, in the dialect's form.
    #[error("status {status}, {kind}: {message}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// The dialect's error type or code.
        kind: String,
        /// The text for people.
        message: String,
    },
    /// The node gave up in the middle of the stream.
    #[error("the stream ended with an error: {0}")]
    Failed(String),
    /// The connection broke in the middle of the stream, or its terminal event is missing.
    #[error("the stream broke off: {0}")]
    BrokenOff(String),
    /// An event that the dialect does not have.
    #[error("unreadable event: {0}")]
    Malformed(String),
    /// No end within the time allowed for a call.
    #[error("no end after {} s", .0.as_secs())]
    TimedOut(Duration),
}

/// Cached prompt tokens by where they came from (`nvext.route.cached_tokens`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct CachedTokens {
    /// Already in the serving engine's pool.
    pub gpu: u64,
    /// From the serving node's DRAM.
    pub dram: u64,
    /// From the serving node's NVMe.
    pub nvme: u64,
    /// Fetched from other nodes.
    pub peer: u64,
}

impl CachedTokens {
    /// All sources together.
    pub fn sum(&self) -> u64 {
        self.gpu + self.dram + self.nvme + self.peer
    }

    /// What the serving node held itself.
    pub fn local(&self) -> u64 {
        self.gpu + self.dram + self.nvme
    }
}

/// What the node says about its own times (`nvext.timing`), in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Deserialize)]
#[serde(default)]
pub struct Timing {
    /// In the queue.
    pub queue_ms: f64,
    /// Until the first token.
    pub ttft_ms: f64,
    /// Until the end.
    pub total_ms: f64,
}

/// What came of a call. Fields that the answer did not reach keep their defaults.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// HTTP status, once there was one.
    pub status: Option<u16>,
    /// Why it failed; none when the stream ended as the dialect wants.
    pub error: Option<CallError>,
    /// From sending to the first content, as the client saw it.
    pub ttft: Option<Duration>,
    /// From sending to the end.
    pub total: Duration,
    /// Gaps between events with content, as the client saw them.
    pub itl: Vec<Duration>,
    /// Generated text.
    pub text: String,
    /// Generated reasoning.
    pub reasoning: String,
    /// Tool calls.
    pub calls: Vec<ToolCall>,
    /// Generated token ids (`nvext.completion_token_ids`).
    pub token_ids: Vec<u32>,
    /// Length of the prompt.
    pub prompt_tokens: u64,
    /// Number of generated tokens.
    pub completion_tokens: u64,
    /// Cached prompt tokens by source.
    pub cached: CachedTokens,
    /// Prompt tokens computed.
    pub computed: u64,
    /// Id of the node that took the call.
    pub entry_node: String,
    /// Id of the node that served it.
    pub serving_node: String,
    /// What became of the placement (`nvext.route.outcome`).
    pub outcome: String,
    /// The dialect's finish or stop reason.
    pub finish: String,
    /// The node's own times.
    pub timing: Option<Timing>,
}

impl Outcome {
    /// True when the whole answer arrived.
    pub fn ok(&self) -> bool {
        self.error.is_none()
    }

    /// Decoding rate in tokens per second, as the client saw it; none below two tokens.
    pub fn tokens_per_second(&self) -> Option<f64> {
        let spent: Duration = self.itl.iter().sum();
        let tokens = self.completion_tokens.checked_sub(1).filter(|t| *t > 0)?;
        (!spent.is_zero()).then(|| tokens as f64 / spent.as_secs_f64())
    }
}

/// What builds a client that speaks to nodes: it takes no proxy from the environment, and reads no
/// certificates of the system, as it has no TLS to speak.
pub fn plain_http() -> reqwest::ClientBuilder {
    let builder = reqwest::Client::builder().no_proxy();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    match rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
    {
        Ok(config) => {
            let none = rustls::RootCertStore::empty();
            let config = config.with_root_certificates(none).with_no_client_auth();
            builder.tls_backend_preconfigured(config)
        }
        Err(_) => builder,
    }
}

/// The HTTP side. Cheap to clone; takes no proxy from the environment.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    deadline: Duration,
}

impl Client {
    /// A client whose calls may take `deadline` each.
    pub fn new(deadline: Duration) -> Result<Self, LoadError> {
        let http =
            plain_http().connect_timeout(Duration::from_secs(5)).build().map_err(|error| {
                LoadError::Answer { url: "the HTTP client".into(), reason: error.to_string() }
            })?;
        Ok(Self { http, deadline })
    }

    /// Makes one call. Never fails itself: the outcome says what went wrong.
    pub async fn call(&self, call: &Call) -> Outcome {
        let started = Instant::now();
        let mut assembler = Assembler::default();
        let end =
            match tokio::time::timeout(self.deadline, self.stream(call, started, &mut assembler))
                .await
            {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error),
                Err(_) => Some(CallError::TimedOut(self.deadline)),
            };
        assembler.finish(end, started.elapsed())
    }

    async fn stream(
        &self,
        call: &Call,
        started: Instant,
        assembler: &mut Assembler,
    ) -> Result<(), CallError> {
        let (path, read): (_, ReadEvent) = match call.dialect {
            Dialect::Chat => ("/v1/chat/completions", chat::read),
            Dialect::Messages => ("/v1/messages", messages::read),
        };
        let mut request = self.http.post(format!("{}{path}", call.entry)).json(&call.body());
        if call.dialect == Dialect::Messages {
            request = request.header("anthropic-version", "2023-06-01");
        }
        if let Some((session, parent)) = &call.session {
            request = request.header("x-dynamo-session-id", session);
            if let Some(parent) = parent {
                request = request.header("x-dynamo-parent-session-id", parent);
            }
        }
        let response = request.send().await.map_err(|error| CallError::Connect(causes(&error)))?;
        let status = response.status().as_u16();
        assembler.status(status);
        if status != 200 {
            let body = response.text().await.unwrap_or_default();
            return Err(refused(status, &body));
        }
        let mut events = response.bytes_stream().eventsource();
        for _ in 0..EVENTS_MAX {
            let event = match events.next().await {
                Some(Ok(event)) => event,
                Some(Err(error)) => return Err(CallError::BrokenOff(error.to_string())),
                None => return Err(CallError::BrokenOff("no terminal event".into())),
            };
            for piece in read(&event.data)? {
                if assembler.take(piece, started.elapsed())? {
                    return Ok(());
                }
            }
        }
        Err(CallError::Malformed(format!("more than {EVENTS_MAX} events")))
    }

    /// Tokens of a conversation's prompt (`POST /v1/messages/count_tokens`).
    pub async fn count_tokens(
        &self,
        entry: &str,
        model: &str,
        conversation: &Conversation,
    ) -> Result<u64, LoadError> {
        let url = format!("{entry}/v1/messages/count_tokens");
        let mut body = messages::body(conversation);
        body.insert("model".into(), json!(model));
        let request = self.http.post(&url).header("anthropic-version", "2023-06-01").json(&body);
        let answer = self.ask(&url, request).await?;
        answer["input_tokens"].as_u64().ok_or_else(|| LoadError::Answer {
            url,
            reason: format!("no input_tokens in {}", shorten(&answer.to_string())),
        })
    }

    /// Names of the models that a node serves (`GET /v1/models`).
    pub async fn models(&self, entry: &str) -> Result<Vec<String>, LoadError> {
        let url = format!("{entry}/v1/models");
        let answer = self.ask(&url, self.http.get(&url)).await?;
        let names = answer["data"].as_array().map_or(&[][..], Vec::as_slice);
        Ok(names.iter().filter_map(|model| model["id"].as_str().map(str::to_owned)).collect())
    }

    /// Any JSON document of a node.
    pub(crate) async fn get(&self, url: &str) -> Result<Value, LoadError> {
        self.ask(url, self.http.get(url)).await
    }

    async fn ask(&self, url: &str, request: reqwest::RequestBuilder) -> Result<Value, LoadError> {
        let fail = |reason: String| LoadError::Answer { url: url.to_owned(), reason };
        let response = request
            .timeout(Duration::from_secs(10).min(self.deadline))
            .send()
            .await
            .map_err(|error| fail(causes(&error)))?;
        let status = response.status();
        let body = response.text().await.map_err(|error| fail(causes(&error)))?;
        if !status.is_success() {
            return Err(fail(format!("status {status}: {}", shorten(&body))));
        }
        serde_json::from_str(&body)
            .map_err(|error| fail(format!("not JSON ({error}): {}", shorten(&body))))
    }
}

/// An error with its causes: reqwest's own text leaves the reason out.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    shorten(&text)
}

fn shorten(text: &str) -> String {
    text.chars().take(MESSAGE_MAX).collect()
}

/// Both dialects put `type` and `message` under `error`; Chat has a `code` beside them.
fn refused(status: u16, body: &str) -> CallError {
    let parsed: Value = serde_json::from_str(body).unwrap_or(Value::Null);
    let error = &parsed["error"];
    let kind = error["code"].as_str().or_else(|| error["type"].as_str()).unwrap_or("no type");
    let message = error["message"].as_str().unwrap_or(body);
    CallError::Refused { status, kind: kind.to_owned(), message: shorten(message) }
}

#[cfg(test)]
mod tests;
