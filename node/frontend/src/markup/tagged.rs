//! Formats made of marks around what is said.

use super::bare::begins_call;
use super::scan::{Scanner, Starts};
use super::tags::{Opener, Tags};
use super::{CUT_TAG, Opening, Told};
use crate::stop::overlap;
use crate::stream::Piece;
use crate::tools::Call;

/// White space to leave out before the next text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Skip {
    Nothing,
    Newlines,
    White,
}

impl Skip {
    /// `text` without it.
    fn left_out(self, text: &str) -> &str {
        match self {
            Self::Nothing => text,
            Self::Newlines => text.trim_start_matches(['\n', '\r']),
            Self::White => text.trim_start(),
        }
    }
}

/// Pairs of marks that open and close reasoning.
type Pairs = &'static [(&'static str, &'static str)];

enum State {
    /// Only white space so far: reasoning, or a call without a mark, may begin here.
    Start {
        /// Nothing at all was said, so that reasoning may begin.
        fresh: bool,
    },
    Text,
    /// The prompt opened reasoning; models open it once more now and then.
    Reopen,
    /// Reasoning that one of these closes.
    Think(Pairs),
    /// Whatever comes is text.
    Plain,
    /// Inside a call; after reasoning that was not closed, what would close it.
    Call {
        opener: &'static Opener,
        thinking: Option<Pairs>,
    },
    /// One call was wanted and has come.
    Done,
}

/// What a mark means where it is met.
#[derive(Clone, Copy)]
enum Mark {
    Opens(&'static Opener),
    Section,
    Closer,
    Thought,
}

/// The parser.
pub(crate) struct Tagged {
    tags: &'static Tags,
    told: Told,
    state: State,
    skip: Skip,
    /// What is not told yet.
    held: String,
    /// White space before a call, told only if the call turns out to be text.
    lead: String,
    /// A section that was opened, and in which nothing has been said yet.
    section: Option<&'static str>,
    /// There was reasoning.
    thought: bool,
    scanner: Scanner,
}

impl Tagged {
    pub(super) fn new(tags: &'static Tags, told: Told, opening: Opening) -> Self {
        let start = State::Start { fresh: true };
        let (state, skip, held) = match (opening, tags.calls.first()) {
            (Opening::Plain, _) => (State::Plain, Skip::Nothing, String::new()),
            (Opening::Thinking, _) => (State::Reopen, Skip::Newlines, String::new()),
            (Opening::Call(text), Some(opener)) => {
                (State::Call { opener, thinking: None }, Skip::Nothing, text)
            }
            (Opening::Free | Opening::Call(_), _) => (start, Skip::Nothing, String::new()),
        };
        let scanner = match &state {
            State::Call { opener, .. } => Scanner::new(opener.until, opener.next),
            _ => Scanner::new(super::scan::Until::Balance, &[]),
        };
        let (lead, section, thought) = (String::new(), None, false);
        Self { tags, told, state, skip, held, lead, section, thought, scanner }
    }

    pub(super) fn has_mark(&self, text: &str) -> bool {
        self.tags.has(text)
    }

    pub(super) fn calls(&self) -> u32 {
        self.told.calls
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    pub(super) fn is_thinking(&self) -> bool {
        let thinking = |state: &State| match state {
            State::Reopen | State::Think(_) => true,
            State::Call { thinking, .. } => thinking.is_some(),
            State::Start { .. } | State::Text | State::Plain | State::Done => false,
        };
        thinking(&self.state)
    }

    pub(super) fn push(&mut self, text: &str, out: &mut Vec<Piece>) {
        self.held.push_str(text);
        while self.step(out) {}
    }

    pub(super) fn finish(&mut self, out: &mut Vec<Piece>) {
        while self.step(out) {}
        while let State::Call { opener, thinking } = self.state {
            let held = std::mem::take(&mut self.held);
            let close = opener.until.close();
            let cut = close.map_or(0, |close| overlap(&held, close));
            let whole = held.get(..held.len() - cut).unwrap_or_default();
            let (inner, closed, rest) = match close.and_then(|close| held.split_once(close)) {
                Some((inner, rest)) if (opener.read)(&held, false, &self.told.tools).is_none() => {
                    (inner, true, rest)
                }
                _ => (whole, cut >= CUT_TAG, ""),
            };
            self.settle(inner, closed, opener, thinking, out);
            self.held = rest.to_owned();
            while self.step(out) {}
        }
        let mut rest = std::mem::take(&mut self.held);
        let marks = self.marks().map(|(tag, _)| tag).chain(self.first_marks());
        let cut = marks.map(|tag| overlap(&rest, tag)).max().unwrap_or(0);
        if cut >= CUT_TAG {
            rest.truncate(rest.len() - cut);
        }
        match self.state {
            State::Reopen | State::Think(_) => self.tell(rest.trim_end(), out),
            State::Start { .. } => self.tell(self.skip.left_out(&rest), out),
            State::Text | State::Plain => self.tell(&rest, out),
            State::Call { .. } | State::Done => return,
        }
        self.tell_section(out);
    }

    /// Goes on by one tag; false when more text is needed.
    fn step(&mut self, out: &mut Vec<Piece>) -> bool {
        match self.state {
            State::Start { fresh } => self.start(fresh),
            State::Reopen => self.reopen(),
            State::Plain => {
                let text = std::mem::take(&mut self.held);
                self.tell(&text, out);
                false
            }
            State::Text | State::Think(_) => self.plain(out),
            State::Call { opener, thinking } => self.call(opener, thinking, out),
            State::Done => {
                self.held.clear();
                false
            }
        }
    }

    /// Marks that mean something only where an answer begins.
    fn first_marks(&self) -> impl Iterator<Item = &'static str> {
        let (pairs, frame) = match self.state {
            State::Start { fresh: true } => (self.tags.reasoning, self.tags.frame),
            State::Reopen => (self.tags.reasoning, Default::default()),
            _ => Default::default(),
        };
        pairs.iter().map(|(open, _)| *open).chain(frame.iter().copied())
    }

