//! How a model writes reasoning and calls.
//!
//! Decided once per model, from the text of its chat template and the tokens of its vocabulary.

use crate::markup::tags::{self, Tags};
use std::fmt;
use std::str::FromStr;

/// A family of models that write alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Format {
    /// `<tool_call>{"name": …, "arguments": …}</tool_call>`, `<think>`: Hermes, Qwen, and every
    /// model of which nothing is known.
    #[default]
    Hermes,
    /// `<tool_call><function=…><parameter=…>`: Qwen3-Coder and later Qwens.
    QwenCoder,
    /// `{"name": …, "parameters": …}` or `[f(a=1)]`, with or without `<|python_tag|>`: Llama 3, 4.
    Llama,
    /// `[TOOL_CALLS]`, `[THINK]`: Mistral.
    Mistral,
    /// `<｜tool▁calls▁begin｜>`: DeepSeek V3, V3.1, R1.
    DeepSeek,
    /// Channels and recipients: gpt-oss.
    Harmony,
    /// `<|tool_calls_section_begin|>`: Kimi K2.
    Kimi,
    /// `<tool_call>name<arg_key>…</arg_key><arg_value>…`: GLM 4.5 and later.
    Glm,
    /// `<minimax:tool_call><invoke name="…">`: MiniMax.
    MiniMax,
    /// `<|tool_call|>[…]`: Granite 3.
    Granite,
}

/// Opens DeepSeek's section of calls.
pub(crate) const DEEPSEEK_CALLS: &str = "<｜tool▁calls▁begin｜>";
/// Opens Kimi's section of calls.
pub(crate) const KIMI_CALLS: &str = "<|tool_calls_section_begin|>";
/// Opens MiniMax's section of calls.
pub(crate) const MINIMAX_CALLS: &str = "<minimax:tool_call>";
/// Opens Granite's list of calls.
pub(crate) const GRANITE_CALLS: &str = "<|tool_call|>";

/// What a template, or else a vocabulary, must hold for a format; the first that fits counts.
/// Special words come before words that other families use in passing.
const SIGNS: [(Format, &[&str]); 10] = [
    (Format::Harmony, &["<|channel|>", "<|message|>"]),
    (Format::Kimi, &[KIMI_CALLS]),
    (Format::DeepSeek, &[DEEPSEEK_CALLS]),
    (Format::MiniMax, &[MINIMAX_CALLS]),
    (Format::Glm, &["<arg_key>"]),
    (Format::QwenCoder, &["<function=", "<parameter="]),
    (Format::Mistral, &["[TOOL_CALLS]"]),
    (Format::Granite, &[GRANITE_CALLS]),
    (Format::Llama, &["<|start_header_id|>"]),
    (Format::Llama, &["<|python_start|>"]),
];

impl Format {
    /// Every format with its name.
    pub const NAMED: [(&'static str, Self); 10] = [
        ("hermes", Self::Hermes),
        ("qwen-coder", Self::QwenCoder),
        ("llama", Self::Llama),
        ("mistral", Self::Mistral),
        ("deepseek", Self::DeepSeek),
        ("harmony", Self::Harmony),
        ("kimi", Self::Kimi),
        ("glm", Self::Glm),
        ("minimax", Self::MiniMax),
        ("granite", Self::Granite),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMED.iter().find(|(_, format)| *format == self).map_or("", |(name, _)| name)
    }

    /// The format of a model.
    pub fn of(model: &model::Processor) -> Self {
        let template = model.template();
        let format = Self::detect(template.source().unwrap_or_default(), |token| {
            model.tokenizer().token(token).is_some()
        });
        // Where the template has no words for tools, the model is told of them in Hermes' way.
        let told = template.renders_tools() || format == Self::Harmony;
        if told { format } else { Self::Hermes }
    }

    /// By the template's text, else by the tokens that the vocabulary has.
    fn detect(template: &str, token: impl Fn(&str) -> bool) -> Self {
        let fits = |has: &dyn Fn(&str) -> bool| {
            SIGNS.iter().find(|(_, signs)| signs.iter().all(|sign| has(sign))).map(|(f, _)| *f)
        };
        let by_template = fits(&|sign| template.contains(sign));
        // A template that writes calls in Hermes' way means it, whatever the vocabulary has.
        let hermes = template.contains("<tool_call>");
        match by_template {
            Some(Self::Llama) if hermes => Self::Hermes,
            Some(format) => format,
            None if hermes => Self::Hermes,
            None => fits(&token).unwrap_or_default(),
        }
    }

    /// The marks; `None` for a format that is not made of marks around what is said.
    pub(crate) fn tags(self) -> Option<&'static Tags> {
        Some(match self {
            Self::Harmony => return None,
            Self::Hermes | Self::Glm => &tags::HERMES,
            Self::QwenCoder => &tags::QWEN_CODER,
            Self::Llama => &tags::LLAMA,
            Self::Mistral => &tags::MISTRAL,
            Self::DeepSeek => &tags::DEEPSEEK,
            Self::Kimi => &tags::KIMI,
            Self::MiniMax => &tags::MINIMAX,
            Self::Granite => &tags::GRANITE,
        })
    }

    /// The mark that closes reasoning, if the prompt `text` ends with the mark that opens it.
    pub(crate) fn thinks_at_end_of(self, text: &str) -> Option<&'static str> {
        let text = text.trim_end();
        let pairs = self.tags().map_or(crate::markup::harmony::REASONING, |tags| tags.reasoning);
        pairs.iter().find(|(open, _)| text.ends_with(open)).map(|(_, close)| *close)
    }
}

/// There is no format of this name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownFormat(String);

impl fmt::Display for UnknownFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Format::NAMED.map(|(name, _)| name).join(", ");
        write!(f, "unknown answer format {:?}: there are {names}", self.0)
    }
}

impl std::error::Error for UnknownFormat {}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        let named = Self::NAMED.iter().find(|(known, _)| *known == name);
        named.map(|(_, format)| *format).ok_or_else(|| UnknownFormat(name.to_owned()))
    }
}

#[cfg(test)]
mod tests;
