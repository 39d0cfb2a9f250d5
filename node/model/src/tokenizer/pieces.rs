//! Long texts in pieces whose tokens, one after the other, are those of the text.
//!
//! While it works the library takes some hundred bytes for each token, which is the memory of a
//! machine for a text of megabytes.

use tokenizers::{ModelWrapper, PreTokenizerWrapper, Tokenizer};

/// Bytes of a piece, about; and of the part at its end where a place to cut is looked for.
const PIECE: usize = 64 << 10;
const WINDOW: usize = 16 << 10;

/// Where a text may be cut.
pub(super) enum Pieces {
    /// Nowhere.
    Whole,
    /// Before a letter that begins a line, behind a line that does not end with white space: all
    /// ways to split words that byte-level vocabularies know split there.
    Lines,
    /// Between any characters that are not within one of these tokens: no others are longer than a
    /// byte.
    Anywhere(Vec<String>),
}

impl Pieces {
    /// For a tokenizer that splits words as byte-level ones do, if `byte_level`.
    pub(super) fn new(upstream: &Tokenizer, byte_level: bool) -> Self {
        let (true, ModelWrapper::BPE(bpe)) = (byte_level, upstream.get_model()) else {
            return Self::Whole;
        };
        let spaced = |one: &PreTokenizerWrapper| match one {
            PreTokenizerWrapper::ByteLevel(level) => level.add_prefix_space,
            _ => false,
        };
        let prefixed = match upstream.get_pre_tokenizer() {
            Some(PreTokenizerWrapper::Sequence(all)) => all.as_ref().iter().any(spaced),
            Some(one) => spaced(one),
            None => false,
        };
        let added = upstream.get_added_tokens_decoder();
        if prefixed || added.values().any(|token| token.single_word) {
            return Self::Whole;
        }
        let single = bpe.get_vocab().keys().filter(|token| token.chars().count() > 1).count();
        if upstream.get_normalizer().is_none() && single <= added.len() {
            return Self::Anywhere(added.into_values().map(|token| token.content).collect());
        }
        // A token that spans lines could be cut.
        match added.values().any(|token| token.content.contains('\n')) {
            true => Self::Whole,
            false => Self::Lines,
        }
    }

    /// The pieces of a text.
    pub(super) fn of<'a>(&'a self, text: &'a str) -> impl Iterator<Item = &'a str> {
        let mut rest = Some(text);
        std::iter::from_fn(move || {
            let text = rest.take()?;
            match self.cut(text).and_then(|at| text.split_at_checked(at)) {
                Some((piece, behind)) => {
                    rest = Some(behind);
                    Some(piece)
                }
                None => Some(text),
            }
        })
    }

    /// Where the first piece of a text ends, unless that is its end.
    fn cut(&self, text: &str) -> Option<usize> {
        if text.len() <= PIECE + WINDOW {
            return None;
        }
        match self {
            Self::Whole => None,
            Self::Lines => {
                let bytes = text.as_bytes();
                let begins = |at: &usize| match bytes.get(at.checked_sub(2)?..=*at) {
                    Some([before, b'\n', letter]) => {
                        let word = before.is_ascii_alphanumeric() && letter.is_ascii_alphabetic();
                        word.then_some(*at)
                    }
                    _ => None,
                };
                // Behind the wanted length too: a text without such lines is one piece.
                (PIECE..text.len()).find_map(|at| begins(&at))
            }
            Self::Anywhere(tokens) => (PIECE..PIECE + WINDOW).find(|at| {
                let spans = |token: &String| {
                    let most = token.len().saturating_sub(1);
                    let from = (at - most..=*at).find(|from| text.is_char_boundary(*from));
                    let to = (*at..=at + most).rev().find(|to| text.is_char_boundary(*to));
                    let near = from.zip(to).and_then(|(from, to)| text.get(from..to));
                    near.is_some_and(|near| near.contains(token.as_str()))
                };
                text.is_char_boundary(*at) && !tokens.iter().any(spans)
            }),
        }
    }
}
