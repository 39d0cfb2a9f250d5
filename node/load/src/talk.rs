//! A conversation as an agent keeps it, apart from any API dialect.

use serde_json::Value;
use std::sync::Arc;

/// A tool that the model may call.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON schema of its arguments.
    pub parameters: Value,
}

/// What every agent of a harness begins with: the part of the prompt that all of them share.
#[derive(Debug, Clone, PartialEq)]
pub struct Preamble {
    /// System prompt.
    pub system: String,
    /// Tool definitions.
    pub tools: Vec<Tool>,
}

/// A tool call made by the model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolCall {
    /// Id chosen by the server.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// Arguments: JSON text, as the model wrote it.
    pub arguments: String,
}

/// One message of the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// Said by the user, or by the harness in the user's place.
    User(String),
    /// Said by the model.
    Assistant {
        /// Its text.
        text: String,
        /// Its tool calls.
        calls: Vec<ToolCall>,
    },
    /// What a tool returned.
    ToolResult {
        /// Id of the call that it answers.
        call: String,
        /// Its output.
        text: String,
    },
}

/// The whole input of one call.
#[derive(Debug, Clone, PartialEq)]
pub struct Conversation {
    /// System prompt and tools.
    pub preamble: Arc<Preamble>,
    /// The history, oldest first.
    pub messages: Vec<Message>,
}

impl Conversation {
    /// A conversation with one question and neither system prompt nor tools.
    pub fn question(text: impl Into<String>) -> Self {
        Self {
            preamble: Arc::new(Preamble { system: String::new(), tools: Vec::new() }),
            messages: vec![Message::User(text.into())],
        }
    }
}
