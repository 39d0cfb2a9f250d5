//! What follows from what: patterns of blocks, and the next token.

use super::Sequence;
use crate::{Config, Pattern};
use protocol::hash::Token;
use protocol::time::Time;

/// A block that has become a part of what the sequence knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Folded {
    pub(crate) block: usize,
    /// What its tokens imply.
    pub(crate) implied: Pattern,
    /// What follows from everything used before: what a computed block holds. Differs from `implied`
    /// once something wrong was used.
    pub(crate) expected: Pattern,
}

impl Sequence {
    /// The tokens of a whole block.
    pub(crate) fn block_tokens(&self, block: usize) -> &[Token] {
        let start = block * self.block;
        self.tokens.get(start..start + self.block).unwrap_or_default()
    }

    /// What the sequence's own tokens imply that a whole block holds.
    pub(crate) fn implied(&mut self, block: usize) -> Pattern {
        while self.implied.len() <= block {
            let next = self.implied.len();
            let pattern = Pattern::of(self.implied.last().copied(), self.block_tokens(next));
            self.implied.push(pattern);
        }
        self.implied.get(block).copied().unwrap_or(Pattern::TORN)
    }

    /// Everything up to and including `position` is in the pool.
    pub(crate) fn computed(&mut self, position: usize) {
        self.next = position + 1;
        self.begun = self.begun.max(self.next);
        self.in_step = false;
    }

    /// The next block that is whole and not folded yet. Each must be followed by [`Self::fold`].
    pub(crate) fn next_whole(&mut self) -> Option<Folded> {
        let block = self.used.len();
        if (block + 1) * self.block > self.next {
            return None;
        }
        let right = block == 0 || self.state == self.implied.get(block - 1).copied();
        let implied = self.implied(block);
        let expected = match right {
            true => implied,
            false => Pattern::of(self.state, self.block_tokens(block)),
        };
        Some(Folded { block, implied, expected })
    }

    /// Takes in what a block's slot really holds.
    pub(crate) fn fold(&mut self, folded: &Folded, actual: Pattern) {
        self.state = Some(match actual == folded.expected {
            true => actual,
            // Every later block and token follows from what was wrong, whatever comes between.
            false => folded.expected.and(actual),
        });
        self.used.push(actual);
    }

    /// What was used of each block, with its slot.
    pub(crate) fn relied_on(
        &self,
    ) -> impl Iterator<Item = (protocol::block::SlotRef, Pattern)> + '_ {
        self.slots.iter().copied().zip(self.used.iter().copied())
    }

    /// Chooses the next token.
    pub(crate) fn choose(&self, config: &Config) -> Token {
        let index = self.resumed + self.generated();
        if let Some(script) = &self.script {
            return script.token(index).unwrap_or(config.stop_token);
        }
        if config.answer_tokens > 0 && index >= config.answer_tokens as usize {
            return config.stop_token;
        }
        let seed = if self.sampling.temperature > 0.0 { self.sampling.seed } else { 0 };
        let tail = self.tokens.get(self.used.len() * self.block..).unwrap_or_default();
        let mut weights = [0; 8];
        weights.iter_mut().zip(config.spec.routing.weights).for_each(|(to, from)| *to = from);
        let salt = seed ^ u64::from_le_bytes(weights);
        let drawn = Pattern::of(self.state, tail).draw(salt.wrapping_add(self.tokens.len() as u64));
        // A drawn token never ends the answer: how long it gets is for the limits to say.
        let stops = self.limits.stop_tokens.len() as u64 + 1;
        let candidates = (0..=stops).map(|more| word(config, drawn.wrapping_add(more)));
        let mut candidates = candidates.filter(|token| !self.limits.stop_tokens.contains(token));
        candidates.next().unwrap_or(config.stop_token)
    }

    /// Adds a token; tells what is to be handed to the reader now.
    pub(crate) fn push(&mut self, token: Token, now: Time) -> Vec<Token> {
        self.tokens.push(token);
        self.held.push(token);
        let index = self.resumed + self.generated();
        match &self.script {
            Some(script) if !script.ends_before(index) => return Vec::new(),
            Some(script) => self.rests_until = now + script.pace(),
            None => {}
        }
        self.take_held()
    }

    /// Tokens of a chunk that has not become whole.
    pub(crate) fn take_held(&mut self) -> Vec<Token> {
        std::mem::take(&mut self.held)
    }
}

/// The word that a drawn number names.
fn word(config: &Config, drawn: u64) -> Token {
    let words = config.words.len() as u64;
    if words > 0 {
        return config.words.get((drawn % words) as usize).copied().unwrap_or(config.stop_token);
    }
    let token = (drawn % u64::from(config.vocabulary - 1)) as u32;
    Token(if token >= config.stop_token.0 { token + 1 } else { token })
}
