//! Steps: who runs, what is computed, what comes of it.

use super::{Engine, Place};
use crate::sequence::{Chunk, Pause, Sequence};
use crate::slots::Slots;
use crate::{Out, Pattern, Stats};
use protocol::hash::Token;
use protocol::op::EngineEvent;
use protocol::prompt::{FinishReason, Started, StreamItem};
use protocol::time::{Span, Time};
use rand_core::RngCore;

/// What is being computed.
pub(super) struct Step {
    parts: Vec<(Place, Chunk)>,
    /// Prompt tokens among it, and tokens fed back.
    prefill: u64,
    decode: u64,
    takes: Span,
    ends: Time,
}

impl Step {
    /// When its results appear.
    pub(super) fn ends(&self) -> Time {
        self.ends
    }
}

/// What to do next.
enum Next {
    Step(Step),
    /// Nobody can go on: all lack slots and were told repeatedly that there are none. The youngest
    /// has to end so that the others get its slots.
    Stuck(Place),
    Idle,
}

impl Engine {
    /// Ends the step whose time has come.
    pub(super) fn advance(&mut self, now: Time, out: &mut Vec<Out>) {
        if let Some(step) = self.step.take_if(|step| step.ends <= now) {
            self.reporter.changed();
            self.results(now, step, out);
        }
    }

    /// Begins the next step, when none runs and somebody can go on.
    pub(super) fn plan(&mut self, now: Time, out: &mut Vec<Out>) {
        while self.step.is_none() {
            self.wake = None;
            self.admit(now);
            self.ask_for_room(now, out);
            match self.next(now) {
                Next::Step(step) => {
                    self.begin(&step);
                    self.step = Some(step);
                }
                Next::Stuck(place) => {
                    self.stats.gave_up += 1;
                    self.finish(now, place, FinishReason::ContextFull, 0, out);
                }
                Next::Idle => {
                    let ends = self.running.values_mut().filter_map(|s| s.pause_ends(now)).min();
                    self.wake = ends.map(|time| time.max(Time(now.0 + 1)));
                    return;
                }
            }
        }
    }

    /// Lets waiting sequences run while there is a place.
    fn admit(&mut self, now: Time) {
        while self.running.len() < self.config.max_batch as usize {
            let Some((place, mut sequence)) = self.waiting.pop_first() else { return };
            sequence.queued = now.since(sequence.arrived);
            self.slots.hold(sequence.slots());
            self.running.insert(place, sequence);
        }
    }

    fn ask_for_room(&mut self, now: Time, out: &mut Vec<Out>) {
        for sequence in self.running.values_mut() {
            if let Some(blocks) = sequence.room_wanted(now) {
                let lease = sequence.lease;
                out.push(Out::Event(EngineEvent::NeedSlots { lease, blocks }));
            }
        }
    }

    /// Chooses the next step: one token of every sequence that decodes; what they leave of the
    /// budget goes to prompt tokens, dealt out in order.
    fn next(&mut self, now: Time) -> Next {
        let (mut parts, mut prefilling) = (Vec::new(), Vec::new());
        let (mut paused, mut stuck) = (0, Vec::new());
        let mut contexts = 0;
        for (place, sequence) in &mut self.running {
            match sequence.pause(now) {
                Some(pause) => {
                    paused += 1;
                    if pause == Pause::Stuck {
                        stuck.push((sequence.arrived, *place));
                    }
                }
                None if sequence.is_prefilling() => prefilling.push(*place),
                None => {
                    contexts += sequence.next as u64 + 1;
                    parts.push((*place, sequence.decode()));
                }
            }
        }
        let decode = parts.len() as u64;
        let mut budget = (self.config.max_batched_tokens as usize).saturating_sub(parts.len());
        let (mut prefill, mut pairs) = (0, 0);
        for place in prefilling {
            if budget == 0 {
                break;
            }
            let Some(sequence) = self.running.get_mut(&place) else { continue };
            let Some(chunk) = sequence.chunk(budget) else { continue };
            budget -= chunk.new;
            prefill += chunk.new as u64;
            pairs += chunk.pairs;
            parts.push((place, chunk));
        }
        if parts.is_empty() {
            let youngest = stuck.iter().max().filter(|_| stuck.len() == paused);
            return youngest.map_or(Next::Idle, |(_, place)| Next::Stuck(*place));
        }
        let capacity = f64::from(self.slots.len()) * self.block as f64;
        let utilisation = (decode > 0).then(|| contexts as f64 / capacity);
        let takes = self.jittered(self.config.timing.step(prefill, pairs, utilisation));
        Next::Step(Step { parts, prefill, decode, takes, ends: now + takes })
    }

