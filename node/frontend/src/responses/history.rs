//! Input items to the neutral history.
//!
//! What the model said in one go comes back as several items: reasoning, text, calls. They are one
//! assistant message again, as the template knows it.

use super::tools::{TEXT_ARGUMENT, ToolTable};
use crate::ask::{self, Pin};
use crate::content::{Block, CacheControl, Content, last_pin};
use crate::error::ApiError;
use crate::json;
use crate::limits::{self, MESSAGES_MAX};
use crate::pairs::Pairs;
use crate::seal::Seal;
use model::Message;
use serde::Deserialize;
use serde_json::{Value, json};

/// One input item; only the fields that mean something to us.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Item {
    #[serde(rename = "type")]
    kind: Option<String>,
    role: Option<String>,
    content: Option<Content>,
    name: Option<String>,
    namespace: Option<String>,
    call_id: Option<String>,
    arguments: Option<Value>,
    input: Option<String>,
    output: Option<Content>,
    summary: Option<Vec<Block>>,
    encrypted_content: Option<String>,
    cache_control: Option<CacheControl>,
}

/// An assistant message that is not complete yet.
#[derive(Default)]
struct Turn {
    reasoning: String,
    text: Option<String>,
    calls: Vec<Value>,
}

/// The history as it grows.
pub(super) struct History<'a> {
    seal: &'a Seal,
    tools: &'a ToolTable,
    turn: Option<Turn>,
    pairs: Pairs,
    messages: Vec<Message>,
    pins: Vec<Pin>,
}

impl<'a> History<'a> {
    pub(super) fn new(seal: &'a Seal, tools: &'a ToolTable) -> Self {
        Self {
            seal,
            tools,
            turn: None,
            pairs: Pairs::default(),
            messages: Vec::new(),
            pins: Vec::new(),
        }
    }

    /// A message of one string.
    pub(super) fn say(&mut self, role: &str, text: String) {
        self.end_turn();
        self.messages.push(ask::message(role, text));
    }

    /// Items of the field `field`, which go on where those before them end.
    pub(super) fn items(&mut self, field: &str, items: Vec<Value>) -> Result<(), ApiError> {
        limits::at_most(field, "items", items.len(), MESSAGES_MAX)?;
        for (i, item) in items.into_iter().enumerate() {
            let at = format!("{field}[{i}]");
            if !item.is_object() {
                return Err(ApiError::field(&at, "expected an object"));
            }
            self.item(json::typed(&at, item)?, &at)?;
        }
        Ok(())
    }

    /// The messages and pins of all items.
    pub(super) fn end(mut self) -> (Vec<Message>, Vec<Pin>) {
        self.end_turn();
        self.pairs.order(&mut self.messages);
        (self.messages, self.pins)
    }

    fn item(&mut self, item: Item, at: &str) -> Result<(), ApiError> {
        let missing = |field: &str| ApiError::field(&format!("{at}.{field}"), "missing field");
        match item.kind.as_deref().unwrap_or("message") {
            "message" => self.message(item, at),
            "reasoning" => {
                let text = self.reasoning(item);
                self.turn_with(|turn| turn.text.is_none() && turn.calls.is_empty())
                    .reasoning
                    .push_str(&text);
                Ok(())
            }
            "function_call" => {
                let name = item.name.ok_or_else(|| missing("name"))?;
                let name = self.tools.shown(item.namespace.as_deref(), &name);
                let arguments = item.arguments.unwrap_or_default();
                self.call(item.call_id.as_deref(), name, arguments, at)
            }
            "custom_tool_call" => {
                let name = item.name.ok_or_else(|| missing("name"))?;
                let name = self.tools.shown(item.namespace.as_deref(), &name);
                let input = item.input.ok_or_else(|| missing("input"))?;
                let arguments = json!({ TEXT_ARGUMENT: input });
                self.call(item.call_id.as_deref(), name, arguments, at)
            }
            "function_call_output" | "custom_tool_call_output" => {
                let output = item.output.ok_or_else(|| missing("output"))?;
                let text = output.into_result(&format!("{at}.output"))?;
                self.end_turn();
                let (id, nth) = (item.call_id.as_deref(), self.messages.len());
                let tool = self.pairs.result(id, nth, &format!("{at}.call_id"))?;
                self.messages.push(ask::result(text, tool));
                self.pin(item.cache_control);
                Ok(())
            }
            // What tools of the provider's own servers did: there are none here.
            other if other.ends_with("_call") || other.ends_with("_call_output") => Ok(()),
            other => Err(ApiError::field(
                &format!("{at}.type"),
                format_args!("`{other}` is not an input item that is understood here"),
            )),
        }
    }

    fn call(
        &mut self,
        id: Option<&str>,
        name: String,
        arguments: Value,
        at: &str,
    ) -> Result<(), ApiError> {
        self.turn_with(|_| true);
        self.pairs.call(id, &name, &format!("{at}.call_id"))?;
        self.turn_with(|_| true).calls.push(ask::tool_call(name, arguments));
        Ok(())
    }

    fn message(&mut self, item: Item, at: &str) -> Result<(), ApiError> {
        let missing = |field: &str| ApiError::field(&format!("{at}.{field}"), "missing field");
        let content = item.content.ok_or_else(|| missing("content"))?;
        let pin = match &content {
            Content::Blocks(blocks) => last_pin(blocks),
            Content::Text(_) => None,
        };
        let text = content.into_text(&format!("{at}.content"))?;
        match item.role.as_deref() {
            Some("user") => self.say("user", text),
            Some("system" | "developer") => self.say("system", text),
            Some("assistant") => {
                self.turn_with(|turn| turn.text.is_none() && turn.calls.is_empty()).text =
                    Some(text);
            }
            Some(other) => {
                return Err(ApiError::field(
                    &format!("{at}.role"),
                    format_args!("`{other}` is not a role (user, assistant, system, developer)"),
                ));
            }
            None => return Err(missing("role")),
        }
        self.pin(pin.or(item.cache_control));
        Ok(())
    }

    /// The text of a reasoning item: as it is, else unsealed, else its summary, which is whole.
    fn reasoning(&self, item: Item) -> String {
        let plain = match item.content {
            Some(Content::Blocks(blocks)) => texts(blocks),
            Some(Content::Text(text)) => text,
            None => String::new(),
        };
        if !plain.is_empty() {
            return plain;
        }
        let sealed = item.encrypted_content.and_then(|sealed| self.seal.open(&sealed));
        sealed.unwrap_or_else(|| texts(item.summary.unwrap_or_default()))
    }

    /// The assistant message under way if it `fits`, else a new one.
    fn turn_with(&mut self, fits: impl Fn(&Turn) -> bool) -> &mut Turn {
        if self.turn.as_ref().is_some_and(|turn| !fits(turn)) {
            self.end_turn();
        }
        if self.turn.is_none() {
            self.pairs.turn();
        }
        self.turn.get_or_insert_default()
    }

    fn end_turn(&mut self) {
        if let Some(Turn { reasoning, text, calls }) = self.turn.take() {
            self.messages.push(ask::assistant(text.unwrap_or_default(), reasoning, calls));
        }
    }

    fn pin(&mut self, control: Option<CacheControl>) {
        if let Some(control) = control {
            let messages = self.messages.len() + usize::from(self.turn.is_some());
            self.pins.push(Pin::new(messages, &control));
        }
    }
}

fn texts(blocks: Vec<Block>) -> String {
    blocks.into_iter().filter_map(|block| block.text).collect()
}
