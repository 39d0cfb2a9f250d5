//! Text to tokens and back.

mod builtin;
mod bytes;
mod fewest;
mod gguf;
mod pieces;
mod stream;
#[cfg(test)]
mod tests;

pub(crate) use gguf::{digest_gguf, from_gguf};
pub use stream::DecodeStream;

use crate::ModelError;
use bytes::ByteTable;
use fewest::Fewest;
use pieces::Pieces;
use protocol::hash::Token;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A model's tokenizer; cheap to clone, usable from any thread.
#[derive(Clone)]
pub struct Tokenizer {
    inner: Arc<Inner>,
}

struct Inner {
    upstream: tokenizers::Tokenizer,
    /// Which ids are control tokens, by id.
    special: Vec<bool>,
    /// The bytes of each token, where tokens are byte strings (all byte-level BPE vocabularies).
    table: Option<ByteTable>,
    /// The least tokens of a text; `None` where nothing is known.
    fewest: Option<Fewest>,
    /// Where long texts are cut.
    pieces: Pieces,
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokenizer({} tokens)", self.vocab_size())
    }
}

impl Tokenizer {
    /// From the content of a `tokenizer.json`; `path` is for messages.
    pub(crate) fn from_json(path: &Path, json: &[u8]) -> Result<Self, ModelError> {
        let upstream = tokenizers::Tokenizer::from_bytes(json)
            .map_err(|e| ModelError::tokenizer(path, format!("{e}; download it again")))?;
        Self::from_library(path, upstream)
    }

    /// The content of a `tokenizer.json` that makes the same tokenizer.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        // The library's types have no case that cannot be written.
        self.inner.upstream.to_string(false).unwrap_or_default().into_bytes()
    }

    fn from_library(path: &Path, mut upstream: tokenizers::Tokenizer) -> Result<Self, ModelError> {
        const MOST: usize = 1 << 24; // far above any vocabulary: an id beyond is damage
        let quiet = upstream.with_truncation(None).map(|upstream| upstream.with_padding(None));
        quiet.map_err(|e| ModelError::tokenizer(path, e))?;
        let vocab = upstream.get_vocab(true);
        let size = vocab.values().max().map_or(0, |last| *last as usize + 1);
        if size == 0 || size > MOST {
            let detail = format!("it has {size} tokens, expected 1 to {MOST}");
            return Err(ModelError::tokenizer(path, detail));
        }
        let mut special = vec![false; size];
        for (id, token) in upstream.get_added_tokens_decoder() {
            if let Some(place) = special.get_mut(id as usize) {
                *place = token.special;
            }
        }
        let table = ByteTable::new(&upstream, size);
        let fewest = table.as_ref().and_then(|table| Fewest::new(&upstream, table, size));
        let pieces = Pieces::new(&upstream, fewest.is_some());
        Ok(Self { inner: Arc::new(Inner { upstream, special, table, fewest, pieces }) })
    }

    /// The tokens of `text`. Special tokens written in the text (as rendered templates do) become
    /// themselves. `add_special` adds what the tokenizer puts around every text (such as a
    /// beginning of sequence): right for plain completions, wrong for rendered templates.
    pub fn encode(&self, text: &str, add_special: bool) -> Vec<Token> {
        let mut tokens = Vec::new();
        for (i, piece) in self.inner.pieces.of(text).enumerate() {
            tokens.append(&mut self.encode_piece(piece, add_special && i == 0));
        }
        tokens
    }

    fn encode_piece(&self, text: &str, add_special: bool) -> Vec<Token> {
        match self.inner.upstream.encode_fast(text, add_special) {
            Ok(encoding) => encoding.get_ids().iter().copied().map(Token).collect(),
            // The library's splitting expressions give up on some pathological texts; halves of
            // them pass. A single character that cannot be encoded has no tokens.
            Err(_) => {
                let middle = (1..text.len())
                    .filter(|at| text.is_char_boundary(*at))
                    .min_by_key(|at| at.abs_diff(text.len() / 2));
                let Some((head, tail)) = middle.and_then(|at| text.split_at_checked(at)) else {
                    return Vec::new();
                };
                let mut tokens = self.encode_piece(head, add_special);
                tokens.extend(self.encode_piece(tail, false));
                tokens
            }
        }
    }

    /// A lower bound on the number of tokens of `text`, without tokenising it: one pass over its
    /// bytes. 0 where the kind of tokenizer allows none.
    pub fn fewest(&self, text: &str) -> usize {
        self.inner.fewest.as_ref().map_or(0, |fewest| fewest.of(text))
    }

    /// The text of `tokens`, without special tokens. Bytes that are not UTF-8 become U+FFFD.
    pub fn decode(&self, tokens: &[Token]) -> String {
        if self.table().is_none() {
            let tokens: Vec<u32> = tokens.iter().map(|token| token.0).collect();
            return self.decode_whole(&tokens);
        }
        let mut stream = self.decode_stream();
        let mut text: String = tokens.iter().filter_map(|token| stream.push(*token)).collect();
        text.push_str(&stream.finish());
        text
    }

    /// Decodes an answer token by token.
    pub fn decode_stream(&self) -> DecodeStream {
        DecodeStream::new(self.clone())
    }

    /// One more than the highest token id.
    pub fn vocab_size(&self) -> usize {
        self.inner.special.len()
    }

    /// The id of a token by its exact text in the vocabulary.
    pub fn token(&self, text: &str) -> Option<Token> {
        self.inner.upstream.token_to_id(text).map(Token)
    }

    /// The vocabulary's own spelling of a token (byte-level vocabularies spell a space `Ġ`).
    pub fn spelling(&self, token: Token) -> Option<String> {
        self.inner.upstream.id_to_token(token.0)
    }

    /// The bytes that the token stands for in the middle of a text; empty for unknown ids. `None`
    /// for vocabularies whose tokens stand for no bytes of their own.
    pub(crate) fn bytes(&self, token: Token) -> Option<Vec<u8>> {
        match &self.inner.table {
            Some(table) => Some(table.get(token.0).to_vec()),
            None if bytes::falls_back(&self.inner.upstream) => {
                Some(bytes::fallback(&self.spelling(token).unwrap_or_default()))
            }
            None => None,
        }
    }

    /// Whether the token is a control token, which decoding leaves out.
    pub fn is_special(&self, token: Token) -> bool {
        self.inner.special.get(token.0 as usize).copied().unwrap_or(false)
    }

    fn table(&self) -> Option<&ByteTable> {
        self.inner.table.as_ref()
    }

    /// Decodes with the library: slow, for vocabularies that are not byte-level.
    fn decode_whole(&self, tokens: &[u32]) -> String {
        self.inner.upstream.decode(tokens, true).unwrap_or_default()
    }
}