    /// Leaves out a mark that opens the reasoning which is open already.
    fn reopen(&mut self) -> bool {
        let text = self.held.trim_start();
        let mut unsure = text.is_empty();
        for (open, _) in self.tags.reasoning {
            match Starts::with(text, open) {
                Starts::Yes => {
                    self.held = text.get(open.len()..).unwrap_or_default().to_owned();
                    self.state = State::Think(self.tags.reasoning);
                    return true;
                }
                Starts::Maybe => unsure = true,
                Starts::No => {}
            }
        }
        if !unsure {
            self.state = State::Think(self.tags.reasoning);
        }
        !unsure
    }

    fn start(&mut self, fresh: bool) -> bool {
        let bare = self.tags.bare.filter(|_| !self.told.tools.is_empty());
        // Calls without a mark may be listed.
        let between =
            |c: char| c.is_whitespace() || (self.told.calls > 0 && matches!(c, ';' | ','));
        let text = self.held.trim_start_matches(between);
        let pairs = self.tags.reasoning.iter().enumerate().filter(|_| fresh);
        let mut unsure = text.is_empty();
        for (at, (open, _)) in pairs {
            match Starts::with(text, open) {
                Starts::Yes => {
                    self.held = text.get(open.len()..).unwrap_or_default().to_owned();
                    self.state = State::Think(self.tags.reasoning.get(at..=at).unwrap_or_default());
                    self.skip = after(open);
                    return true;
                }
                Starts::Maybe => unsure = true,
                Starts::No => {}
            }
        }
        if let (true, Some(frame)) = (fresh, self.tags.frame.first()) {
            match Starts::with(text, frame) {
                Starts::Yes => {
                    self.held = text.get(frame.len()..).unwrap_or_default().to_owned();
                    (self.state, self.skip, self.thought) = (State::Text, Skip::Newlines, true);
                    return true;
                }
                Starts::Maybe => unsure = true,
                Starts::No => {}
            }
        }
        match bare.map_or(Starts::No, |_| begins_call(text, &self.told.tools)) {
            Starts::Maybe => unsure = true,
            Starts::Yes => {
                let lead = self.held.len() - text.len();
                let call = self.held.split_off(lead);
                let lead = std::mem::replace(&mut self.held, call);
                if self.skip == Skip::Nothing || !lead.trim().is_empty() {
                    self.lead.push_str(&lead);
                }
                if let Some(opener) = bare {
                    self.open(opener, None);
                }
                return true;
            }
            Starts::No => {}
        }
        if !unsure {
            self.state = State::Text;
        }
        !unsure
    }

    /// The tags that mean something in the present state.
    fn marks(&self) -> impl Iterator<Item = (&'static str, Mark)> {
        let (text, thoughts) = match self.state {
            State::Text => (true, Default::default()),
            State::Think(pairs) => (false, pairs),
            _ => (false, Default::default()),
        };
        let spoken = text || matches!(self.state, State::Think(_));
        let tools = spoken && !self.told.tools.is_empty();
        let (calls, sections, closers) = if tools {
            (self.tags.calls, self.tags.sections, self.tags.closers)
        } else {
            Default::default()
        };
        let frame = if text && self.thought { self.tags.frame } else { Default::default() };
        let calls = calls.iter().map(|opener| (opener.tag, Mark::Opens(opener)));
        let thoughts = thoughts.iter().map(|(_, close)| (*close, Mark::Thought));
        let sections = sections.iter().map(|tag| (*tag, Mark::Section));
        let closers = closers.iter().chain(frame).map(|tag| (*tag, Mark::Closer));
        thoughts.chain(calls).chain(sections).chain(closers)
    }

