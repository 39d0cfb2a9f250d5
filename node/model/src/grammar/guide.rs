//! One answer on its way through a grammar.

use super::{Grammar, GrammarError, words};
use llguidance::Matcher;
use llguidance::toktrie::SimpleVob;
use protocol::hash::Token;

/// Where an answer stands in its grammar.
pub struct Guide {
    matcher: Matcher,
}

/// The tokens that may come next.
#[derive(Clone, Debug)]
pub struct Mask {
    text: SimpleVob,
    may_end: bool,
    must_end: bool,
}

impl Grammar {
    /// The beginning of an answer. Guides share nothing, so that one cannot slow another.
    pub fn begin(&self) -> Guide {
        Guide { matcher: Matcher::new(Ok(self.start.deep_clone())) }
    }
}

impl Guide {
    /// Goes on by a token of the answer; ends are not among them.
    ///
    /// # Errors
    /// [`GrammarError::Lost`] when the token is not allowed here; then nothing is allowed any more.
    pub fn accept(&mut self, token: Token) -> Result<(), GrammarError> {
        self.matcher.consume_token(token.0).map_err(lost)
    }

    /// Whether nothing but the end may come. More answers than this tells are found to be over by
    /// their next mask.
    pub fn is_over(&self) -> bool {
        self.matcher.is_stopped() && !self.matcher.is_error()
    }

    /// What may come next.
    ///
    /// # Errors
    /// [`GrammarError::Lost`] when the grammar became too complex here, or no token of the
    /// vocabulary goes on.
    pub fn mask(&mut self) -> Result<Mask, GrammarError> {
        if self.is_over() {
            return Ok(Mask { text: SimpleVob::new(), may_end: true, must_end: true });
        }
        let may_end = self.matcher.is_accepting().map_err(lost)?;
        let mut text = match self.matcher.compute_mask() {
            Ok(mask) => mask,
            // Nothing that is known to follow: the answer is whole.
            Err(_) if may_end => {
                return Ok(Mask { text: SimpleVob::new(), may_end, must_end: true });
            }
            Err(error) => return Err(lost(error)),
        };
        for end in self.matcher.tok_env().map_err(lost)?.tok_trie().eos_tokens() {
            if (*end as usize) < text.len() {
                text.disallow_token(*end);
            }
        }
        let must_end = may_end && text.is_zero();
        Ok(Mask { text, may_end, must_end })
    }
}

fn lost(error: impl std::fmt::Display) -> GrammarError {
    GrammarError::Lost(words(&error))
}

impl Mask {
    /// Whether a token, which ends nothing, may come.
    pub fn allows(&self, token: Token) -> bool {
        let id = token.0 as usize;
        id < self.text.len() && self.text.get(id)
    }

    /// Whether the answer may end here.
    pub fn may_end(&self) -> bool {
        self.may_end
    }

    /// Whether nothing is left but to end.
    pub fn must_end(&self) -> bool {
        self.must_end
    }

    /// Calls `f` for each token that may come, ends left out.
    pub fn for_each(&self, mut f: impl FnMut(Token)) {
        self.text.iter_set_entries(|id| f(Token(id as u32)));
    }
}
