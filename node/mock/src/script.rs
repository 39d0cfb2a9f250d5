//! An answer that is played instead of drawn.

#[cfg(test)]
mod tests;

use protocol::hash::Token;
use protocol::time::Span;

/// Raw model output in chunks: each chunk is one stream item, so that markers of tool calls split
/// exactly where the author wants. Each token takes a decode step; a chunk is handed over with its
/// last one. After the last chunk comes a stop token.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Script {
    tokens: Vec<Token>,
    /// Where each chunk ends, ascending.
    ends: Vec<usize>,
    pace: Span,
}

impl Script {
    /// From chunks; empty ones are left out. `pace` is waited after each chunk, besides the steps.
    pub fn new(chunks: Vec<Vec<Token>>, pace: Span) -> Self {
        let mut script = Self { pace, ..Self::default() };
        for chunk in chunks.into_iter().filter(|chunk| !chunk.is_empty()) {
            script.tokens.extend(chunk);
            script.ends.push(script.tokens.len());
        }
        script
    }

    /// The answer's token number `index`, from 0; `None` past the end.
    pub fn token(&self, index: usize) -> Option<Token> {
        self.tokens.get(index).copied()
    }

    /// Tokens of the whole answer, the stop token not among them.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Whether a chunk ends with the token before number `index`.
    pub(crate) fn ends_before(&self, index: usize) -> bool {
        self.ends.binary_search(&index).is_ok()
    }

    pub(crate) fn pace(&self) -> Span {
        self.pace
    }
}
