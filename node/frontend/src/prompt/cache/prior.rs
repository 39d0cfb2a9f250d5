//! How far an earlier prompt, and what was answered to it, go along with a new one.

use super::Tokenised;
use crate::prompt::cuts::Marks;
use protocol::hash::{GRANULE, PrefixHash, Token};
use std::sync::Arc;

/// Answers to one prompt that are remembered: it may be asked several times at once, or again.
const ANSWERS_MAX: usize = 4;

/// An answer as the model wrote it.
#[derive(Debug)]
pub(super) struct Written {
    /// The text of its tokens, control tokens by their spelling.
    pub(super) text: String,
    /// Without the one that ended it.
    pub(super) tokens: Vec<Token>,
}

/// An earlier prompt and its latest answers.
#[derive(Clone)]
pub(super) struct Branch {
    pub(super) prompt: Arc<Tokenised>,
    answers: Vec<Arc<Written>>,
}

impl Branch {
    pub(super) fn new(prompt: Arc<Tokenised>) -> Self {
        Self { prompt, answers: Vec::new() }
    }

    /// Takes an answer down.
    pub(super) fn answered(&mut self, answer: Arc<Written>) {
        self.answers.retain(|known| known.text != answer.text);
        self.answers.insert(0, answer);
        self.answers.truncate(ANSWERS_MAX);
    }

    /// Memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        let of = |answer: &Arc<Written>| {
            answer.text.capacity() + answer.tokens.len() * size_of::<Token>()
        };
        self.prompt.bytes() + self.answers.iter().map(of).sum::<usize>()
    }
}

/// A prompt's tokens, their names and its borders, as far as an earlier one has them.
#[derive(Default)]
pub(super) struct Begun {
    pub(super) tokens: Vec<Token>,
    pub(super) names: Vec<PrefixHash>,
    pub(super) borders: Vec<(usize, u32)>,
}

/// An earlier prompt, and how much of it is also the beginning of the new one.
pub(super) struct Prior {
    pub(super) prompt: Arc<Tokenised>,
    /// Its answer, when the new prompt goes on behind it.
    answer: Option<Arc<Written>>,
    /// The last border in common, in bytes …
    pub(super) bytes: usize,
    /// … and in tokens.
    pub(super) tokens: usize,
    /// Whether the new prompt goes on from it: it holds all of it but its last part, the beginning
    /// of the answer.
    pub(super) is_all: bool,
    /// Whether both are the same.
    pub(super) is_same: bool,
}

impl Prior {
    /// How far `branch` is the beginning of `text`; `None` when not even its first part is.
    fn of(branch: &Branch, text: &str, marks: &Marks) -> Option<Self> {
        let prompt = &branch.prompt;
        let common = common(prompt.text.as_bytes(), text.as_bytes());
        let (length, whole) = (prompt.text.len(), common == prompt.text.len());
        let is_same = whole && common == text.len();
        let prior = |bytes, tokens, answer, is_all| {
            Some(Self { prompt: prompt.clone(), answer, bytes, tokens, is_all, is_same })
        };
        if whole && let Some(answer) = branch.answer_in(text.get(common..)?, marks) {
            let bytes = length + answer.text.len();
            let tokens = prompt.tokens.len() + answer.tokens.len();
            return prior(bytes, tokens, Some(answer.clone()), true);
        }
        // A border of the new prompt too: a turn begins behind it, or both end there.
        let in_both = |bytes: usize| {
            let begins = || text.get(bytes..).is_some_and(|rest| marks.begin_turn(rest));
            bytes <= common && (begins() || is_same && bytes == length)
        };
        let borders = &prompt.borders;
        let at = borders.iter().rposition(|(bytes, _)| in_both(*bytes))?;
        let (bytes, tokens) = *borders.get(at)?;
        let is_all = at + 2 >= borders.len() && common < text.len();
        prior(bytes, tokens as usize, None, is_all)
    }

    /// What the new prompt has in common with it.
    pub(super) fn begin(&self) -> Begun {
        let prompt = &self.prompt;
        let answer = self.answer.as_ref().map(|answer| answer.tokens.as_slice());
        // Room for a turn, so that the copy is the only one.
        let room = |have: usize| have + have / 16 + 64;
        let mut out = Begun {
            tokens: Vec::with_capacity(room(self.tokens)),
            names: Vec::with_capacity(room(self.tokens / GRANULE)),
            borders: Vec::new(),
        };
        let tokens = self.tokens.min(prompt.tokens.len());
        out.tokens.extend(prompt.tokens.iter().take(tokens));
        out.names.extend(prompt.names.iter().take(tokens / GRANULE));
        // Behind an answer the last part goes on.
        let borders = prompt.borders.len() - usize::from(answer.is_some());
        let borders = prompt.borders.iter().take(borders);
        out.borders.extend(borders.take_while(|(bytes, _)| *bytes <= self.bytes));
        out.tokens.extend(answer.unwrap_or_default());
        out
    }
}

impl Branch {
    /// The answer with which `text` begins, and which ends there.
    fn answer_in(&self, text: &str, marks: &Marks) -> Option<&Arc<Written>> {
        let ends = |answer: &&Arc<Written>| {
            text.strip_prefix(answer.text.as_str()).is_some_and(|rest| marks.end_answer(rest))
        };
        self.answers.iter().filter(ends).max_by_key(|answer| answer.text.len())
    }
}

/// The earlier prompt that goes along furthest.
pub(super) fn best(branches: &[Branch], text: &str, marks: &Marks) -> Option<Prior> {
    let priors = branches.iter().filter_map(|branch| Prior::of(branch, text, marks));
    priors.max_by_key(|prior| (prior.bytes, prior.is_same))
}

/// Bytes that both begin with.
pub(crate) fn common(one: &[u8], other: &[u8]) -> usize {
    const STRIDE: usize = 4096;
    let strides = one.chunks(STRIDE).zip(other.chunks(STRIDE));
    let whole = strides.take_while(|(a, b)| a == b).map(|(a, _)| a.len()).sum::<usize>();
    let rest = one.iter().skip(whole).zip(other.iter().skip(whole));
    whole + rest.take(STRIDE).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_common_beginning_is_exact() {
        let long: Vec<u8> = (0..10_000u32).map(|n| n as u8).collect();
        for cut in [0, 1, 4095, 4096, 4097, 8192, 9_999] {
            let mut other = long.clone();
            other[cut] ^= 1;
            assert_eq!(common(&long, &other), cut);
            assert_eq!(common(&long, &long[..cut]), cut);
        }
        assert_eq!(common(&long, &long), long.len());
        assert_eq!(common(b"", b"x"), 0);
    }
}
