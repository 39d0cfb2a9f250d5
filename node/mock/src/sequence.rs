//! One sequence: its tokens, its blocks, how far it is.

#[cfg(test)]
mod tests;
mod tokens;

use crate::{Job, Pattern, Script};
use protocol::block::SlotRef;
use protocol::hash::Token;
use protocol::id::NodeId;
use protocol::op::{Arriving, ArrivingFrom, LeaseId};
use protocol::prompt::{Limits, PromptSources, Sampling};
use protocol::time::{Span, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most blocks asked for at once.
const ROOM_BATCH: usize = 16;
/// A sequence without room asks again after so long, twice as long after each refusal.
const ROOM_RETRY: Span = Span::millis(10);
const ROOM_RETRY_MAX: Span = Span::millis(160);
/// Refusals after which a sequence counts as stuck.
const ROOM_REFUSALS: u32 = 4;

/// Where a prompt block comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// This sequence computes it.
    Own,
    /// It was in the slot from the start.
    Ready,
    /// It is on its way until the deadline.
    Awaited { until: Time },
    /// It was copied in.
    Imported,
}

/// What a sequence knows about slots beyond those it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Room {
    /// It has not asked.
    Quiet,
    /// It asked and has no answer yet.
    Asked,
    /// There was none, so many times; it asks again then.
    Refused { times: u32, again: Time },
}

/// Why a sequence cannot run now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pause {
    /// Its reader is slow.
    Reader,
    /// Its script takes a rest.
    Pace,
    /// The block it needs next is on its way.
    Block,
    /// It needs a slot and waits for an answer.
    Slot,
    /// It needs a slot, and was told several times that there is none.
    Stuck,
}

/// A sequence's part of a step: what it computes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Chunk {
    /// First and last position computed.
    pub(crate) first: usize,
    pub(crate) last: usize,
    /// Positions computed: those between that are present are left out.
    pub(crate) new: usize,
    /// Sum over the new positions of the tokens before them that are not new.
    pub(crate) pairs: u64,
}

/// How a sequence was ended from outside while a step that it takes part in runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// The block manager aborted it.
    Aborted,
    /// Its reader left.
    Gone,
}

pub(crate) struct Sequence {
    pub(crate) lease: LeaseId,
    sampling: Sampling,
    pub(crate) limits: Limits,
    pub(crate) arrived: Time,
    pub(crate) serving_node: NodeId,
    script: Option<Arc<Script>>,
    resumed: usize,
    /// Tokens per block.
    block: usize,
    /// Prompt and answer.
    tokens: Vec<Token>,
    prompt: usize,
    slots: Vec<SlotRef>,
    /// Of the prompt's blocks.
    origins: Vec<Origin>,
    from: BTreeMap<usize, ArrivingFrom>,
    /// First position that is not in the pool.
    pub(crate) next: usize,
    /// Like `next`, the step that is running included.
    begun: usize,
    /// Blocks before this one are present, so that they need not be looked at again.
    scanned: usize,
    /// What its tokens imply, block by block; as far as anybody asked.
    implied: Vec<Pattern>,
    /// What it really used, block by block.
    used: Vec<Pattern>,
    /// Follows from all of `used`: equal to the last of `implied` while all was right.
    state: Option<Pattern>,
    room: Room,
    /// From arrival until it was taken to run.
    pub(crate) queued: Span,
    /// Most tokens, prompt and answer together.
    most: usize,
    pub(crate) started: bool,
    pub(crate) in_step: bool,
    pub(crate) ending: Option<Ending>,
    pub(crate) blocked: bool,
    /// It rests until then.
    pub(crate) rests_until: Time,
    /// Tokens of a chunk that is not whole yet.
    held: Vec<Token>,
}

impl Sequence {
    /// `block` is the number of tokens per block, `context` the engine's limit in tokens.
    pub(crate) fn new(job: Job, block: usize, context: usize) -> Self {
        let prompt = job.prompt.len();
        let mut origins = vec![Origin::Own; prompt.div_ceil(block)];
        let mut from = BTreeMap::new();
        // Only blocks that the prompt fills can come from elsewhere: the answer is written into
        // the last one when the prompt ends inside it.
        let whole = prompt / block;
        for Arriving { index, from: source, deadline } in job.grant.arriving {
            if let Some(origin) = origins.iter_mut().take(whole).nth(index as usize) {
                *origin = Origin::Awaited { until: deadline };
                from.insert(index as usize, source);
            }
        }
        let ready = whole.min(job.grant.ready as usize);
        origins.iter_mut().take(ready).for_each(|origin| *origin = Origin::Ready);
        let answer = (job.limits.max_tokens as usize).max(1);
        Self {
            lease: job.grant.lease,
            sampling: job.sampling,
            limits: job.limits,
            arrived: job.arrived,
            serving_node: job.serving_node,
            script: job.script,
            resumed: job.resumed as usize,
            block,
            tokens: Arc::unwrap_or_clone(job.prompt),
            prompt,
            slots: job.grant.slots,
            origins,
            from,
            next: 0,
            begun: 0,
            scanned: 0,
            implied: Vec::new(),
            used: Vec::new(),
            state: None,
            room: Room::Quiet,
            queued: Span::ZERO,
            most: context.min(prompt.saturating_add(answer)),
            started: false,
            in_step: false,
            ending: None,
            blocked: false,
            rests_until: Time::ZERO,
            held: Vec::new(),
        }
    }

