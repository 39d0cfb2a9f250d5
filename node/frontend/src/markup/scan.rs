//! How far a call goes: its end is looked for as its text grows.

use crate::tools::xml::{self, Xml};

/// What ends a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// The mark `close`, outside JSON strings.
    Mark(&'static str),
    /// `</tool_call>`, outside whatever the first character says the call is made of.
    ToolCall,
    /// The closing tag of a call in XML, which is part of it.
    Xml(&'static Xml),
    /// The bracket that closes the first one.
    Balance,
}

impl Until {
    /// The mark that ends a call and is no part of it.
    pub(crate) fn close(self) -> Option<&'static str> {
        match self {
            Self::Mark(close) => Some(close),
            Self::ToolCall => Some(CLOSE),
            Self::Xml(_) | Self::Balance => None,
        }
    }
}

/// The end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// Where the call's text ends.
    pub(crate) at: usize,
    /// Where the text after it begins.
    pub(crate) next: usize,
}

/// Whether a text begins with some tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Starts {
    Yes,
    /// The text ends before this is certain.
    Maybe,
    No,
}

impl Starts {
    /// Whether `text` begins with `tag`.
    pub(crate) fn with(text: &str, tag: &str) -> Self {
        Self::bytes(text.as_bytes(), tag.as_bytes())
    }

    /// Whether `text` begins with one of `tags`.
    pub(crate) fn with_any<'a>(text: &str, tags: impl Iterator<Item = &'a str>) -> Self {
        tags.map(|tag| Self::with(text, tag)).fold(Self::No, Self::or)
    }

    /// What is known when either will do.
    pub(crate) fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Yes, _) | (_, Self::Yes) => Self::Yes,
            (Self::Maybe, _) | (_, Self::Maybe) => Self::Maybe,
            (Self::No, Self::No) => Self::No,
        }
    }

    fn bytes(text: &[u8], tag: &[u8]) -> Self {
        if text.starts_with(tag) {
            Self::Yes
        } else if tag.starts_with(text) {
            Self::Maybe
        } else {
            Self::No
        }
    }
}

/// Opens and closes a call in the form of Hermes and its kin.
pub(crate) const OPEN: &str = "<tool_call>";
pub(crate) const CLOSE: &str = "</tool_call>";

/// Looks for the end of one call.
#[derive(Debug)]
pub(crate) struct Scanner {
    until: Until,
    /// Marks that end a call which was never closed, and are not part of it.
    next: &'static [&'static str],
    seen: usize,
    /// Within a JSON string, or within a value in XML.
    inside: Option<u8>,
    escaped: bool,
    depth: usize,
}

