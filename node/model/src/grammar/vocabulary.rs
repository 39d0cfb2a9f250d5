//! A vocabulary as the compiler reads it: a tree of the tokens' bytes.

use crate::Tokenizer;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie, TokenId};
use protocol::hash::Token;
use std::sync::Arc;

/// Longer tokens are never allowed in a constrained answer; the tree has places for 1,024 bytes.
const TOKEN_MAX: usize = 512;
/// Most bytes of all tokens together; the tree has places for 4 million.
const BYTES_MAX: usize = 4_000_000;

/// The tree of all tokens, of which `ends` end an answer. Control tokens stand apart from all text.
pub(super) fn of(tokenizer: &Tokenizer, ends: &[Token]) -> Result<TokEnv, String> {
    let size = tokenizer.vocab_size();
    let count = u32::try_from(size).map_err(|_| "it has too many tokens".to_owned())?;
    let mut words = Vec::with_capacity(size);
    for id in (0..count).map(Token) {
        words.push(word(tokenizer, id)?);
    }
    if words.iter().map(Vec::len).sum::<usize>() > BYTES_MAX {
        return Err(format!("its tokens have more than {BYTES_MAX} bytes"));
    }
    let known: Vec<TokenId> = ends.iter().map(|end| end.0).filter(|end| *end < count).collect();
    let first = known.first().copied().unwrap_or(llguidance::toktrie::INVALID_TOKEN);
    let mut trie = TokTrie::from(&TokRxInfo::new(count, first), &words);
    if !known.is_empty() {
        trie = trie.with_eos_tokens(&known);
    }
    // Not canonical: every way to write a text in tokens is allowed, as the model likes.
    Ok(Arc::new(ApproximateTokEnv::new(trie)))
}

/// The bytes of a token; none where it has none or may not be used.
fn word(tokenizer: &Tokenizer, id: Token) -> Result<Vec<u8>, String> {
    let mut word = if tokenizer.is_special(id) {
        let mut word = vec![TokTrie::SPECIAL_TOKEN_MARKER];
        word.extend_from_slice(tokenizer.spelling(id).unwrap_or_default().as_bytes());
        word
    } else {
        let bytes = tokenizer.bytes(id);
        bytes.ok_or("its tokenizer is neither of bytes nor with byte fallback")?
    };
    // No text has the marker's byte: it is not UTF-8.
    let marked = word.first() == Some(&TokTrie::SPECIAL_TOKEN_MARKER);
    if word.len() > TOKEN_MAX || marked && !tokenizer.is_special(id) {
        word.clear();
    }
    Ok(word)
}
