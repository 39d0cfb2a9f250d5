//! Scripts: which prompt gets which answer, read from a text.
//!
//! TOML, one `[[answer]]` each:
//! ```toml
//! [[answer]]
//! prompt_contains = "weather"       # only to prompts with this text; left out: to any
//! turn = 1                          # only as the conversation's first answer; left out: as any
//! pace_ms = 50                      # rest after each chunk; left out: none
//! chunks = ["I look. <tool_", "call>{\"name\": \"look\", \"arguments\": {}}</tool_call>"]
//! ```
//! or JSON lines with the same keys, one answer a line; empty lines and lines that begin with `//`
//! are skipped. The first answer whose conditions all hold is played; without one the answer is
//! drawn. Each chunk is tokenised by itself and becomes one stream item, so markers split exactly
//! where the text says. Control tokens can be written out. After the last chunk comes a stop token.

#[cfg(test)]
mod tests;

use mock::Script;
use model::{Model, RenderRequest, Tokenizer};
use protocol::hash::Token;
use protocol::time::Span;
use serde::Deserialize;
use std::fmt;
use std::sync::Arc;

/// One answer, as written.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Entry {
    prompt_contains: Option<String>,
    turn: Option<u32>,
    #[serde(default)]
    pace_ms: f64,
    chunks: Vec<String>,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    answer: Vec<Entry>,
}

/// Why a script cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ScriptError {
    /// Not TOML of this form.
    #[error("not a script in TOML: {0}")]
    Toml(String),
    /// A line that is not JSON of this form.
    #[error("line {line} is not an answer in JSON: {problem}")]
    Line {
        /// From 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// A value that makes no sense.
    #[error("answer {number}: {problem}")]
    Value {
        /// From 1.
        number: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// No answers.
    #[error("no [[answer]] in it")]
    Empty,
}

/// Answers and when to give them.
pub struct Scripts {
    answers: Vec<Answer>,
    tokenizer: Tokenizer,
    /// The tokens that begin an assistant's turn; empty when the model has no template.
    turn_begins: Vec<Token>,
}

struct Answer {
    prompt_contains: Option<String>,
    turn: Option<u32>,
    script: Arc<Script>,
}

impl Scripts {
    /// Reads TOML.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_toml(text: &str, model: &Model) -> Result<Self, ScriptError> {
        let file: File =
            toml::from_str(text).map_err(|error| ScriptError::Toml(error.to_string()))?;
        Self::new(file.answer, model)
    }

    /// Reads JSON lines.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_json_lines(text: &str, model: &Model) -> Result<Self, ScriptError> {
        let line = |(index, text): (usize, &str)| {
            let problem = |e: serde_json::Error| e.to_string();
            let entry = serde_json::from_str(text).map_err(problem);
            entry.map_err(|problem| ScriptError::Line { line: index + 1, problem })
        };
        let lines = text.lines().map(str::trim).enumerate();
        let lines = lines.filter(|(_, text)| !text.is_empty() && !text.starts_with("//"));
        Self::new(lines.map(line).collect::<Result<_, _>>()?, model)
    }

    fn new(entries: Vec<Entry>, model: &Model) -> Result<Self, ScriptError> {
        if entries.is_empty() {
            return Err(ScriptError::Empty);
        }
        let tokenizer = model.tokenizer().clone();
        let read = |(index, entry): (usize, Entry)| {
            let wrong = |problem| Err(ScriptError::Value { number: index + 1, problem });
            if entry.turn == Some(0) {
                return wrong("`turn` counts from 1");
            }
            if !(0.0..=3.6e6).contains(&entry.pace_ms) {
                return wrong("`pace_ms` must be 0 to 3600000");
            }
            let chunks = entry.chunks.iter().map(|text| tokenizer.encode(text, false));
            let script = Script::new(chunks.collect(), Span::from_ms(entry.pace_ms));
            Ok(Answer {
                prompt_contains: entry.prompt_contains,
                turn: entry.turn,
                script: Arc::new(script),
            })
        };
        let answers = entries.into_iter().enumerate().map(read).collect::<Result<_, _>>()?;
        let turn_begins = tokenizer.encode(turn_begins(model).trim_end(), false);
        Ok(Self { answers, tokenizer, turn_begins })
    }

    /// The answer to a prompt. Its last `resumed` tokens are what an earlier run answered.
    pub(super) fn choose(&self, prompt: &[Token], resumed: usize) -> Option<Arc<Script>> {
        let asked = prompt.get(..prompt.len().saturating_sub(resumed)).unwrap_or(prompt);
        let by_turn = self.answers.iter().any(|answer| answer.turn.is_some());
        let turn = if by_turn { self.turn(asked) } else { 0 };
        let by_text = self.answers.iter().any(|answer| answer.prompt_contains.is_some());
        let text = if by_text { self.tokenizer.decode(asked) } else { String::new() };
        let holds = |answer: &&Answer| {
            answer.turn.is_none_or(|wanted| wanted == turn)
                && answer.prompt_contains.as_ref().is_none_or(|part| text.contains(part.as_str()))
        };
        self.answers.iter().find(holds).map(|answer| answer.script.clone())
    }

    /// Which answer of the conversation comes next, from 1: as many assistant's turns have begun.
    fn turn(&self, prompt: &[Token]) -> u32 {
        if self.turn_begins.is_empty() {
            return 1;
        }
        let begins = |window: &&[Token]| *window == self.turn_begins;
        let turns = prompt.windows(self.turn_begins.len()).filter(begins).count();
        u32::try_from(turns).unwrap_or(u32::MAX).max(1)
    }
}

/// What a template puts at the end for the assistant to go on; empty without a template.
fn turn_begins(model: &Model) -> String {
    let messages = [serde_json::json!({"role": "user", "content": "x"})];
    let render = |add_generation_prompt: bool| {
        let request = RenderRequest { messages: &messages, tools: &[], add_generation_prompt };
        model.template().render(&request).unwrap_or_default()
    };
    let (with, without) = (render(true), render(false));
    with.strip_prefix(without.as_str()).unwrap_or_default().to_owned()
}

impl fmt::Debug for Scripts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scripts({} answers)", self.answers.len())
    }
}
