//! What comes of a sequence's logits: a token, a wait for its grammar, an end.

use super::Worker;
use crate::guided::Next;
use crate::sampler;
use crate::sequence::Sequence;
use protocol::hash::Token;
use protocol::prompt::{FinishReason, Refusal, StreamItem};
use std::time::Instant;

/// What comes of them.
pub(super) enum Choice {
    /// Nothing now.
    None,
    Token(Token),
    /// The answer is whole.
    End,
    /// In words.
    Fail(String),
}

/// The end of a sequence: why, and how many tokens were generated but not shown.
pub(super) type End = Result<(FinishReason, u32), Refusal>;

/// Chooses a token, or keeps the logits until the grammar has its say.
pub(super) fn choice(sequence: &mut Sequence, logits: &[f32]) -> Choice {
    let next = sequence.grammar();
    if matches!(next, Some(Next::Later)) {
        sequence.hold(logits);
        return Choice::None;
    }
    choose(sequence, logits, next)
}

fn choose(sequence: &Sequence, logits: &[f32], next: Option<Next>) -> Choice {
    let (sampling, position) = (&sequence.sampling, sequence.len());
    let mask = match next {
        None => return Choice::Token(sampler::choose(logits, sampling, position)),
        Some(Next::Later) => return Choice::None,
        Some(Next::Fail(error)) => return Choice::Fail(error.to_string()),
        Some(Next::Choose(mask)) if mask.must_end() => return Choice::End,
        Some(Next::Choose(mask)) => mask,
    };
    let ends = &sequence.limits.stop_tokens;
    match sampler::choose_within(logits, &mask, ends, sampling, position) {
        Some(token) => Choice::Token(token),
        // Only an end was left, and the request knows none.
        None if mask.may_end() => Choice::End,
        None => Choice::Fail("no token goes on in the answer's grammar".into()),
    }
}

/// The end of an answer that its grammar ends: as if the model had said so, where there is room.
pub(super) fn stopped(sequence: &Sequence) -> (FinishReason, u32) {
    let end = sequence.limits.stop_tokens.first().copied().unwrap_or_default();
    (FinishReason::Stop(end), u32::from(!sequence.is_full()))
}

impl Worker {
    /// Goes on with the sequences whose logits waited for their grammar.
    pub(super) fn choose_held(&mut self, now: Instant) {
        let held = |(index, sequence): (usize, &mut Sequence)| {
            let (logits, next) = sequence.held()?;
            Some((index, choose(sequence, &logits, Some(next))))
        };
        let choices = self.schedule.running_mut().iter_mut().enumerate().filter_map(held).collect();
        self.carry_out(choices, now);
    }

    /// Does what was chosen for sequences, by their indexes, ascending.
    pub(super) fn carry_out(&mut self, choices: Vec<(usize, Choice)>, now: Instant) {
        let mut ended = Vec::new();
        for (index, choice) in choices {
            let end = match choice {
                Choice::None => None,
                Choice::Token(token) => self.deliver(index, token, now),
                Choice::End => self.conclude(index, now),
                Choice::Fail(error) => Some(Err(Refusal::Failed(error))),
            };
            ended.extend(end.map(|end| (index, end)));
        }
        // From the back, so that the indexes before stay right.
        for (index, end) in ended.into_iter().rev() {
            match end {
                Ok((reason, hidden)) => self.finish(index, reason, hidden),
                Err(refusal) => self.fail(index, refusal),
            }
        }
    }

    /// Ends a constrained answer that is whole.
    fn conclude(&mut self, index: usize, now: Instant) -> Option<End> {
        self.started(index, now).map(|sequence| Ok(stopped(sequence)))
    }

    fn fail(&mut self, index: usize, refusal: Refusal) {
        let mut sequence = self.schedule.remove(index);
        tracing::warn!(request = %sequence.request, %refusal, "sequence failed");
        sequence.outlet.send(StreamItem::Failed(refusal));
        self.early.ended(sequence.lease);
        self.drain(sequence);
        self.schedule.room_comes(Instant::now());
    }
}
