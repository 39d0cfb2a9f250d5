//! Chat templates: messages to the text that the model was trained on.
//!
//! Templates are Jinja, written for Python's transformers; [`python`] makes minijinja behave the
//! same. Where a template cannot say something (tools, tool results, a system message in the
//! middle), [`fold`] says it in words the template has. What it can say is found out by [`probe`]
//! when the model is opened.
//!
//! The prefix property holds wherever the template itself keeps it: the rendering of a history
//! without generation prompt is the beginning of the rendering of every longer history.

mod fold;
mod history;
mod json;
mod message;
mod object;
mod probe;
mod python;
mod shape;
#[cfg(test)]
mod tests;

pub use fold::{TOOL_CALL, TOOL_RESPONSE};
pub use message::{AsMessage, Message};
pub use python::Date;
pub use shape::Shape;

use minijinja::{Environment, Value};
use probe::Skills;
use std::borrow::Cow;
use std::fmt;

/// What is to be rendered.
#[derive(Debug)]
pub struct RenderRequest<'a, M = serde_json::Value> {
    /// Objects with `role`, `content` (string or text parts), and where they apply `tool_calls`,
    /// `tool_call_id`, `name`, `reasoning_content`. Other keys are left out.
    pub messages: &'a [M],
    /// Tool definitions as `{"type": "function", "function": {…}}`; the same in every turn of a
    /// conversation.
    pub tools: &'a [M],
    /// Whether the text ends with the beginning of an assistant turn.
    pub add_generation_prompt: bool,
}

/// Why a conversation cannot be rendered.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The model has no chat template.
    #[error("the model has no chat template: use a completions request, or a model tuned for chat")]
    Absent,
    /// There is nothing to render.
    #[error("messages is empty: give at least one message")]
    Empty,
    /// A message has not the shape it must have.
    #[error("messages[{index}]: {problem}")]
    Message {
        /// Which message, from 0.
        index: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// The template itself refuses the conversation.
    #[error("the model's chat template refuses this conversation: {0}")]
    Refused(String),
    /// The template broke while rendering.
    #[error("the model's chat template failed: {0}")]
    Failed(String),
}

/// A model's chat template, compiled, with what is known about its abilities.
pub struct ChatTemplate {
    source: Option<String>,
    environment: Environment<'static>,
    specials: Vec<(String, String)>,
    skills: Skills,
}

/// Instructions that one rendering may cost; a long agent history takes well under a million.
const FUEL: u64 = 200_000_000;
const NAME: &str = "chat";

impl ChatTemplate {
    /// Compiles `source`. `specials` are the variables that templates may use for special tokens
    /// (`bos_token`, `eos_token`, …); `today` is what `strftime_now` tells: without it templates
    /// see no such function. The error is the compiler's, with the line.
    pub(crate) fn compile(
        source: Option<&str>,
        specials: Vec<(String, String)>,
        today: Option<Date>,
    ) -> Result<Self, String> {
        let mut environment = python::environment(today);
        environment.set_fuel(Some(FUEL));
        if let Some(source) = source {
            let source = python::without_generation_marks(source);
            environment.add_template_owned(NAME, source).map_err(|e| describe(&e))?;
        }
        let source = source.map(str::to_owned);
        let skills = Skills::default();
        let mut template = Self { source, environment, specials, skills };
        template.skills = probe::skills(&template);
        Ok(template)
    }

    /// The template's text, if the model has one.
    pub fn source(&self) -> Option<&str> {
        self.source.as_deref()
    }

    /// Its variables for special tokens.
    pub(crate) fn specials(&self) -> &[(String, String)] {
        &self.specials
    }

    /// Whether the template renders tool definitions by itself.
    pub fn renders_tools(&self) -> bool {
        self.skills.tools
    }

    /// The text of a conversation.
    pub fn render<M: AsMessage>(
        &self,
        request: &RenderRequest<'_, M>,
    ) -> Result<String, TemplateError> {
        if self.source.is_none() {
            return Err(TemplateError::Absent);
        }
        if request.messages.is_empty() {
            return Err(TemplateError::Empty);
        }
        let messages = fold::messages(request, &self.skills)?;
        let mut length = 0;
        let mut value = |(index, message): fold::Folded<'_>| {
            let (value, shape) = match (message, request.messages.get(index)) {
                // As it was given.
                (Cow::Borrowed(_), Some(given)) => (given.value(), given.shape()),
                (json, _) => (json.value(), json.shape()),
            };
            length += shape.rendered();
            value
        };
        let messages: Vec<Value> = messages.into_iter().map(&mut value).collect();
        let tools: &[M] = if self.skills.tools { request.tools } else { &[] };
        self.render_values(messages.into(), tools, request.add_generation_prompt, length)
    }

    /// The template applied to exactly these messages and tools.
    fn render_raw(
        &self,
        messages: &[serde_json::Value],
        tools: &[serde_json::Value],
        add_generation_prompt: bool,
    ) -> Result<String, TemplateError> {
        let messages = messages.iter().map(json::to_value).collect();
        self.render_values(messages, tools, add_generation_prompt, 0)
    }

    fn render_values(
        &self,
        messages: Value,
        tools: &[impl AsMessage],
        add_generation_prompt: bool,
        length: usize,
    ) -> Result<String, TemplateError> {
        let template = self.environment.get_template(NAME).map_err(|_| TemplateError::Absent)?;
        // transformers passes None, not an empty list.
        let tools = match tools {
            [] => Value::from(()),
            tools => tools.iter().map(AsMessage::value).collect(),
        };
        let mut context: Vec<(Cow<'_, str>, Value)> = vec![
            ("messages".into(), messages),
            ("tools".into(), tools),
            ("documents".into(), Value::from(())),
            ("add_generation_prompt".into(), add_generation_prompt.into()),
        ];
        let special = |(name, text): &(String, String)| {
            (Cow::Owned(name.clone()), Value::from(text.as_str()))
        };
        context.extend(self.specials.iter().map(special));
        let context = Value::from_pairs(context);
        // Long histories would have the text grow, and be copied, many times.
        let mut text = Vec::with_capacity(length);
        let rendered = template.render_captured_to(context, &mut text).map(|_| ());
        rendered.map_err(|e| match e.kind() {
            minijinja::ErrorKind::OutOfFuel => {
                TemplateError::Failed("it takes more work than any conversation needs".into())
            }
            _ => match python::raised(&e) {
                Some(message) => TemplateError::Refused(message),
                None => TemplateError::Failed(describe(&e)),
            },
        })?;
        String::from_utf8(text).map_err(|e| TemplateError::Failed(e.to_string()))
    }
}

/// An error with its line and causes, in one line of text.
fn describe(error: &minijinja::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text.push_str(&format!("; {inner}"));
        cause = inner.source();
    }
    text
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.source.as_ref().map_or(0, String::len);
        write!(f, "ChatTemplate({bytes} bytes, {:?})", self.skills)
    }
}
