//! Constrained answers: what may come next is worked out beside the engine's thread, so that a step
//! waits for no grammar.

mod helpers;
#[cfg(test)]
mod tests;

pub(crate) use helpers::Helpers;

use model::{GrammarError, Guide, Mask};
use protocol::constraint::Constraint;
use protocol::hash::Token;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

/// The grammar of one sequence.
pub(crate) struct Guided {
    helpers: Arc<Helpers>,
    state: Arc<Mutex<State>>,
}

/// Where the work on the next mask stands.
enum State {
    /// A helper has the guide.
    Working,
    Ready(Box<Guide>, Arc<Mask>),
    Failed(GrammarError),
}

/// What a sequence may do.
#[derive(Clone, Debug)]
pub(crate) enum Next {
    /// Wait.
    Later,
    /// Choose among these.
    Choose(Arc<Mask>),
    /// End in failure.
    Fail(GrammarError),
}

impl Guided {
    /// Begins with the compilation. `answered` are the tokens of the answer so far.
    pub(crate) fn begin(
        helpers: &Arc<Helpers>,
        constraint: Constraint,
        answered: Vec<Token>,
    ) -> Self {
        let state = Arc::new(Mutex::new(State::Working));
        let (shared, grammars) = (Arc::clone(&state), Arc::clone(helpers.grammars()));
        helpers.compile(move || {
            work(&shared, || {
                let mut guide = Box::new(grammars.compile(&constraint)?.begin());
                answered.iter().try_for_each(|token| guide.accept(*token))?;
                with_mask(guide)
            });
        });
        Self { helpers: Arc::clone(helpers), state }
    }

    /// What may be done now.
    pub(crate) fn next(&self) -> Next {
        match &*self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Working => Next::Later,
            State::Ready(_, mask) => Next::Choose(Arc::clone(mask)),
            State::Failed(error) => Next::Fail(error.clone()),
        }
    }

    /// Takes the token that was chosen; whether nothing but the end may follow it.
    pub(crate) fn accept(&self, token: Token) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State::Ready(mut guide, _) = std::mem::replace(&mut *state, State::Working) else {
            return false;
        };
        if let Err(error) = guide.accept(token) {
            *state = State::Failed(error);
            return false;
        }
        drop(state);
        let over = guide.is_over();
        if !over {
            let shared = Arc::clone(&self.state);
            self.helpers.mask(move || work(&shared, || with_mask(guide)));
        }
        over
    }
}

/// Works out what may come next.
fn with_mask(mut guide: Box<Guide>) -> Result<State, GrammarError> {
    let mask = guide.mask()?;
    Ok(State::Ready(guide, Arc::new(mask)))
}

/// Sets what the work comes to. A sequence must not wait for work that panicked.
fn work(state: &Mutex<State>, work: impl FnOnce() -> Result<State, GrammarError>) {
    let panicked = |_| Err(GrammarError::Lost("its grammar failed unexpectedly".into()));
    let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(panicked);
    *state.lock().unwrap_or_else(PoisonError::into_inner) = done.unwrap_or_else(State::Failed);
}