    fn jittered(&mut self, takes: Span) -> Span {
        let jitter = self.config.timing.jitter;
        if jitter <= 0.0 {
            return takes;
        }
        let drawn = f64::from(self.rng.next_u32()) / f64::from(u32::MAX);
        Span(((takes.0 as f64 * (1.0 + jitter * (2.0 * drawn - 1.0))) as u64).max(1))
    }

    fn begin(&mut self, step: &Step) {
        for (place, chunk) in &step.parts {
            let Some(sequence) = self.running.get_mut(place) else { continue };
            let lease = sequence.lease;
            for slot in sequence.begin(chunk) {
                self.slots.begin(slot, lease, &mut self.stats);
            }
        }
    }

    fn results(&mut self, now: Time, step: Step, out: &mut Vec<Out>) {
        self.stats.steps += 1;
        self.stats.prefill_tokens += step.prefill;
        self.stats.decode_tokens += step.decode;
        self.reporter.measured(step.prefill, step.decode, step.takes);
        for (place, chunk) in step.parts {
            let Some(sequence) = self.running.get_mut(&place) else { continue };
            sequence.computed(chunk.last);
            seal(sequence, &mut self.slots, &mut self.stats, out);
            let token = sequence.ends_with(chunk.last).then(|| sequence.choose(&self.config));
            let last = token.and_then(|token| deliver(now, sequence, token, out));
            let ending = sequence.ending;
            match (last, ending) {
                (Some((reason, hidden)), _) => self.finish(now, place, reason, hidden, out),
                (None, Some(ending)) => self.end_as(now, place, ending, out),
                (None, None) => {}
            }
        }
    }
}

/// Takes in the blocks that became whole, and tells those that were computed.
fn seal(sequence: &mut Sequence, slots: &mut Slots, stats: &mut Stats, out: &mut Vec<Out>) {
    let lease = sequence.lease;
    while let Some(folded) = sequence.next_whole() {
        let Some(slot) = sequence.slot(folded.block) else { return };
        if sequence.is_present(folded.block) {
            let actual = slots.pattern(slot).unwrap_or(Pattern::TORN);
            let wrong = sequence.is_ready(folded.block) && actual != folded.implied;
            stats.wrong_slots += u64::from(wrong);
            sequence.fold(&folded, actual);
            continue;
        }
        slots.seal(slot, lease, folded.expected, stats);
        sequence.fold(&folded, folded.expected);
        let tokens = sequence.block_tokens(folded.block).to_vec();
        let index = folded.block as u32;
        out.push(Out::Event(EngineEvent::Sealed { lease, index, tokens }));
    }
}

/// Hands a new token to the sequence and its reader; tells whether that was the last, and how many
/// tokens were generated but not shown.
fn deliver(
    now: Time,
    sequence: &mut Sequence,
    token: Token,
    out: &mut Vec<Out>,
) -> Option<(FinishReason, u32)> {
    let lease = sequence.lease;
    if !std::mem::replace(&mut sequence.started, true) {
        let started = Started {
            serving_node: sequence.serving_node,
            prompt: sequence.sources(),
            queued: sequence.queued,
        };
        out.push(Out::Item(lease, StreamItem::Started(started)));
    }
    if sequence.limits.stop_tokens.contains(&token) {
        return Some((FinishReason::Stop(token), 1));
    }
    let tokens = sequence.push(token, now);
    if !tokens.is_empty() {
        out.push(Out::Item(lease, StreamItem::Tokens(tokens)));
    }
    if !sequence.is_full() {
        return None;
    }
    match sequence.generated() >= sequence.limits.max_tokens as usize {
        true => Some((FinishReason::Length, 0)),
        false => Some((FinishReason::ContextFull, 0)),
    }
}
