//! Where a rendered prompt may be cut so that its parts can be tokenised apart.

use memchr::memmem::Finder;
use model::{Processor, RenderRequest, Tokenizer};
use protocol::hash::Token;
use serde_json::json;

/// Where a model's prompts may be cut.
#[derive(Debug)]
pub(crate) struct Marks {
    /// What begins a turn: prompts are cut before it.
    pub(crate) turn: Option<Finder<'static>>,
    /// What may stand behind an answer: the special tokens that end one, and the turn marker.
    ends: Vec<String>,
}

impl Marks {
    /// The marks of a model.
    pub(crate) fn of(model: &Processor) -> Self {
        let turn = turn_marker(model);
        let tokenizer = model.tokenizer();
        let spelt = |token: &Token| {
            tokenizer.is_special(*token).then(|| tokenizer.spelling(*token)).flatten()
        };
        let stops = model.stop_tokens().iter().filter_map(spelt);
        let ends = stops.filter(|end| !end.is_empty() && is_safe(tokenizer, end));
        let ends = ends.chain(turn.clone()).collect();
        let turn = turn.map(|turn| Finder::new(turn.as_bytes()).into_owned());
        Self { turn, ends }
    }

    /// Whether `text` begins as a turn does.
    pub(crate) fn begin_turn(&self, text: &str) -> bool {
        self.turn.as_ref().is_some_and(|turn| text.as_bytes().starts_with(turn.needle()))
    }

    /// Whether a turn begins anywhere in `text`.
    pub(crate) fn has_turn(&self, text: &str) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.find(text.as_bytes()).is_some())
    }

    /// Whether an answer may be cut off before `text`: a special token that no text before it
    /// changes stands there.
    pub(crate) fn end_answer(&self, text: &str) -> bool {
        self.ends.iter().any(|end| text.starts_with(end.as_str()))
    }
}

/// The special token with which the model's template begins a turn (`<|im_start|>`, say), if
/// tokens before and after it never depend on each other.
///
/// Tokenizers take special tokens out of the text before anything else, so the text may be cut
/// before each of them; whether this one is of that kind is tried on a few texts rather than
/// trusted (some strip white space around them).
pub(crate) fn turn_marker(model: &Processor) -> Option<String> {
    let messages = [json!({"role": "user", "content": "x"})];
    let render = |add_generation_prompt| {
        let request = RenderRequest { messages: &messages, tools: &[], add_generation_prompt };
        model.template().render(&request).ok()
    };
    let (with, without) = (render(true)?, render(false)?);
    let turn = with.strip_prefix(&without)?;
    let tokenizer = model.tokenizer();
    let first = *tokenizer.encode(turn, false).first()?;
    let marker = tokenizer.is_special(first).then(|| tokenizer.spelling(first)).flatten()?;
    (turn.starts_with(&marker) && is_safe(tokenizer, &marker)).then_some(marker)
}

fn is_safe(tokenizer: &Tokenizer, marker: &str) -> bool {
    const BEFORE: [&str; 7] = ["a", "a ", "a\n", " ", "a\u{301}", "1", "x<"];
    const AFTER: [&str; 5] = ["", "user\nb", " b", "\n", "\u{301}"];
    BEFORE.iter().all(|before| {
        AFTER.iter().all(|after| {
            let after = format!("{marker}{after}");
            let mut apart: Vec<Token> = tokenizer.encode(before, false);
            apart.extend(tokenizer.encode(&after, false));
            tokenizer.encode(&format!("{before}{after}"), false) == apart
        })
    })
}

/// Where the marker stands in `text`.
fn hits<'a>(
    text: &'a str,
    marker: Option<&'a Finder<'static>>,
) -> impl Iterator<Item = usize> + 'a {
    marker.into_iter().flat_map(|marker| marker.find_iter(text.as_bytes()))
}

/// The parts of `text`, each but the first beginning with `marker`; none is empty.
pub(crate) fn parts<'a>(text: &'a str, marker: Option<&Finder<'static>>) -> Vec<&'a str> {
    let (mut parts, mut begin) = (Vec::new(), 0);
    for cut in hits(text, marker).chain([text.len()]) {
        parts.extend(text.get(begin..cut).filter(|part| !part.is_empty()));
        begin = cut;
    }
    parts
}

/// The text up to the end of the first `parts` parts that begin with `marker`, where another one
/// follows.
pub(crate) fn beginning<'a>(
    text: &'a str,
    marker: Option<&Finder<'static>>,
    parts: usize,
) -> Option<&'a str> {
    text.get(..hits(text, marker).nth(parts)?)
}