    pub(crate) fn slots(&self) -> &[SlotRef] {
        &self.slots
    }

    pub(crate) fn slot(&self, block: usize) -> Option<SlotRef> {
        self.slots.get(block).copied()
    }

    /// Tokens generated so far, a stop token not among them.
    pub(crate) fn generated(&self) -> usize {
        self.tokens.len() - self.prompt
    }

    pub(crate) fn is_prefilling(&self) -> bool {
        self.next < self.prompt
    }

    /// Whether the answer is as long as the context allows.
    pub(crate) fn is_full(&self) -> bool {
        self.tokens.len() >= self.most
    }

    pub(crate) fn is_present(&self, block: usize) -> bool {
        matches!(self.origins.get(block), Some(Origin::Ready | Origin::Imported))
    }

    /// Whether it may run; an awaited block whose deadline has passed is given up.
    pub(crate) fn pause(&mut self, now: Time) -> Option<Pause> {
        if self.blocked {
            return Some(Pause::Reader);
        }
        if now < self.rests_until {
            return Some(Pause::Pace);
        }
        if self.is_prefilling() {
            let block = self.first_needed() / self.block;
            return match self.origins.get(block) {
                Some(Origin::Awaited { until }) if *until > now => Some(Pause::Block),
                Some(Origin::Awaited { .. }) => {
                    self.missed(block);
                    None
                }
                _ => None,
            };
        }
        if self.next / self.block < self.slots.len() {
            return None;
        }
        match self.room {
            Room::Refused { times, .. } if times >= ROOM_REFUSALS => Some(Pause::Stuck),
            _ => Some(Pause::Slot),
        }
    }

    /// When a pause may end without an input, after `now`.
    pub(crate) fn pause_ends(&mut self, now: Time) -> Option<Time> {
        if self.blocked {
            return None;
        }
        if now < self.rests_until {
            return Some(self.rests_until);
        }
        if self.is_prefilling() {
            let block = self.first_needed() / self.block;
            return match self.origins.get(block) {
                Some(Origin::Awaited { until }) => Some(*until),
                _ => None,
            };
        }
        match self.room {
            Room::Refused { again, .. } => Some(again),
            _ => None,
        }
    }

    /// The next position of the prompt that must be computed: the first that is not present, at
    /// the latest the last one, whose token is wanted.
    fn first_needed(&mut self) -> usize {
        let mut block = self.scanned.max(self.next / self.block);
        while self.is_present(block) {
            block += 1;
        }
        self.scanned = block;
        self.next.max(block * self.block).min(self.prompt - 1)
    }

    /// Up to `budget` positions of the prompt that can be computed now. Blocks that are present are
    /// skipped; the first block still awaited ends them.
    pub(crate) fn chunk(&mut self, budget: usize) -> Option<Chunk> {
        let mut position = self.first_needed();
        let mut chunk = Chunk { first: position, last: position, new: 0, pairs: 0 };
        while position < self.prompt && chunk.new < budget {
            let block = position / self.block;
            let end = ((block + 1) * self.block).min(self.prompt);
            let until = match self.origins.get(block) {
                Some(Origin::Awaited { .. }) => break,
                _ if self.is_present(block) && position + 1 < self.prompt => {
                    position = end.min(self.prompt - 1);
                    continue;
                }
                _ => end.min(position + budget - chunk.new),
            };
            let count = until - position;
            chunk.pairs += (count * (position - chunk.new)) as u64;
            chunk.new += count;
            chunk.last = until - 1;
            position = until;
        }
        (chunk.new > 0).then_some(chunk)
    }

    /// The decode step's part.
    pub(crate) fn decode(&self) -> Chunk {
        Chunk { first: self.next, last: self.next, new: 1, pairs: 0 }
    }

