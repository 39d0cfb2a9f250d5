//! Decoding token by token, without broken characters.

use super::Tokenizer;
use protocol::hash::Token;

/// Turns tokens into text as they come. A character whose bytes are spread over several tokens
/// comes out with its last one, never as U+FFFD; only bytes that can no longer become UTF-8 do.
pub struct DecodeStream {
    tokenizer: Tokenizer,
    /// Byte-level: the beginning of a character whose end has not come.
    pending: Vec<u8>,
    /// Otherwise: the tokens that the next text depends on, and how many of them are told.
    window: Vec<u32>,
    told: usize,
}

/// Tokens that stay in the window as context: decoders of other kinds look at neighbours.
const CONTEXT: usize = 6;

impl DecodeStream {
    pub(super) fn new(tokenizer: Tokenizer) -> Self {
        Self { tokenizer, pending: Vec::new(), window: Vec::new(), told: 0 }
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
        let (told, all) = self.texts();
        all.strip_prefix(&told).unwrap_or_default().to_owned()
    }

    fn push_whole(&mut self, id: u32) -> String {
        self.window.push(id);
        let (told, all) = self.texts();
        let Some(new) = all.strip_prefix(&told).filter(|new| !new.ends_with('\u{fffd}')) else {
            return String::new();
        };
        let new = new.to_owned();
        let surplus = self.window.len().saturating_sub(CONTEXT);
        self.window.drain(..surplus);
        self.told = self.window.len();
        new
    }

    fn texts(&self) -> (String, String) {
        let told = self.window.get(..self.told).unwrap_or_default();
        (self.tokenizer.decode_whole(told), self.tokenizer.decode_whole(&self.window))
    }
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