    fn plain(&mut self, out: &mut Vec<Piece>) -> bool {
        let trimmed = self.skip.left_out(&self.held);
        if trimmed.is_empty() {
            self.held.clear();
            return false;
        }
        self.held = trimmed.to_owned();
        let skip = std::mem::replace(&mut self.skip, Skip::Nothing);
        let found = self.marks().filter_map(|(tag, mark)| Some((self.held.find(tag)?, tag, mark)));
        let found = found.min_by_key(|(at, _, _)| *at);
        let held = std::mem::take(&mut self.held);
        let Some((at, tag, mark)) = found else {
            let hold = self.marks().map(|(tag, _)| overlap(&held, tag)).max();
            let mut cut = held.len() - hold.unwrap_or(0);
            if hold.is_some() {
                // White space before a tag belongs to the tag.
                cut = held.get(..cut).map_or(cut, |text| text.trim_end().len());
            }
            let (text, rest) = held.split_at(cut);
            if text.is_empty() {
                self.skip = skip;
            }
            self.tell(text, out);
            self.held = rest.to_owned();
            return false;
        };
        let (before, rest) = held.split_at(at);
        let kept = matches!(mark, Mark::Opens(opener) if opener.kept);
        let rest = if kept { rest } else { rest.get(tag.len()..).unwrap_or_default() };
        self.held = rest.to_owned();
        if matches!(mark, Mark::Closer) {
            self.tell(before, out);
            if before.is_empty() {
                self.skip = skip;
                self.tell_section(out);
            }
            return true;
        }
        let text = before.trim_end();
        self.tell(text, out);
        let lead = before.get(text.len()..).unwrap_or_default();
        match mark {
            Mark::Thought => {
                self.thought = true;
                self.skip = after(tag);
                self.state = match self.tags.bare {
                    Some(_) => State::Start { fresh: false },
                    None => State::Text,
                };
            }
            Mark::Section => {
                self.lead.push_str(lead);
                self.section = Some(tag);
                self.skip = Skip::White;
            }
            Mark::Opens(opener) => {
                self.lead.push_str(lead);
                let thinking = match self.state {
                    State::Think(pairs) => Some(pairs),
                    _ => None,
                };
                self.open(opener, thinking);
            }
            Mark::Closer => {}
        }
        true
    }

    fn open(&mut self, opener: &'static Opener, thinking: Option<Pairs>) {
        self.scanner = Scanner::new(opener.until, opener.next);
        self.state = State::Call { opener, thinking };
    }

    fn call(
        &mut self,
        opener: &'static Opener,
        thinking: Option<Pairs>,
        out: &mut Vec<Piece>,
    ) -> bool {
        let Some(end) = self.scanner.scan(&self.held) else {
            return false;
        };
        let held = std::mem::take(&mut self.held);
        let (mut inner, mut rest) = (held.get(..end.at), held.get(end.next..));
        // What looked like a string around the end of a call was none if this is no call.
        if let (Some(close), Some(text)) = (opener.until.close(), inner)
            && let Some(early) = text.find(close)
            && (opener.read)(text, true, &self.told.tools).is_none()
        {
            (inner, rest) = (held.get(..early), held.get(early + close.len()..));
        }
        self.settle(inner.unwrap_or_default(), true, opener, thinking, out);
        self.held = rest.unwrap_or_default().to_owned();
        true
    }

    /// Tells what stood between the tags: calls, or else the text it is.
    fn settle(
        &mut self,
        inner: &str,
        closed: bool,
        opener: &'static Opener,
        thinking: Option<Pairs>,
        out: &mut Vec<Piece>,
    ) {
        self.state = thinking.map_or(State::Text, State::Think);
        let calls = (opener.read)(inner, closed, &self.told.tools);
        // A call that is not allowed is text.
        let may = |calls: &Vec<Call>| calls.iter().all(|call| self.told.tools.may_call(&call.name));
        if let Some(calls) = calls.filter(may) {
            self.lead.clear();
            self.section = None;
            self.skip = Skip::White;
            if !self.told.tell(calls, out) {
                self.state = State::Done;
            } else if self.tags.bare.is_some() && thinking.is_none() {
                self.state = State::Start { fresh: false };
            }
            return;
        }
        self.skip = Skip::Nothing;
        if opener.kept {
            self.tell(inner, out);
            return;
        }
        let marks = self.tags.inner.iter().chain(self.tags.closers);
        let text = marks.fold(inner.to_owned(), |text, mark| text.replace(mark, ""));
        let text = text.trim();
        // An opening tag alone is all that was said.
        self.tell(if text.is_empty() { opener.tag } else { text }, out);
    }

    /// A section in which nothing was said is all that was said.
    fn tell_section(&mut self, out: &mut Vec<Piece>) {
        if let Some(tag) = self.section {
            self.tell(tag, out);
        }
    }

    fn tell(&mut self, text: &str, out: &mut Vec<Piece>) {
        if text.is_empty() {
            return;
        }
        self.section = None;
        let text = std::mem::take(&mut self.lead) + text;
        out.push(match self.state {
            State::Reopen | State::Think(_) => Piece::Reasoning(text),
            _ => Piece::Text(text),
        });
    }
}

/// What to leave out after a mark of reasoning: words are followed by a space.
fn after(mark: &str) -> Skip {
    if mark.ends_with(':') { Skip::White } else { Skip::Newlines }
}
