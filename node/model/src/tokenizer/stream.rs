//! Decoding token by token, without broken characters.

use super::Tokenizer;
use protocol::hash::Token;

/// Turns tokens into text as they come. A character whose bytes are spread over several tokens
/// comes out with its last one, never as U+FFFD; only bytes that can no longer become UTF-8 do.
pub struct DecodeStream {
    tokenizer: Tokenizer,
    /// Byte-level: the beginning of a character whose end has not come.
    pending: Vec<u8>,
    /// Otherwise: the tokens that the next text depends on, and what is told of their text.
    window: Vec<u32>,
    told: String,
    /// The last tokens of the window with which its text does not begin as it was told.
    unfit: usize,
}

/// Tokens that stay in the window as context: decoders of other kinds look at neighbours.
const CONTEXT: usize = 6;
/// Most tokens of the window, whatever its text is.
const WINDOW: usize = 4 * CONTEXT;
/// Most bytes of a character whose last one has not come.
const UNFINISHED: usize = 3;

impl DecodeStream {
    pub(super) fn new(tokenizer: Tokenizer) -> Self {
        let (pending, window) = (Vec::new(), Vec::new());
        Self { tokenizer, pending, window, told: String::new(), unfit: 0 }
    }

    /// The text that `token` completes, if any. Special tokens have none.
    pub fn push(&mut self, token: Token) -> Option<String> {
        if self.tokenizer.is_special(token) {
            return None;
        }
        let text = match self.tokenizer.table() {
            Some(table) => {
                self.pending.extend_from_slice(table.get(token.0));
                complete(&mut self.pending)
            }
            None => self.push_whole(token.0),
        };
        Some(text).filter(|text| !text.is_empty())
    }

    /// Whatever is left, at the end of the answer: bytes of an unfinished character as U+FFFD.
    pub fn finish(mut self) -> String {
        if self.tokenizer.table().is_some() {
            return String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned();
        }
        self.untold(&self.text(0))
    }

    fn push_whole(&mut self, id: u32) -> String {
        self.window.push(id);
        let all = self.text(0);
        // The library takes bytes in a row for text only if all of them are: until a character has
        // its end, those before it are none either.
        self.unfit = if all.starts_with(self.told.as_str()) { 0 } else { self.unfit + 1 };
        if (1..=UNFINISHED).contains(&self.unfit) {
            return String::new();
        }
        let mut new = self.untold(&all);
        self.unfit = 0;
        let held = new.split_off(certain(&new));
        let text = self.shorten(all, &held);
        match text.strip_suffix(held.as_str()) {
            Some(told) => self.told = told.to_owned(),
            None => {
                new.push_str(&held);
                self.told = text;
            }
        }
        new
    }

    /// The text of the window from a token on.
    fn text(&self, from: usize) -> String {
        self.tokenizer.decode_whole(self.window.get(from..).unwrap_or_default())
    }

    /// What is not told of the window, whose text is `all`.
    fn untold(&self, all: &str) -> String {
        match all.strip_prefix(self.told.as_str()) {
            Some(new) => new.to_owned(),
            None => self.text(self.window.len().saturating_sub(self.unfit)),
        }
    }

    /// Leaves out tokens that no text to come depends on. Gives the text of the window, which was
    /// `all`; its end `held` is not told.
    fn shorten(&mut self, all: String, held: &str) -> String {
        let surplus = self.window.len().saturating_sub(CONTEXT);
        // A window that begins within a character may have another text.
        let begins = (surplus.saturating_sub(UNFINISHED).max(1)..=surplus).rev();
        let mut texts = begins.map(|from| (from, self.text(from)));
        let good = texts.find(|(_, text)| all.ends_with(text.as_str()) && text.ends_with(held));
        let forced = || (self.window.len() > WINDOW).then(|| (surplus, self.text(surplus)));
        match good.or_else(forced) {
            Some((from, text)) => {
                self.window.drain(..from);
                text
            }
            None => all,
        }
    }
}

/// How much of a text no byte to come can change: all but the U+FFFD at its end that may stand for
/// an unfinished character.
fn certain(text: &str) -> usize {
    let replaced = |letter: &char| *letter == char::REPLACEMENT_CHARACTER;
    let held = text.chars().rev().take(UNFINISHED).take_while(replaced).count();
    text.len() - held * char::REPLACEMENT_CHARACTER.len_utf8()
}

/// Takes from `bytes` all text that is certain, replacing what can never be UTF-8.
fn complete(bytes: &mut Vec<u8>) -> String {
    let mut text = String::new();
    let mut rest = bytes.as_slice();
    loop {
        match std::str::from_utf8(rest) {
            Ok(whole) => {
                text.push_str(whole);
                rest = &[];
                break;
            }
            Err(e) => {
                let (valid, after) = rest.split_at(e.valid_up_to());
                text.push_str(std::str::from_utf8(valid).unwrap_or_default());
                rest = after;
                let Some(bad) = e.error_len() else { break };
                text.push('\u{fffd}');
                rest = rest.get(bad..).unwrap_or_default();
            }
        }
    }
    *bytes = rest.to_vec();
    text
}
