//! Calls in XML-like tags: a name, then keys and values, each between tags of its own.
//!
//! Values are not escaped, so one may hold the very tags that end it. A value therefore ends at
//! its closing tag only where the next tag of the call follows.

use super::{Call, Tools, typed};
use crate::markup::scan::Starts;
use serde_json::Map;

/// The tags of one form.
#[derive(Debug)]
pub(crate) struct Xml {
    /// Before the name. Empty where the name stands first.
    pub(crate) open: &'static str,
    /// After the name. Empty where the first key or the end is what ends a name.
    pub(crate) named: &'static str,
    /// Before a key.
    pub(crate) key: &'static str,
    /// Between key and value; white space may stand between its parts.
    pub(crate) value: &'static [&'static str],
    /// After a value.
    pub(crate) end: &'static str,
    /// After the call. Empty where the mark around the call is what ends it.
    pub(crate) close: &'static str,
    /// A mark around calls that may end one too.
    pub(crate) outer: &'static str,
    pub(crate) lines: Lines,
}

/// Line breaks around a value that belong to the tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lines {
    /// None.
    Kept,
    /// One before and one after, each by itself.
    Cut,
    /// One before and one after where both are there.
    CutPairs,
}

/// `<function=f><parameter=a>…</parameter></function>` (Qwen3-Coder).
pub(crate) const FUNCTION: Xml = Xml {
    open: "<function=",
    named: ">",
    key: "<parameter=",
    value: &[">"],
    end: "</parameter>",
    close: "</function>",
    outer: "</tool_call>",
    lines: Lines::Cut,
};

/// `<invoke name="f"><parameter name="a">…</parameter></invoke>` (MiniMax).
pub(crate) const INVOKE: Xml = Xml {
    open: "<invoke name=\"",
    named: "\">",
    key: "<parameter name=\"",
    value: &["\">"],
    end: "</parameter>",
    close: "</invoke>",
    outer: "</minimax:tool_call>",
    lines: Lines::CutPairs,
};

/// `f<arg_key>a</arg_key><arg_value>…</arg_value>` between `<tool_call>` tags (GLM).
pub(crate) const ARGUMENTS: Xml = Xml {
    open: "",
    named: "",
    key: "<arg_key>",
    value: &["</arg_key>", "<arg_value>"],
    end: "</arg_value>",
    close: "",
    outer: "</tool_call>",
    lines: Lines::Kept,
};

/// How the value at the beginning of a text ends.
enum End {
    /// Here.
    At(usize),
    /// What follows the last closing tag is not there yet.
    Unsure,
    /// No closing tag in sight.
    Open,
}

impl Xml {
    /// The calls in `text`, which holds nothing else.
    pub(crate) fn read(&self, text: &str, tools: &Tools) -> Option<Vec<Call>> {
        let mut rest = text.trim();
        let mut calls = Vec::new();
        while !rest.is_empty() {
            let (call, after) = self.read_one(rest, tools)?;
            calls.push(call);
            rest = after.trim_start();
        }
        (!calls.is_empty()).then_some(calls)
    }

    fn read_one<'a>(&self, text: &'a str, tools: &Tools) -> Option<(Call, &'a str)> {
        let text = text.strip_prefix(self.open)?;
        let (name, mut rest) = if self.named.is_empty() {
            text.split_at(text.find(self.key).unwrap_or(text.len()))
        } else {
            text.split_once(self.named)?
        };
        let name = name.trim();
        // A bare word is a call only where the word is a tool.
        if self.open.is_empty() && rest.is_empty() && !tools.has(name) {
            return None;
        }
        let schema = tools.schema(name);
        let mut arguments = Map::new();
        loop {
            rest = rest.trim_start();
            let closed = if self.close.is_empty() {
                rest.is_empty().then_some(rest)
            } else {
                rest.strip_prefix(self.close)
            };
            if let Some(after) = closed {
                let named = !name.is_empty() && !name.contains(['<', '>', '\n', '"']);
                return named.then(|| Call::new(name, arguments)).flatten().zip(Some(after));
            }
            let (key, value, after) = self.read_argument(rest)?;
            let value = typed::value(self.cut(value), typed::property(schema, key), schema);
            arguments.insert(key.to_owned(), value);
            rest = after;
        }
    }

    /// Key and value at the beginning of `text`, and what follows.
    fn read_argument<'a>(&self, text: &'a str) -> Option<(&'a str, &'a str, &'a str)> {
        let (key, value) = self.split_key(text)?;
        let at = match self.value_end(value) {
            End::At(at) => at,
            // The closing tag is the last that is there.
            End::Unsure => value.rfind(self.end)?,
            End::Open => value.find(self.end)?,
        };
        Some((key.trim(), value.get(..at)?, value.get(at + self.end.len()..)?))
    }

    /// A key at the beginning of `text`, and what follows the tag before its value.
    fn split_key<'a>(&self, text: &'a str) -> Option<(&'a str, &'a str)> {
        let text = text.strip_prefix(self.key)?;
        let (first, more) = self.value.split_first()?;
        let (key, mut rest) = text.split_once(first)?;
        for tag in more {
            rest = rest.trim_start().strip_prefix(tag)?;
        }
        Some((key, rest))
    }

    /// Where the value at the beginning of `text` ends.
    fn value_end(&self, text: &str) -> End {
        let mut end = End::Open;
        for (at, _) in text.match_indices(self.end) {
            match self.goes_on(text.get(at + self.end.len()..).unwrap_or_default()) {
                Starts::Yes => return End::At(at),
                Starts::Maybe => return End::Unsure,
                Starts::No => end = End::Unsure,
            }
        }
        end
    }

    /// Whether the text after a value's closing tag goes on as a call does.
    pub(crate) fn goes_on(&self, after: &str) -> Starts {
        let tags = [self.key, self.close, self.outer];
        Starts::with_any(after.trim_start(), tags.into_iter().filter(|tag| !tag.is_empty()))
    }

    fn cut<'a>(&self, value: &'a str) -> &'a str {
        let head = value.strip_prefix('\n');
        let tail = |text: &'a str| text.strip_suffix('\n');
        match self.lines {
            Lines::Kept => value,
            Lines::Cut => {
                let value = head.unwrap_or(value);
                tail(value).unwrap_or(value)
            }
            Lines::CutPairs => head.and_then(tail).unwrap_or(value),
        }
    }
}

#[cfg(test)]
mod tests;
