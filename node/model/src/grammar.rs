//! The grammar compiler: from the form that an answer must have to the tokens that may come next.
//!
//! [`Grammars`] belongs to a model and compiles each [`Constraint`] once; a [`Guide`] follows one
//! answer through it. The arithmetic is llguidance's.

mod cache;
mod guide;
mod source;
#[cfg(test)]
mod tests;
mod vocabulary;

pub use guide::{Guide, Mask};

use crate::Tokenizer;
use cache::Cache;
use llguidance::api::ParserLimits;
use llguidance::toktrie::InferenceCapabilities;
use llguidance::{ParserFactory, TokenParser};
use protocol::constraint::Constraint;
use protocol::hash::Token;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// Why a constraint cannot be enforced.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GrammarError {
    /// The constraint is at fault, for every model.
    #[error("{0}")]
    Refused(String),
    /// The model's vocabulary is of a kind that cannot be constrained.
    #[error("answers of this model cannot be constrained: {0}")]
    Vocabulary(String),
    /// An answer cannot go on: its grammar became too complex, or a token was not allowed.
    #[error("the answer left its grammar: {0}")]
    Lost(String),
}

/// Deepest nesting of a schema's JSON.
pub const SCHEMA_DEPTH_MAX: usize = 64;

/// Bounds of the compiler, in its own units; its documentation gives about 50,000 of the first a
/// millisecond, 14,000 of the second and 20,000 of the third.
fn limits() -> ParserLimits {
    ParserLimits {
        initial_lexer_fuel: 2_000_000,
        step_lexer_fuel: 200_000,
        step_max_items: 50_000,
        max_items_in_row: 20_000,
        // One or two kB each, for every running answer.
        max_lexer_states: 20_000,
        max_grammar_size: 250_000,
        precompute_large_lexemes: false,
        verbose_errors: false,
    }
}

/// The compiler of one model; shared by all who use the model, and usable from any thread.
pub struct Grammars {
    tokenizer: Tokenizer,
    ends: Vec<Token>,
    /// Made when first needed: it takes a pass over the vocabulary.
    compiler: OnceLock<Result<ParserFactory, GrammarError>>,
    cache: Cache,
}

/// A compiled constraint.
pub struct Grammar {
    start: TokenParser,
}

impl Grammars {
    pub(crate) fn new(tokenizer: Tokenizer, ends: Vec<Token>) -> Self {
        Self { tokenizer, ends, compiler: OnceLock::new(), cache: Cache::default() }
    }

    /// The outcome of [`Self::compile`] if it is known already; never works or waits.
    pub fn known(&self, constraint: &Constraint) -> Option<Result<Arc<Grammar>, GrammarError>> {
        self.cache.get(constraint)?.get().cloned()
    }

    /// Compiles a constraint, or finds what an earlier call made of an equal one. Takes
    /// milliseconds, for the worst schemas seconds: not for threads that must not wait. Callers with
    /// equal constraints wait for one compilation.
    ///
    /// # Errors
    /// [`GrammarError::Refused`] and [`GrammarError::Vocabulary`].
    pub fn compile(&self, constraint: &Constraint) -> Result<Arc<Grammar>, GrammarError> {
        if !constraint.fits() {
            return Err(GrammarError::Refused(format!(
                "is over the limits of {} bytes and {} tools",
                Constraint::BYTES_MAX,
                Constraint::TOOLS_MAX
            )));
        }
        let place = self.cache.place(constraint);
        place.get_or_init(|| self.compile_anew(constraint).map(Arc::new)).clone()
    }

    fn compile_anew(&self, constraint: &Constraint) -> Result<Grammar, GrammarError> {
        let source = source::of(constraint, &self.tokenizer)?;
        let compiler = self.compiler.get_or_init(|| factory(&self.tokenizer, &self.ends));
        let compiler = compiler.as_ref().map_err(GrammarError::clone)?;
        let start = compiler.create_parser(source);
        let grammar =
            Grammar { start: start.map_err(|error| GrammarError::Refused(words(&error)))? };
        self.probe(&grammar).map_err(|error| match error {
            GrammarError::Lost(why) if why == NOTHING => {
                GrammarError::Refused("nothing conforms to it".into())
            }
            GrammarError::Lost(why) => GrammarError::Refused(why),
            error => error,
        })?;
        Ok(grammar)
    }

    /// A grammar that is too complex at its beginning is refused, not lost: most of what objects and
    /// lists may hold is to be said behind their first letter.
    fn probe(&self, grammar: &Grammar) -> Result<(), GrammarError> {
        let mask = grammar.begin().mask()?;
        let opens = ["{", "["].into_iter().filter_map(|text| self.tokenizer.token(text));
        for open in opens.filter(|open| mask.allows(*open)) {
            let mut guide = grammar.begin();
            guide.accept(open)?;
            guide.mask()?;
        }
        Ok(())
    }
}

/// The library's word for a state from which no byte goes on.
const NOTHING: &str = "NoExtensionBias";

impl fmt::Debug for Grammars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grammars").finish_non_exhaustive()
    }
}

impl fmt::Debug for Grammar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grammar").finish_non_exhaustive()
    }
}

fn factory(tokenizer: &Tokenizer, ends: &[Token]) -> Result<ParserFactory, GrammarError> {
    let environment = vocabulary::of(tokenizer, ends).map_err(GrammarError::Vocabulary)?;
    let slices = llguidance::earley::SlicedBiasComputer::json_slices();
    let factory = ParserFactory::new(&environment, InferenceCapabilities::default(), &slices);
    let mut factory = factory.map_err(|error| GrammarError::Vocabulary(words(&error)))?;
    factory.quiet();
    *factory.limits_mut() = limits();
    Ok(factory)
}

/// The library's message in one line, without what it appends for its own developers.
fn words(error: &impl fmt::Display) -> String {
    let text = error.to_string();
    if text.starts_with("panic") {
        return "the grammar compiler failed on it".into();
    }
    let text = text.split("\n<").next().unwrap_or_default();
    let mut line = text.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().nth(400) {
        line.truncate(end);
        line.push('…');
    }
    line
}