    /// A step that computes `chunk` begins; names the blocks whose slots it writes.
    pub(crate) fn begin(&mut self, chunk: &Chunk) -> impl Iterator<Item = SlotRef> + '_ {
        self.in_step = true;
        self.begun = chunk.last + 1;
        let blocks = chunk.first / self.block..=chunk.last / self.block;
        blocks.filter(|block| !self.is_present(*block)).filter_map(|block| self.slot(block))
    }

    /// Whether the token after `position` is to be chosen.
    pub(crate) fn ends_with(&self, position: usize) -> bool {
        position + 1 == self.tokens.len()
    }

    /// The engine slot that an import of `block` may be written to: the block is this sequence's,
    /// in this slot, and neither present nor begun.
    pub(crate) fn importable(&self, block: usize, to: SlotRef) -> bool {
        self.slots.get(block) == Some(&to)
            && block < self.prompt / self.block
            && !self.is_present(block)
            && self.begun <= block * self.block
    }

    pub(crate) fn imported(&mut self, block: usize) {
        if let Some(origin) = self.origins.get_mut(block) {
            *origin = Origin::Imported;
        }
    }

    /// An awaited block will not come.
    pub(crate) fn missed(&mut self, block: usize) {
        if let Some(origin @ Origin::Awaited { .. }) = self.origins.get_mut(block) {
            *origin = Origin::Own;
        }
    }

    /// Whether a block was there from the start.
    pub(crate) fn is_ready(&self, block: usize) -> bool {
        matches!(self.origins.get(block), Some(Origin::Ready))
    }

    /// More slots; none means no room now.
    pub(crate) fn grant(&mut self, slots: &[SlotRef], now: Time) {
        if slots.is_empty() {
            let times = match self.room {
                Room::Refused { times, .. } => times + 1,
                _ => 1,
            };
            self.refused(times, now);
            return;
        }
        self.slots.extend(slots);
        self.room = Room::Quiet;
    }

    /// Slots of another sequence are about to come back: refusals so far say nothing about them, so
    /// it asks again soon and counts anew.
    pub(crate) fn room_comes(&mut self, now: Time) {
        if matches!(self.room, Room::Refused { .. }) {
            self.refused(0, now);
        }
    }

    fn refused(&mut self, times: u32, now: Time) {
        let pause = ROOM_RETRY * (1 << times.min(8));
        self.room = Room::Refused { times, again: now + pause.min(ROOM_RETRY_MAX) };
    }

    /// How many more blocks to ask for now, if any: when at most one unused is left and the answer
    /// may need more. Once until the answer, and again some time after each refusal.
    pub(crate) fn room_wanted(&mut self, now: Time) -> Option<u32> {
        // The last token of an answer is never fed back.
        let needed = (self.most - 1).div_ceil(self.block);
        let used = self.next.div_ceil(self.block);
        let left = self.slots.len().saturating_sub(used);
        if self.is_prefilling() || left > 1 || self.slots.len() >= needed {
            return None;
        }
        match self.room {
            Room::Quiet => self.room = Room::Asked,
            // Keeps the count until the answer.
            Room::Refused { times, again } if again <= now => self.refused(times, now),
            _ => return None,
        }
        Some((needed - self.slots.len()).min(ROOM_BATCH) as u32)
    }

    /// Prompt tokens by source: final once the prompt is in the pool. A token that was computed
    /// for its successor alone counts as computed.
    pub(crate) fn sources(&self) -> PromptSources {
        let mut sources = PromptSources::default();
        for (block, origin) in self.origins.iter().enumerate() {
            let end = ((block + 1) * self.block).min(self.prompt - 1);
            let tokens = end.saturating_sub(block * self.block) as u32;
            let count = match (origin, self.from.get(&block)) {
                (Origin::Ready, _) => &mut sources.gpu,
                (Origin::Imported, Some(ArrivingFrom::Peer(_))) => &mut sources.peer,
                (Origin::Imported, Some(ArrivingFrom::Nvme)) => &mut sources.nvme,
                (Origin::Imported, _) => &mut sources.dram,
                _ => continue,
            };
            *count += tokens;
        }
        sources.computed = self.prompt as u32 - sources.cached();
        sources
    }

    /// Prompt tokens that are still to be computed.
    pub(crate) fn uncached(&self) -> usize {
        let tokens = |block: usize| {
            let end = ((block + 1) * self.block).min(self.prompt);
            end.saturating_sub(self.next.max(block * self.block))
        };
        let first = self.next / self.block;
        let blocks = self.origins.iter().enumerate().skip(first);
        blocks.filter(|(_, o)| **o == Origin::Own).map(|(block, _)| tokens(block)).sum()
    }
}
