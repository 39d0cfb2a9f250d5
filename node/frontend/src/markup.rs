//! Text with markup to pieces: `<think>…</think>` becomes reasoning, `<tool_call>…</tool_call>`
//! becomes calls.
//!
//! Markup is never shown and text is never lost: a call that cannot be read is shown as the text
//! it is. The pieces, joined, do not depend on how the text was cut.

use crate::stop::overlap;
use crate::stream::Piece;
use crate::tools::{self, Met, TagScanner};

/// Opens reasoning.
pub(crate) const THINK: &str = "<think>";
/// Closes reasoning.
pub(crate) const THOUGHT: &str = "</think>";
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
    /// The prompt opened a call and wrote this much of it.
    Call(String),
}

/// White space to leave out before the next text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Skip {
    Nothing,
    Newlines,
    White,
}

enum State {
    /// Only white space so far: reasoning may begin here and nowhere else.
    Start,
    Text,
    Think,
    /// Whatever comes is text.
    Plain,
    /// Inside a call; `thinking` when reasoning was not closed before it.
    Call {
        thinking: bool,
    },
    /// One call was wanted and has come.
    Done,
}

/// The parser.
pub(crate) struct Markup {
    tools: bool,
    parallel: bool,
    state: State,
    skip: Skip,
    /// What is not told yet.
    held: String,
    /// White space before a call, told only if the call turns out to be text.
    lead: String,
    scanner: TagScanner,
    calls: u32,
}

impl Markup {
    /// Calls are looked for only when `tools` were given; only one is taken unless `parallel`.
    pub(crate) fn new(tools: bool, parallel: bool, opening: Opening) -> Self {
        let (state, skip, held) = match opening {
            Opening::Free => (State::Start, Skip::Nothing, String::new()),
            Opening::Plain => (State::Plain, Skip::Nothing, String::new()),
            Opening::Thinking => (State::Think, Skip::Newlines, String::new()),
            Opening::Call(text) => (State::Call { thinking: false }, Skip::Nothing, text),
        };
        let (lead, scanner) = (String::new(), TagScanner::default());
        Self { tools, parallel, state, skip, held, lead, scanner, calls: 0 }
    }

    /// Calls told so far.
    pub(crate) fn calls(&self) -> u32 {
        self.calls
    }

    /// Nothing more will be told.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Whether the text that comes now is reasoning.
    pub(crate) fn is_thinking(&self) -> bool {
        matches!(self.state, State::Think | State::Call { thinking: true })
    }

    /// Takes new text.
    pub(crate) fn push(&mut self, text: &str, out: &mut Vec<Piece>) {
        self.held.push_str(text);
        while self.step(out) {}
    }

    /// The end of the answer.
    pub(crate) fn finish(&mut self, out: &mut Vec<Piece>) {
        while self.step(out) {}
        while let State::Call { thinking } = self.state {
            let held = std::mem::take(&mut self.held);
            let (inner, rest) = match held.split_once(tools::CLOSE) {
                Some((inner, rest)) if tools::read_calls(&held).is_none() => (inner, rest),
                _ => (&held[..held.len() - overlap(&held, tools::CLOSE)], ""),
            };
            self.settle(inner, thinking, out);
            self.held = rest.to_owned();
            while self.step(out) {}
        }
        let mut rest = std::mem::take(&mut self.held);
        let tags = if matches!(self.state, State::Plain) { &[] } else { self.tags() };
        let cut = tags.iter().map(|tag| overlap(&rest, tag)).max().unwrap_or(0);
        if cut >= CUT_TAG {
            rest.truncate(rest.len() - cut);
        }
        match self.state {
            State::Think => self.tell(rest.trim_end(), out),
            State::Start | State::Text | State::Plain => self.tell(&rest, out),
            State::Call { .. } | State::Done => {}
        }
    }

    /// Goes on by one tag; false when more text is needed.
    fn step(&mut self, out: &mut Vec<Piece>) -> bool {
        match self.state {
            State::Start => {
                let text = self.held.trim_start();
                if let Some(rest) = text.strip_prefix(THINK) {
                    self.held = rest.to_owned();
                    (self.state, self.skip) = (State::Think, Skip::Newlines);
                } else if THINK.starts_with(text) {
                    return false;
                } else {
                    self.state = State::Text;
                }
                true
            }
            State::Plain => {
                let text = std::mem::take(&mut self.held);
                self.tell(&text, out);
                false
            }
            State::Text | State::Think => self.plain(out),
            State::Call { thinking } => self.call(thinking, out),
            State::Done => {
                self.held.clear();
                false
            }
        }
    }

