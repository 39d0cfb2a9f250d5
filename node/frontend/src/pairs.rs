//! Results of tools and the calls that they answer, paired by the ids that the client gives them.
//!
//! Harnesses run calls at once and send results as they come. A prompt shows the results of
//! neighbouring messages in the order of their calls, each with the name of its tool, and no ids:
//! equal histories of all dialects are equal prompts. What a result's place is depends on nothing
//! that comes after its neighbours, which keeps histories that only grow prefixes of each other.

use crate::error::ApiError;
use model::Message;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone)]
struct Call {
    id: Option<Arc<str>>,
    name: Arc<str>,
    answered: bool,
}

/// A message with a result, and the call that it answers.
#[derive(Clone, Copy)]
struct Answer {
    message: usize,
    call: usize,
}

/// The calls of a history so far, and their results.
#[derive(Default)]
pub(crate) struct Pairs {
    calls: Vec<Call>,
    /// The last call of each id.
    by_id: BTreeMap<Arc<str>, usize>,
    /// The first call of the message that made the last ones.
    turn: usize,
    /// No call of this turn before this one waits for a result.
    next: usize,
    results: Vec<Answer>,
}

/// A place in a history: so many calls and results, and where its last turn begins.
#[derive(Clone, Copy, Default)]
pub(crate) struct Mark {
    calls: usize,
    results: usize,
    turn: usize,
}

/// An empty id says as little as none.
fn said(id: Option<&str>) -> Option<&str> {
    id.filter(|id| !id.is_empty())
}

impl Pairs {
    /// The end of the history so far.
    pub(crate) fn mark(&self) -> Mark {
        Mark { calls: self.calls.len(), results: self.results.len(), turn: self.turn }
    }

    /// What they were at `mark`.
    pub(crate) fn first(&self, mark: Mark) -> Self {
        let mut first = Self { turn: mark.turn, next: mark.turn, ..Self::default() };
        for (i, call) in self.calls.iter().take(mark.calls).enumerate() {
            if let Some(id) = &call.id {
                first.by_id.insert(id.clone(), i);
            }
            first.calls.push(Call { answered: false, ..call.clone() });
        }
        first.results.extend(self.results.iter().take(mark.results));
        for result in &first.results {
            if let Some(call) = first.calls.get_mut(result.call) {
                call.answered = true;
            }
        }
        first
    }

    /// A message of the assistant begins.
    pub(crate) fn turn(&mut self) {
        (self.turn, self.next) = (self.calls.len(), self.calls.len());
    }

    /// It calls a tool; `at` is the path of the id.
    ///
    /// # Errors
    /// Another call of the message has this id.
    pub(crate) fn call(&mut self, id: Option<&str>, name: &str, at: &str) -> Result<(), ApiError> {
        let id: Option<Arc<str>> = said(id).map(Arc::from);
        if let Some(id) = &id {
            let before = self.by_id.insert(id.clone(), self.calls.len());
            if before.is_some_and(|before| before >= self.turn) {
                let why = format_args!("`{id}` is the id of another call of this turn").to_string();
                return Err(ApiError::field(at, why));
            }
        }
        self.calls.push(Call { id, name: name.into(), answered: false });
        Ok(())
    }

    /// A result comes, as the message `message` of the history; `at` is the path of its id. Without
    /// an id it answers the first call of the last turn that waits. Returns the name of the tool.
    ///
    /// # Errors
    /// No call has this id, or it has a result already.
    pub(crate) fn result(
        &mut self,
        id: Option<&str>,
        message: usize,
        at: &str,
    ) -> Result<Option<&str>, ApiError> {
        let call = match said(id) {
            Some(id) => {
                let call = self.by_id.get(id).copied().ok_or_else(|| {
                    ApiError::field(
                        at,
                        format_args!("no call before this result has the id `{id}`"),
                    )
                })?;
                if self.calls.get(call).is_some_and(|call| call.answered) {
                    let why = format_args!("the call `{id}` has a result already").to_string();
                    return Err(ApiError::field(at, why));
                }
                call
            }
            None => {
                while self.calls.get(self.next).is_some_and(|call| call.answered) {
                    self.next += 1;
                }
                // Without one that waits it belongs to none, also to none that comes later.
                if self.next < self.calls.len() { self.next } else { usize::MAX }
            }
        };
        self.results.push(Answer { message, call });
        let Some(call) = self.calls.get_mut(call) else { return Ok(None) };
        call.answered = true;
        Ok(Some(&call.name))
    }

    /// Puts neighbouring results of the history, whose messages are as they came, into the order of
    /// their calls.
    pub(crate) fn order(&self, messages: &mut [Message]) {
        let neighbours = |a: &Answer, b: &Answer| b.message == a.message + 1;
        for run in self.results.chunk_by(neighbours) {
            if run.is_sorted_by_key(|result| result.call) {
                continue;
            }
            let of = |result: &Answer| Some((result.call, messages.get(result.message)?.clone()));
            let mut taken: Vec<(usize, Message)> = run.iter().filter_map(of).collect();
            taken.sort_by_key(|(call, _)| *call);
            for (result, (_, message)) in run.iter().zip(taken) {
                if let Some(place) = messages.get_mut(result.message) {
                    *place = message;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
