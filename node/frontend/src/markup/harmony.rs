//! Harmony (gpt-oss): an answer is a sequence of messages, each with a channel and perhaps a
//! recipient: `<|start|>assistant<|channel|>commentary to=functions.f<|message|>{…}<|call|>`.
//!
//! The analysis channel is reasoning, what is sent to a function is a call, all else is said.

use super::scan::{Scanner, Starts, Until};
use super::{CUT_TAG, Told};
use crate::stop::overlap;
use crate::stream::Piece;
use crate::tools::{Call, json};
use serde_json::Map;

const START: &str = "<|start|>";
const CHANNEL: &str = "<|channel|>";
const MESSAGE: &str = "<|message|>";
const CONSTRAIN: &str = "<|constrain|>";
const END: &str = "<|end|>";
const CALL: &str = "<|call|>";
const RETURN: &str = "<|return|>";

/// All marks.
pub(super) const MARKS: [&str; 7] = [START, CHANNEL, MESSAGE, CONSTRAIN, END, CALL, RETURN];
/// What opens and closes reasoning, as far as a prompt may have opened it.
pub(crate) const REASONING: &[(&str, &str)] = &[("<|channel|>analysis<|message|>", END)];
/// The longest header that is waited for, in bytes.
const HEADER_MAX: usize = 512;
/// No mark is longer, in bytes.
const MARK_MAX: usize = 16;
/// Words that a header is made of.
const WORDS: [&str; 5] = ["assistant", "analysis", "commentary", "final", "json"];
/// Before the recipient in a header, and before the name of a function in a recipient.
const TO: &str = "to=";
const FUNCTIONS: &str = "functions.";

enum State {
    /// Before a header, which the prompt may have begun.
    Between {
        first: bool,
    },
    Header,
    Reasoning,
    Said,
    /// A call of this function.
    Call(String),
    /// One call was wanted and has come.
    Done,
}

/// The parser.
pub(crate) struct Harmony {
    told: Told,
    state: State,
    /// What is not told yet.
    held: String,
    scanner: Scanner,
    /// There was text, or reasoning, in an earlier message.
    said: bool,
    thought: bool,
    /// Nothing of this message has been told.
    fresh: bool,
}

impl Harmony {
    pub(super) fn new(told: Told, thinking: bool) -> Self {
        let state = if thinking { State::Reasoning } else { State::Between { first: true } };
        let (held, scanner) = (String::new(), call_scanner());
        Self { told, state, held, scanner, said: false, thought: false, fresh: true }
    }