    /// The tags that mean something in the present state.
    fn tags(&self) -> &'static [&'static str] {
        match (&self.state, self.tools) {
            (State::Text, true) => &[tools::OPEN, tools::CLOSE],
            (State::Think, true) => &[THOUGHT, tools::OPEN],
            (State::Think, false) => &[THOUGHT],
            _ => &[],
        }
    }

    fn plain(&mut self, out: &mut Vec<Piece>) -> bool {
        let trimmed = match self.skip {
            Skip::Nothing => self.held.as_str(),
            Skip::Newlines => self.held.trim_start_matches(['\n', '\r']),
            Skip::White => self.held.trim_start(),
        };
        if trimmed.is_empty() {
            self.held.clear();
            return false;
        }
        self.held = trimmed.to_owned();
        self.skip = Skip::Nothing;
        let found = self.tags().iter().filter_map(|tag| Some((self.held.find(tag)?, *tag))).min();
        let held = std::mem::take(&mut self.held);
        let Some((at, tag)) = found else {
            let tags = self.tags();
            let hold = tags.iter().map(|tag| overlap(&held, tag)).max().unwrap_or(0);
            let mut cut = held.len() - hold;
            if !tags.is_empty() {
                // White space before a tag belongs to the tag.
                cut = held[..cut].trim_end().len();
            }
            self.tell(&held[..cut], out);
            self.held = held[cut..].to_owned();
            return false;
        };
        let (before, after) = (&held[..at], &held[at + tag.len()..]);
        self.held = after.to_owned();
        if tag == tools::CLOSE {
            // A stray end: nothing was open.
            self.tell(before, out);
            return true;
        }
        let text = before.trim_end();
        self.tell(text, out);
        if tag == THOUGHT {
            (self.state, self.skip) = (State::Text, Skip::Newlines);
        } else {
            self.lead = before[text.len()..].to_owned();
            self.state = State::Call { thinking: matches!(self.state, State::Think) };
            self.scanner = TagScanner::default();
        }
        true
    }

    fn call(&mut self, thinking: bool, out: &mut Vec<Piece>) -> bool {
        let (at, tag, again) = match self.scanner.scan(&self.held) {
            None => return false,
            Some(Met::Close(at)) => (at, tools::CLOSE, false),
            Some(Met::Open(at)) => (at, tools::OPEN, true),
        };
        let held = std::mem::take(&mut self.held);
        // What looked like a string around the end of a call was none if this is no call.
        let early = held[..at].find(tools::CLOSE);
        let early = early.filter(|_| tools::read_calls(&held[..at]).is_none());
        let (at, tag, again) = early.map_or((at, tag, again), |at| (at, tools::CLOSE, false));
        self.settle(&held[..at], thinking, out);
        self.held = held[at + tag.len()..].to_owned();
        if again && !self.is_done() {
            self.state = State::Call { thinking };
        }
        self.scanner = TagScanner::default();
        true
    }

    /// Tells what stood between the tags: calls, or else the text it is.
    fn settle(&mut self, inner: &str, thinking: bool, out: &mut Vec<Piece>) {
        self.state = if thinking { State::Think } else { State::Text };
        let lead = std::mem::take(&mut self.lead);
        let Some(calls) = tools::read_calls(inner) else {
            let text = inner.trim();
            // An opening tag alone is all that was said.
            let text = if text.is_empty() { tools::OPEN } else { text };
            self.skip = Skip::Nothing;
            self.tell(&format!("{lead}{text}"), out);
            return;
        };
        self.skip = Skip::White;
        for call in calls {
            let index = self.calls;
            self.calls += 1;
            out.push(Piece::CallStart { index, name: call.name });
            for fragment in fragments(&call.arguments) {
                out.push(Piece::CallArguments { index, fragment: fragment.to_owned() });
            }
            if !self.parallel {
                self.state = State::Done;
                return;
            }
        }
    }

    fn tell(&self, text: &str, out: &mut Vec<Piece>) {
        if text.is_empty() {
            return;
        }
        let text = text.to_owned();
        out.push(match self.state {
            State::Think => Piece::Reasoning(text),
            _ => Piece::Text(text),
        });
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
