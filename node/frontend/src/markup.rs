//! Text with markup to pieces: reasoning, calls, and what is said.
//!
//! Markup is never shown and text is never lost: a call that cannot be read is shown as the text
//! it is. The pieces, joined, do not depend on how the text was cut. Which marks there are depends
//! on the model's [`Format`]; most are [`tagged`], one is a sequence of messages ([`harmony`]).

mod bare;
pub(crate) mod harmony;
pub(crate) mod scan;
mod tagged;
pub(crate) mod tags;

use crate::format::Format;
use crate::stream::Piece;
use crate::tools::{Call, Tools};
use harmony::Harmony;
use tagged::Tagged;

/// Arguments are told in fragments of about this many bytes.
const FRAGMENT: usize = 96;
/// A beginning of a tag this long, at the very end of an answer, is a cut tag and not text.
const CUT_TAG: usize = 5;

/// How the prompt ended, which is where the answer begins.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) enum Opening {
    /// Anything may come.
    #[default]
    Free,
    /// Text that no template framed: there is no markup in it.
    Plain,
    /// The prompt opened a reasoning block.
    Thinking,
    /// The prompt opened a call and wrote this much of it, in Hermes' form whatever the format.
    Call(String),
}

/// The parser.
pub(crate) enum Markup {
    Tagged(Tagged),
    Harmony(Harmony),
}

impl Markup {
    /// Calls are looked for only when there are `tools`; only one is taken unless `parallel`.
    pub(crate) fn new(format: Format, tools: Tools, parallel: bool, opening: Opening) -> Self {
        let told = Told::new(tools, parallel);
        match (format.tags(), opening) {
            (None, Opening::Free) => Self::Harmony(Harmony::new(told, false)),
            (None, Opening::Thinking) => Self::Harmony(Harmony::new(told, true)),
            (_, opening @ Opening::Call(_)) | (None, opening @ Opening::Plain) => {
                Self::Tagged(Tagged::new(&tags::HERMES, told, opening))
            }
            (Some(tags), opening) => Self::Tagged(Tagged::new(tags, told, opening)),
        }
    }

    /// Whether `text`, the spelling of a control token, is a mark that the format reads.
    pub(crate) fn has_mark(&self, text: &str) -> bool {
        match self {
            Self::Tagged(tagged) => tagged.has_mark(text),
            Self::Harmony(_) => harmony::MARKS.contains(&text),
        }
    }

    /// Calls told so far.
    pub(crate) fn calls(&self) -> u32 {
        match self {
            Self::Tagged(tagged) => tagged.calls(),
            Self::Harmony(harmony) => harmony.calls(),
        }
    }

    /// Nothing more will be told.
    pub(crate) fn is_done(&self) -> bool {
        match self {
            Self::Tagged(tagged) => tagged.is_done(),
            Self::Harmony(harmony) => harmony.is_done(),
        }
    }

    /// Whether the text that comes now is reasoning.
    pub(crate) fn is_thinking(&self) -> bool {
        match self {
            Self::Tagged(tagged) => tagged.is_thinking(),
            Self::Harmony(harmony) => harmony.is_thinking(),
        }
    }

    /// Takes new text.
    pub(crate) fn push(&mut self, text: &str, out: &mut Vec<Piece>) {
        match self {
            Self::Tagged(tagged) => tagged.push(text, out),
            Self::Harmony(harmony) => harmony.push(text, out),
        }
    }

    /// The end of the answer.
    pub(crate) fn finish(&mut self, out: &mut Vec<Piece>) {
        match self {
            Self::Tagged(tagged) => tagged.finish(out),
            Self::Harmony(harmony) => harmony.finish(out),
        }
    }
}

/// The calls of one answer.
struct Told {
    tools: Tools,
    parallel: bool,
    calls: u32,
}

impl Told {
    fn new(tools: Tools, parallel: bool) -> Self {
        Self { tools, parallel, calls: 0 }
    }

    /// Tells `calls`; false when no more are wanted.
    fn tell(&mut self, calls: Vec<Call>, out: &mut Vec<Piece>) -> bool {
        for call in calls {
            let index = self.calls;
            self.calls += 1;
            out.push(Piece::CallStart { index, name: call.name });
            for fragment in fragments(&call.arguments) {
                out.push(Piece::CallArguments { index, fragment: fragment.to_owned() });
            }
            if !self.parallel {
                return false;
            }
        }
        true
    }
}

/// Cuts `text` into pieces of about [`FRAGMENT`] bytes at character borders.
fn fragments(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let cut = (FRAGMENT..rest.len()).find(|&at| rest.is_char_boundary(at));
        let (head, tail) = rest.split_at(cut.unwrap_or(rest.len()));
        rest = tail;
        (!head.is_empty()).then_some(head)
    })
}

#[cfg(test)]
mod tests;
