//! Words, sizes and pauses from a seed.

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use std::time::Duration;

/// Common words: one or two tokens each for the tokenizers in use.
pub(crate) const WORDS: [&str; 96] = [
    "the", "module", "reads", "a", "file", "and", "then", "returns", "its", "value", "when",
    "every", "test", "runs", "in", "order", "small", "changes", "keep", "code", "clear", "we",
    "check", "each", "result", "before", "next", "step", "this", "function", "takes", "two",
    "numbers", "with", "an", "error", "if", "one", "is", "missing", "write", "short", "answers",
    "use", "simple", "names", "for", "new", "parts", "of", "system", "never", "change", "public",
    "types", "without", "reason", "server", "holds", "many", "open", "lines", "at", "same", "time",
    "first", "look", "at", "log", "after", "failure", "find", "cause", "explain", "it", "to",
    "others", "data", "moves", "between", "nodes", "as", "blocks", "client", "waits", "until",
    "last", "token", "arrives", "plan", "work", "from", "list", "tasks", "finish", "them",
];

/// A stream of words and numbers of one agent.
pub(crate) struct Words {
    rng: ChaCha8Rng,
}

impl Words {
    /// The stream of an agent: streams of one seed do not depend on each other.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        Self { rng }
    }

    /// A number below `limit`; 0 when that is 0. The bias of the remainder does not matter here.
    pub(crate) fn below(&mut self, limit: u32) -> u32 {
        self.rng.next_u32().checked_rem(limit).unwrap_or(0)
    }

    /// A number between both, which count.
    pub(crate) fn between(&mut self, (low, high): (u32, u32)) -> u32 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// An exponentially distributed pause, cut at `max_means` times the mean.
    pub(crate) fn pause(&mut self, mean: Duration, max_means: f64) -> Duration {
        let uniform = f64::from(self.rng.next_u32()) / (f64::from(u32::MAX) + 1.0);
        mean.mul_f64((-(1.0 - uniform).ln()).min(max_means))
    }

    /// One sentence of so many words.
    pub(crate) fn sentence(&mut self, words: u32) -> String {
        let chosen: Vec<&str> =
            (0..words.max(1)).map(|_| WORDS[self.below(WORDS.len() as u32) as usize]).collect();
        let mut text = chosen.join(" ");
        if let Some(first) = text.get_mut(0..1) {
            first.make_ascii_uppercase();
        }
        text.push('.');
        text
    }

    /// Sentences of 6 to 12 words each, so many words in all.
    pub(crate) fn sentences(&mut self, words: u32) -> String {
        let mut sentences = Vec::new();
        let mut left = words.max(1);
        while left > 0 {
            let size = self.between((6, 12)).min(left);
            sentences.push(self.sentence(size));
            left -= size;
        }
        sentences.join(" ")
    }
}