    pub(super) fn calls(&self) -> u32 {
        self.told.calls
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    pub(super) fn is_thinking(&self) -> bool {
        matches!(self.state, State::Reasoning)
    }

    pub(super) fn push(&mut self, text: &str, out: &mut Vec<Piece>) {
        self.held.push_str(text);
        while self.step(out) {}
    }

    pub(super) fn finish(&mut self, out: &mut Vec<Piece>) {
        while self.step(out) {}
        while let State::Call(name) = &self.state {
            let name = name.clone();
            let held = std::mem::take(&mut self.held);
            let (inner, rest) = match first_mark(&held) {
                Some((at, _)) if json::read_arguments(&held).is_none() => held.split_at(at),
                _ => held.split_at(held.len() - cut_mark(&held)),
            };
            let whole = !rest.is_empty();
            self.held = rest.to_owned();
            self.settle(&name, inner, whole, out);
            while self.step(out) {}
        }
        let mut rest = std::mem::take(&mut self.held);
        let cut = cut_mark(&rest);
        if cut >= CUT_TAG {
            rest.truncate(rest.len() - cut);
        }
        match self.state {
            State::Between { .. } | State::Header if is_frame(&rest) => {}
            State::Between { .. } | State::Header => self.tell_header(&rest, out),
            _ => self.tell(&rest, out),
        }
    }

    /// Goes on by one mark; false when more text is needed.
    fn step(&mut self, out: &mut Vec<Piece>) -> bool {
        match &self.state {
            State::Between { first } => self.between(*first),
            State::Header => self.header(out),
            State::Reasoning | State::Said => self.body(out),
            State::Call(name) => {
                let name = name.clone();
                self.call(&name, out)
            }
            State::Done => {
                self.held.clear();
                false
            }
        }
    }

    fn enter(&mut self, state: State) {
        self.fresh = true;
        self.state = state;
    }

    fn between(&mut self, first: bool) -> bool {
        let text = self.held.trim_start();
        // Models leave out the mark before the role now and then.
        let role = if first { None } else { Some("assistant") };
        let headers = [START, CHANNEL, MESSAGE, CONSTRAIN, TO];
        let header = Starts::with_any(text, headers.into_iter().chain(role));
        let end = [END, CALL, RETURN].into_iter().find(|mark| text.starts_with(mark));
        if let Some(mark) = end {
            self.held = text.get(mark.len()..).unwrap_or_default().to_owned();
            return true;
        }
        match header.or(Starts::with_any(text, [END, CALL, RETURN].into_iter())) {
            Starts::Yes => self.enter(State::Header),
            Starts::Maybe => return false,
            Starts::No => self.enter(State::Said),
        }
        true
    }

    fn header(&mut self, out: &mut Vec<Piece>) -> bool {
        let end = [MESSAGE, END, CALL, RETURN];
        let found = end.iter().filter_map(|mark| Some((self.held.find(mark)?, *mark))).min();
        let Some((at, mark)) = found.filter(|(at, _)| *at <= HEADER_MAX) else {
            // A mark that begins within the limit would be whole by now.
            if self.held.len() <= HEADER_MAX + MARK_MAX {
                return false;
            }
            let at = (0..=HEADER_MAX).rev().find(|at| self.held.is_char_boundary(*at));
            let rest = self.held.split_off(at.unwrap_or_default());
            let header = std::mem::replace(&mut self.held, rest);
            self.tell_header(&header, out);
            return true;
        };
        let held = std::mem::take(&mut self.held);
        let (header, rest) = held.split_at(at);
        if mark == MESSAGE {
            self.held = rest.get(mark.len()..).unwrap_or_default().to_owned();
            let state = self.read_header(header);
            self.enter(state);
        } else {
            self.held = rest.to_owned();
            if !is_frame(header) {
                self.tell_header(header, out);
            }
            self.enter(State::Between { first: false });
        }
        true
    }

    /// What a message with this header is.
    fn read_header(&mut self, header: &str) -> State {
        let header = header.rsplit(START).next().unwrap_or_default();
        let word_after = |mark: &str| {
            let (_, after) = header.split_once(mark)?;
            after.split(|c: char| c.is_whitespace() || c == '<').find(|word| !word.is_empty())
        };
        if let Some(to) = word_after(TO).filter(|_| !self.told.tools.is_empty()) {
            let function = to.strip_prefix(FUNCTIONS);
            if let Some(name) = function.or_else(|| Some(to).filter(|to| self.told.tools.has(to))) {
                self.scanner = call_scanner();
                return State::Call(name.to_owned());
            }
        }
        match word_after(CHANNEL) {
            Some("analysis") => State::Reasoning,
            _ => State::Said,
        }
    }

    fn body(&mut self, out: &mut Vec<Piece>) -> bool {
        let held = std::mem::take(&mut self.held);
        let Some((at, mark)) = first_mark(&held) else {
            let (text, rest) = held.split_at(held.len() - cut_mark(&held));
            self.tell(text, out);
            self.held = rest.to_owned();
            return false;
        };
        let (text, rest) = held.split_at(at);
        self.tell(text, out);
        let after = rest.get(mark.len()..).unwrap_or_default();
        match mark {
            START | CHANNEL => {
                self.held = rest.to_owned();
                self.enter(State::Header);
            }
            // They mean nothing here.
            MESSAGE | CONSTRAIN => self.held = after.to_owned(),
            _ => {
                self.held = after.to_owned();
                self.enter(State::Between { first: false });
            }
        }
        true
    }

    fn call(&mut self, name: &str, out: &mut Vec<Piece>) -> bool {
        let Some(end) = self.scanner.scan(&self.held) else {
            return false;
        };
        let held = std::mem::take(&mut self.held);
        let (mut inner, mut rest) = held.split_at(end.at);
        // What looked like a string around a mark was none if this is no call.
        if let Some((early, _)) = first_mark(inner)
            && json::read_arguments(inner).is_none()
        {
            (inner, rest) = held.split_at(early);
        }
        self.held = rest.to_owned();
        self.settle(name, inner, true, out);
        true
    }

    /// Tells a call, or else the text it is. One that is `whole` may have no arguments.
    fn settle(&mut self, name: &str, inner: &str, whole: bool, out: &mut Vec<Piece>) {
        let none = whole && inner.trim().is_empty();
        let arguments = if none { Some(Map::new()) } else { json::read_arguments(inner) };
        let arguments = arguments.filter(|_| self.told.tools.may_call(name));
        if let Some(call) = arguments.and_then(|arguments| Call::new(name, arguments)) {
            let more = self.told.tell(vec![call], out);
            self.enter(if more { State::Between { first: false } } else { State::Done });
            return;
        }
        self.enter(State::Said);
        // A recipient alone is all that was said.
        self.tell(if inner.trim().is_empty() { name } else { inner }, out);
    }

    fn tell_header(&mut self, header: &str, out: &mut Vec<Piece>) {
        let text = MARKS.iter().fold(header.to_owned(), |text, mark| text.replace(mark, ""));
        self.enter(State::Said);
        self.tell(&text, out);
    }

    fn tell(&mut self, text: &str, out: &mut Vec<Piece>) {
        if text.is_empty() {
            return;
        }
        let reasoning = matches!(self.state, State::Reasoning);
        let before = if reasoning { &mut self.thought } else { &mut self.said };
        // Messages are lines of their own.
        let line = if self.fresh && *before { "\n" } else { "" };
        (*before, self.fresh) = (true, false);
        let text = format!("{line}{text}");
        out.push(if reasoning { Piece::Reasoning(text) } else { Piece::Text(text) });
    }
}

fn call_scanner() -> Scanner {
    Scanner::new(Until::Mark(CALL), &[END, RETURN, START, CHANNEL])
}

fn first_mark(text: &str) -> Option<(usize, &'static str)> {
    MARKS.iter().filter_map(|mark| Some((text.find(mark)?, *mark))).min()
}

/// Bytes at the end of `text` that may be the beginning of a mark.
fn cut_mark(text: &str) -> usize {
    MARKS.iter().map(|mark| overlap(text, mark)).max().unwrap_or(0)
}

/// Whether a word can be who a message is for.
fn is_recipient(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}

/// Whether a header that leads nowhere says nothing.
fn is_frame(header: &str) -> bool {
    let bare = MARKS.iter().fold(header.to_owned(), |text, mark| text.replace(mark, " "));
    header.contains("<|")
        && bare.split_whitespace().all(|word| {
            word.strip_prefix(TO).is_some_and(is_recipient)
                || WORDS.iter().chain([&TO]).any(|w| w.starts_with(word))
        })
        || bare.trim().is_empty()
}