impl Scanner {
    pub(crate) fn new(until: Until, next: &'static [&'static str]) -> Self {
        Self { until, next, seen: 0, inside: None, escaped: false, depth: 0 }
    }

    /// Goes on to the end. `text` is what it saw before plus what is new.
    pub(crate) fn scan(&mut self, text: &str) -> Option<End> {
        match self.until {
            Until::Mark(close) => self.json(text, close),
            Until::ToolCall => match text.trim_start().as_bytes().first()? {
                b'{' | b'[' | b'"' => self.json(text, CLOSE),
                b'<' => self.xml(text, &xml::FUNCTION, (CLOSE, false)),
                _ => self.xml(text, &xml::ARGUMENTS, (CLOSE, false)),
            },
            Until::Xml(xml) => self.xml(text, xml, (xml.close, true)),
            Until::Balance => self.balance(text),
        }
    }

    /// Tells marks outside strings from the same letters inside. A line break before the closing
    /// mark also ends an unclosed string: JSON strings have none.
    fn json(&mut self, text: &str, close: &str) -> Option<End> {
        let bytes = text.as_bytes();
        while let Some(&byte) = bytes.get(self.seen) {
            let at = self.seen;
            if let Some(quote) = self.inside {
                if byte == b'\n' && !self.escaped {
                    match Starts::bytes(bytes.get(at + 1..)?, close.as_bytes()) {
                        Starts::Yes => {
                            return Some(End { at: at + 1, next: at + 1 + close.len() });
                        }
                        Starts::Maybe => return None,
                        Starts::No => {}
                    }
                }
                self.within_string(byte, quote);
            } else {
                match Starts::bytes(bytes.get(at..)?, close.as_bytes()) {
                    Starts::Yes => return Some(End { at, next: at + close.len() }),
                    Starts::Maybe => return None,
                    Starts::No => {}
                }
                match self.next_at(bytes, at) {
                    Starts::Yes => return Some(End { at, next: at }),
                    Starts::Maybe => return None,
                    Starts::No => {}
                }
                self.inside = (byte == b'"').then_some(byte);
            }
            self.seen += 1;
        }
        None
    }

    fn within_string(&mut self, byte: u8, quote: u8) {
        if !self.escaped && byte == quote {
            self.inside = None;
        }
        self.escaped = !self.escaped && byte == b'\\';
    }

    fn next_at(&self, bytes: &[u8], at: usize) -> Starts {
        let rest = bytes.get(at..).unwrap_or_default();
        // The mark a call was opened with, where it is kept, is no next one.
        let tags = self.next.iter().filter(|_| at > 0 || !matches!(self.until, Until::Xml(_)));
        tags.map(|tag| Starts::bytes(rest, tag.as_bytes())).fold(Starts::No, Starts::or)
    }

    /// `close` is the tag that ends it, and whether the tag is part of the call.
    fn xml(&mut self, text: &str, xml: &Xml, close: (&str, bool)) -> Option<End> {
        loop {
            let rest = text.get(self.seen..)?;
            if self.inside.is_some() {
                let Some(at) = rest.find(xml.end) else {
                    self.seen += rest.len() - crate::stop::overlap(rest, xml.end);
                    return None;
                };
                let after = at + xml.end.len();
                match xml.goes_on(rest.get(after..)?) {
                    Starts::Yes => {
                        self.inside = None;
                        self.seen += after;
                    }
                    Starts::Maybe => {
                        self.seen += at;
                        return None;
                    }
                    Starts::No => self.seen += after,
                }
                continue;
            }
            // All tags begin with the same sign.
            let Some(at) = rest.find('<') else {
                self.seen = text.len();
                return None;
            };
            self.seen += at;
            let rest = rest.get(at..)?;
            match Starts::with(rest, close.0) {
                Starts::Yes => {
                    let (at, next) = (self.seen, self.seen + close.0.len());
                    return Some(End { at: if close.1 { next } else { at }, next });
                }
                Starts::Maybe => return None,
                Starts::No => {}
            }
            let next = self.next_at(text.as_bytes(), self.seen);
            let key = Starts::with(rest, xml.key);
            match next.or(key) {
                Starts::Yes if next == Starts::Yes => {
                    return Some(End { at: self.seen, next: self.seen });
                }
                Starts::Yes => {
                    self.seen += xml.key.len();
                    self.inside = Some(b'<');
                }
                Starts::Maybe => return None,
                Starts::No => self.seen += 1,
            }
        }
    }

    /// A name may stand before the first bracket.
    fn balance(&mut self, text: &str) -> Option<End> {
        let bytes = text.as_bytes();
        while let Some(&byte) = bytes.get(self.seen) {
            let at = self.seen;
            if let Some(quote) = self.inside {
                self.within_string(byte, quote);
                self.seen += 1;
                continue;
            }
            match self.next_at(bytes, at) {
                Starts::Yes => return Some(End { at, next: at }),
                Starts::Maybe => return None,
                Starts::No => {}
            }
            match byte {
                b'"' | b'\'' if self.depth > 0 => self.inside = Some(byte),
                b'{' => self.depth += 1,
                b'[' if self.depth > 0 => self.depth += 1,
                b'(' if self.depth > 0 => self.depth += 1,
                // What stands before is a name: a list cannot follow one, a call can.
                b'[' | b'(' => {
                    let first = text.get(..at)?.trim().is_empty();
                    self.depth = usize::from(first == (byte == b'['));
                }
                b'}' | b']' | b')' if self.depth > 0 => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        return Some(End { at: at + 1, next: at + 1 });
                    }
                }
                _ => {}
            }
            self.seen += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests;
