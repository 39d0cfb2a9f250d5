//! A lower bound on the tokens of a text, from the vocabulary alone.
//!
//! A token of `n` bytes counts as 1, so each of its bytes may count as `1/n`. Where a byte can be
//! part of several tokens, the longest of them decides; then no token's bytes count for more than
//! 1 together, and the sum over a text never exceeds its number of tokens.

use super::bytes::ByteTable;
use std::collections::BTreeSet;
use tokenizers::{
    ModelWrapper, NormalizerWrapper, PreTokenizerWrapper, SplitDelimiterBehavior, Tokenizer,
};

/// NFC makes no text shorter than this part of its bytes. The worst is U+0390, 2 bytes, from the
/// 7 bytes of U+1FBE U+0308 U+0301.
const NFC_SHRINKS: u64 = 4;

/// What each byte counts.
pub(super) struct Fewest {
    /// Bytes of the longest token that holds the byte; 0 where a byte can vanish.
    longest: [u64; 256],
    /// Whether text is normalised to NFC before it is cut.
    nfc: bool,
}

impl Fewest {
    /// `None` where text can vanish before it is tokenised, or is not cut into bytes at all.
    pub(super) fn new(upstream: &Tokenizer, table: &ByteTable, size: usize) -> Option<Self> {
        let nfc = match upstream.get_normalizer() {
            None => false,
            Some(NormalizerWrapper::NFC(_)) => true,
            Some(_) => return None,
        };
        let ModelWrapper::BPE(bpe) = upstream.get_model() else {
            return None;
        };
        let affixes = [&bpe.continuing_subword_prefix, &bpe.end_of_word_suffix];
        let affixed = affixes.into_iter().flatten().any(|affix| !affix.is_empty());
        if affixed || !keeps_bytes(upstream.get_pre_tokenizer()?) {
            return None;
        }
        let mut longest = [0; 256];
        let mut alone = BTreeSet::new();
        for id in 0..u32::try_from(size).ok()? {
            let bytes = table.get(id);
            note(&mut longest, bytes);
            if let [byte] = bytes {
                alone.insert(*byte);
            }
        }
        for token in upstream.get_added_tokens_decoder().values() {
            if token.lstrip || token.rstrip {
                return None; // takes any amount of white space with it
            }
            note(&mut longest, token.content.as_bytes());
        }
        // BPE leaves out a byte that has no token of its own.
        for (byte, longest) in (0..=u8::MAX).zip(&mut longest) {
            if !alone.contains(&byte) {
                *longest = 0;
            }
        }
        Some(Self { longest, nfc })
    }

    /// At least so many tokens has `text`.
    pub(super) fn of(&self, text: &str) -> usize {
        let mut counts = [0u64; 256];
        let mut changeable = 0u64;
        let following = text.bytes().skip(1).chain([0]);
        for (byte, next) in text.bytes().zip(following) {
            // ASCII stays as it is unless a combining mark follows.
            if self.nfc && !(byte.is_ascii() && next.is_ascii()) {
                changeable += 1;
            } else if let Some(count) = counts.get_mut(usize::from(byte)) {
                *count += 1;
            }
        }
        // Fixed point, rounded down: 32 bits behind the point.
        let worth = |count: u64, longest: u64| {
            (u128::from(count) << 32).checked_div(u128::from(longest)).unwrap_or(0)
        };
        let sure: u128 = counts.iter().zip(&self.longest).map(|(n, l)| worth(*n, *l)).sum();
        // What may change can become any bytes: those that count least.
        let vanishes = self.longest.contains(&0);
        let least = if vanishes { 0 } else { self.longest.iter().copied().max().unwrap_or(0) };
        let sum = sure + worth(changeable / NFC_SHRINKS, least);
        usize::try_from(sum >> 32).unwrap_or(usize::MAX)
    }
}

fn note(longest: &mut [u64; 256], token: &[u8]) {
    for byte in token {
        if let Some(longest) = longest.get_mut(usize::from(*byte)) {
            *longest = (*longest).max(token.len() as u64);
        }
    }
}

/// Whether every byte of a text comes through, spelt in the byte alphabet once.
fn keeps_bytes(splitter: &PreTokenizerWrapper) -> bool {
    let cuts = |one: &PreTokenizerWrapper| match one {
        PreTokenizerWrapper::Digits(_) => true,
        PreTokenizerWrapper::Split(split) => {
            !matches!(split.behavior, SplitDelimiterBehavior::Removed)
        }
        _ => false,
    };
    match splitter {
        PreTokenizerWrapper::ByteLevel(_) => true,
        PreTokenizerWrapper::Sequence(all) => match all.as_ref() {
            [before @ .., PreTokenizerWrapper::ByteLevel(_)] => before.iter().all(cuts),
            _ => false,
        },
        _ => false,
    }
}
