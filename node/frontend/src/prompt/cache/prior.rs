//! How far an earlier prompt goes along with a new one.

use super::Tokenised;
use protocol::hash::GRANULE;
use std::sync::Arc;

/// An earlier prompt, and how much of it is also the beginning of the new one.
pub(super) struct Prior {
    pub(super) prompt: Arc<Tokenised>,
    /// The last border in common, in bytes …
    pub(super) bytes: usize,
    /// … and in tokens.
    pub(super) tokens: u32,
    /// Whether the new prompt holds all of it but its last part, the beginning of the answer.
    pub(super) is_all: bool,
}

impl Prior {
    /// How far `prompt` is the beginning of `text`; `None` when not even its first part is.
    fn of(prompt: &Arc<Tokenised>, text: &str, marker: Option<&[u8]>) -> Option<Self> {
        let common = common(prompt.text.as_bytes(), text.as_bytes());
        let same = common == text.len() && common == prompt.text.len();
        // A border of both: the same marker begins behind it, or both end there.
        let in_both = |bytes: usize| match marker {
            Some(marker) => same || bytes + marker.len() <= common,
            None => same,
        };
        let borders = &prompt.borders;
        let at = borders.iter().rposition(|(bytes, _)| in_both(*bytes))?;
        let (bytes, tokens) = *borders.get(at)?;
        let is_all = at + 2 >= borders.len();
        Some(Self { prompt: prompt.clone(), bytes, tokens, is_all })
    }

    /// What the new prompt has in common with it.
    pub(super) fn begin(&self) -> Tokenised {
        let prompt = &self.prompt;
        let tokens = self.tokens as usize;
        // Room for a turn, so that the copy is the only one.
        let room = |have: usize| have + have / 16 + 64;
        let mut out = Tokenised {
            tokens: Vec::with_capacity(room(tokens)),
            names: Vec::with_capacity(room(tokens / GRANULE)),
            ..Tokenised::default()
        };
        out.tokens.extend(prompt.tokens.iter().take(tokens));
        out.names.extend(prompt.names.iter().take(tokens / GRANULE));
        out.borders.extend(prompt.borders.iter().take_while(|(bytes, _)| *bytes <= self.bytes));
        out
    }
}

/// The earlier prompt that goes along furthest.
pub(super) fn best(prompts: &[Arc<Tokenised>], text: &str, marker: Option<&[u8]>) -> Option<Prior> {
    let priors = prompts.iter().filter_map(|prompt| Prior::of(prompt, text, marker));
    priors.max_by_key(|prior| prior.bytes)
}

/// Bytes that both begin with.
fn common(one: &[u8], other: &[u8]) -> usize {
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
