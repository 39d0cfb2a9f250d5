//! Who runs, and what each step computes.

#[cfg(test)]
mod tests;

use crate::sequence::{Pause, Sequence};
use protocol::op::LeaseId;
use std::cmp::Reverse;
use std::time::Instant;

/// The sequences of an engine.
///
/// Order everywhere: higher priority, then earlier arrival.
pub(crate) struct Schedule {
    waiting: Vec<Sequence>,
    running: Vec<Sequence>,
    max_batch: usize,
    prefill_chunk: usize,
}

/// One running sequence's part of a step.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Part {
    /// Index among the running.
    pub(crate) sequence: usize,
    /// What is computed, ascending.
    pub(crate) positions: Vec<u32>,
}

/// What to do next.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Plan {
    /// Compute these; never empty.
    Step(Vec<Part>),
    /// Nobody can go on: all lack slots and were told repeatedly that there are none. The youngest
    /// has to end so that the others get its slots.
    Stuck(usize),
    /// Nothing can run before a message comes, or this time.
    Idle(Option<Instant>),
}

fn order(sequence: &Sequence) -> (Reverse<i32>, Instant) {
    (Reverse(sequence.priority), sequence.arrived)
}

fn insert(into: &mut Vec<Sequence>, sequence: Sequence) {
    let place = into.partition_point(|other| order(other) <= order(&sequence));
    into.insert(place, sequence);
}

impl Schedule {
    /// `prefill_chunk` is the number of prompt tokens per step: decoding never waits longer than
    /// for one such chunk.
    pub(crate) fn new(max_batch: usize, prefill_chunk: usize) -> Self {
        Self { waiting: Vec::new(), running: Vec::new(), max_batch, prefill_chunk }
    }

    /// Takes a new sequence.
    pub(crate) fn add(&mut self, sequence: Sequence) {
        insert(&mut self.waiting, sequence);
    }

    /// Lets waiting sequences run while there is a place; returns how many.
    pub(crate) fn admit(&mut self, now: Instant) -> usize {
        let places = self.max_batch.saturating_sub(self.running.len());
        let admitted = places.min(self.waiting.len());
        for mut sequence in self.waiting.drain(..admitted) {
            sequence.queued = now.saturating_duration_since(sequence.arrived);
            insert(&mut self.running, sequence);
        }
        admitted
    }

    /// Sequences that run at once at most.
    pub(crate) fn seats(&self) -> usize {
        self.max_batch
    }

    pub(crate) fn running(&self) -> &[Sequence] {
        &self.running
    }

    pub(crate) fn running_mut(&mut self) -> &mut [Sequence] {
        &mut self.running
    }

    pub(crate) fn waiting(&self) -> &[Sequence] {
        &self.waiting
    }

    /// The sequence of a lease.
    pub(crate) fn find(&mut self, lease: LeaseId) -> Option<&mut Sequence> {
        self.waiting.iter_mut().chain(&mut self.running).find(|sequence| sequence.lease == lease)
    }

    /// A sequence ended. Its slots come back only when its lease is released, some time later; the
    /// others wait for them instead of ending one after the other.
    pub(crate) fn room_comes(&mut self, now: Instant) {
        self.running.iter_mut().for_each(|sequence| sequence.room_comes(now));
    }

    /// Takes a running sequence out.
    pub(crate) fn remove(&mut self, index: usize) -> Sequence {
        self.running.remove(index)
    }

    /// Takes out those for which `gone` holds: the running ones, and those that waited.
    pub(crate) fn extract(
        &mut self,
        gone: impl Fn(&Sequence) -> bool,
    ) -> (Vec<Sequence>, Vec<Sequence>) {
        let running = self.running.extract_if(.., |sequence| gone(sequence)).collect();
        let waiting = self.waiting.extract_if(.., |sequence| gone(sequence)).collect();
        (running, waiting)
    }

    /// Chooses the next step: one token of every sequence that decodes, and one chunk of prompt
    /// tokens, dealt out in order.
    pub(crate) fn plan(&mut self, now: Instant) -> Plan {
        let (mut parts, mut budget) = (Vec::new(), self.prefill_chunk);
        let mut paused = Vec::new();
        for (index, sequence) in self.running.iter_mut().enumerate() {
            if let Some(pause) = sequence.pause(now) {
                paused.push((index, pause));
                continue;
            }
            let positions = if sequence.is_prefilling() {
                sequence.chunk(budget)
            } else {
                vec![sequence.decode_position()]
            };
            if sequence.is_prefilling() {
                budget -= positions.len();
            }
            if !positions.is_empty() {
                parts.push(Part { sequence: index, positions });
            }
        }
        if !parts.is_empty() {
            return Plan::Step(parts);
        }
        if !paused.is_empty() && paused.iter().all(|(_, pause)| *pause == Pause::Stuck) {
            let age = |(index, _): &&(usize, Pause)| self.running.get(*index).map(|s| s.arrived);
            if let Some((youngest, _)) = paused.iter().max_by_key(age) {
                return Plan::Stuck(*youngest);
            }
        }
        Plan::Idle(self.running.iter().filter_map(Sequence::pause_ends).min())
    }
}
