//! One sequence: its tokens, its blocks, how far it is.

#[cfg(test)]
mod tests;

use crate::api::Job;
use crate::guided::{Guided, Helpers, Next};
use crate::outlet::Outlet;
use crate::pool::BLOCK;
use protocol::block::SlotRef;
use protocol::constraint::Constraint;
use protocol::hash::Token;
use protocol::id::{NodeId, RequestId};
use protocol::op::{Arriving, ArrivingFrom, Grant, LeaseId};
use protocol::prompt::{Limits, PromptSources, Sampling};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most blocks asked for at once.
const ROOM_BATCH: usize = 16;
/// A sequence without room asks again after so long, twice as long after each refusal.
const ROOM_RETRY: Duration = Duration::from_millis(10);
const ROOM_RETRY_MAX: Duration = Duration::from_millis(160);
/// Refusals after which a sequence counts as stuck.
const ROOM_REFUSALS: u32 = 4;

/// Where a prompt block's keys and values come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Origin {
    /// This sequence computes it.
    Own,
    /// It was in the slot from the start.
    Ready,
    /// It is on its way until the deadline.
    Awaited { until: Instant },
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
    Refused { times: u32, again: Instant },
}

/// Why a sequence cannot run now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pause {
    /// Its reader is slow.
    Reader,
    /// Its grammar is worked on.
    Grammar,
    /// The block it needs next is on its way.
    Block,
    /// It needs a slot and waits for an answer.
    Slot,
    /// It needs a slot, and was told several times that there is none.
    Stuck,
}

pub(crate) struct Sequence {
    pub(crate) request: RequestId,
    pub(crate) lease: LeaseId,
    pub(crate) sampling: Sampling,
    pub(crate) limits: Limits,
    pub(crate) priority: i32,
    pub(crate) arrived: Instant,
    pub(crate) serving_node: NodeId,
    pub(crate) outlet: Outlet,
    /// Prompt and answer.
    tokens: Vec<Token>,
    prompt: usize,
    slots: Vec<SlotRef>,
    slot_numbers: Vec<usize>,
    /// Of the prompt's blocks.
    origins: Vec<Origin>,
    from: BTreeMap<usize, ArrivingFrom>,
    /// First position that is not in the pool.
    next: usize,
    /// Blocks before this one were told or need not be.
    sealed: usize,
    room: Room,
    /// From arrival until it was taken to run.
    pub(crate) queued: Duration,
    /// Most tokens, prompt and answer together.
    most: usize,
    pub(crate) last_token: Option<Instant>,
    /// Tokens at the prompt's end that were answered before.
    resumed: usize,
    /// What the answer must look like, until its grammar is begun.
    constraint: Option<Constraint>,
    guided: Option<Guided>,
    /// Logits that wait for the grammar to say which tokens are allowed.
    held: Option<Vec<f32>>,
    /// Field order: the guard goes last, after everything that could still want its slots.
    _guard: Box<dyn Send>,
}

impl Sequence {
    /// `context` is the engine's limit in tokens; `instant` turns the lease's times into ours.
    pub(crate) fn new(
        job: Job,
        context: usize,
        instant: impl Fn(protocol::time::Time) -> Instant,
    ) -> Self {
        let Grant { lease, slots, ready, arriving } = job.grant;
        let prompt = job.prompt.len();
        let mut origins = vec![Origin::Own; prompt.div_ceil(BLOCK)];
        let mut from = BTreeMap::new();
        // Only blocks that the prompt fills can come from elsewhere: the answer is written into
        // the last one when the prompt ends inside it.
        let whole = &mut origins[..prompt / BLOCK];
        for Arriving { index, from: source, deadline } in arriving {
            if let Some(origin) = whole.get_mut(index as usize) {
                *origin = Origin::Awaited { until: instant(deadline) };
                from.insert(index as usize, source);
            }
        }
        whole.iter_mut().take(ready as usize).for_each(|origin| *origin = Origin::Ready);
        let answer = (job.limits.max_tokens as usize).max(1);
        Self {
            request: job.request,
            lease,
            sampling: job.sampling,
            limits: job.limits,
            priority: job.priority,
            arrived: job.arrived,
            serving_node: job.serving_node,
            outlet: Outlet::new(job.sink),
            tokens: Arc::unwrap_or_clone(job.prompt),
            prompt,
            slot_numbers: slots.iter().map(|slot| slot.slot.0 as usize).collect(),
            slots,
            origins,
            from,
            next: 0,
            sealed: 0,
            room: Room::Quiet,
            queued: Duration::ZERO,
            most: context.min(prompt.saturating_add(answer)),
            last_token: None,
            resumed: job.resumed as usize,
            constraint: job.constraint,
            guided: None,
            held: None,
            _guard: job.guard,
        }
    }

    pub(crate) fn slots(&self) -> &[usize] {
        &self.slot_numbers
    }

    pub(crate) fn token(&self, position: usize) -> Token {
        self.tokens.get(position).copied().unwrap_or_default()
    }

    /// Tokens generated so far, a stop token not among them.
    pub(crate) fn generated(&self) -> usize {
        self.tokens.len() - self.prompt
    }

    /// Prompt and answer so far.
    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }

    pub(crate) fn is_prefilling(&self) -> bool {
        self.next < self.prompt
    }

    /// Whether the answer is as long as the context allows.
    pub(crate) fn is_full(&self) -> bool {
        self.tokens.len() >= self.most
    }

    fn is_present(&self, block: usize) -> bool {
        matches!(self.origins.get(block), Some(Origin::Ready | Origin::Imported))
    }

    /// Why it cannot run at `now`, if so. A block whose time is over is computed from here on.
    pub(crate) fn pause(&mut self, now: Instant) -> Option<Pause> {
        if !self.outlet.flush() {
            return Some(Pause::Reader);
        }
        if self.held.is_some() {
            return Some(Pause::Grammar);
        }
        if self.is_prefilling() {
            let block = self.first_needed() / BLOCK;
            return match self.origins.get(block) {
                Some(Origin::Awaited { until }) if *until > now => Some(Pause::Block),
                Some(Origin::Awaited { .. }) => {
                    self.missed(block);
                    None
                }
                _ => None,
            };
        }
        if self.next / BLOCK < self.slots.len() {
            return None;
        }
        match self.room {
            Room::Refused { times, .. } if times >= ROOM_REFUSALS => Some(Pause::Stuck),
            _ => Some(Pause::Slot),
        }
    }

    /// When a pause may end without a message.
    pub(crate) fn pause_ends(&self) -> Option<Instant> {
        let block = self.first_needed() / BLOCK;
        match (self.is_prefilling().then(|| self.origins.get(block)).flatten(), self.room) {
            (Some(Origin::Awaited { until }), _) => Some(*until),
            (_, Room::Refused { again, .. }) => Some(again),
            _ => None,
        }
    }

    /// The next position of the prompt that must be computed: the first that is not present, at
    /// the latest the last one, whose logits are wanted.
    fn first_needed(&self) -> usize {
        let mut position = self.next;
        while self.is_present(position / BLOCK) {
            position = (position / BLOCK + 1) * BLOCK;
        }
        position.min(self.prompt - 1)
    }

    /// Up to `budget` positions of the prompt that can be computed now, ascending. Blocks that are
    /// present are skipped; the first block still awaited ends them.
    pub(crate) fn chunk(&self, budget: usize) -> Vec<u32> {
        let mut positions = Vec::new();
        let mut position = self.first_needed();
        while position < self.prompt && positions.len() < budget {
            let block = position / BLOCK;
            let skip = self.is_present(block) && position + 1 < self.prompt;
            match self.origins.get(block) {
                Some(Origin::Awaited { .. }) => break,
                _ if skip => {
                    position = ((block + 1) * BLOCK).min(self.prompt - 1);
                    continue;
                }
                _ => positions.push(position as u32),
            }
            position += 1;
        }
        positions
    }

    /// Whether the logits after `position` choose a new token.
    pub(crate) fn ends_with(&self, position: u32) -> bool {
        position as usize + 1 == self.tokens.len()
    }

    /// Position whose token a decode step feeds.
    pub(crate) fn decode_position(&self) -> u32 {
        self.next as u32
    }

    /// Whether a position's key and value may be written: not into blocks that are shared.
    pub(crate) fn writes(&self, position: u32) -> bool {
        !self.is_present(position as usize / BLOCK)
    }

    /// Begins the work on its grammar, if it has one.
    pub(crate) fn begin_grammar(&mut self, helpers: &Arc<Helpers>) {
        if let Some(constraint) = self.constraint.take() {
            let answered = self.tokens.split_at(self.prompt.saturating_sub(self.resumed)).1;
            self.guided = Some(Guided::begin(helpers, constraint, answered.to_vec()));
        }
    }

    /// What its grammar says about the next token; `None` without a grammar.
    pub(crate) fn grammar(&self) -> Option<Next> {
        self.guided.as_ref().map(Guided::next)
    }

    /// Keeps logits until the grammar has its say.
    pub(crate) fn hold(&mut self, logits: &[f32]) {
        self.held = Some(logits.to_vec());
    }

    /// The logits kept, once the grammar has its say, and what it says.
    pub(crate) fn held(&mut self) -> Option<(Vec<f32>, Next)> {
        self.held.as_ref()?;
        match self.grammar()? {
            Next::Later => None,
            next => Some((self.held.take()?, next)),
        }
    }

    /// Ends it: gives up the slots, and leaves the way out for what is pending there.
    pub(crate) fn end(self) -> Outlet {
        self.outlet
    }

    /// Takes note that everything up to and including `position` is in the pool, and names the
    /// blocks that this filled: index and tokens, in order.
    pub(crate) fn computed(&mut self, position: u32) -> Vec<(u32, Vec<Token>)> {
        self.next = position as usize + 1;
        let mut full = Vec::new();
        while (self.sealed + 1) * BLOCK <= self.next {
            let block = self.sealed;
            self.sealed += 1;
            if !self.is_present(block) {
                let tokens = self.tokens[block * BLOCK..(block + 1) * BLOCK].to_vec();
                full.push((block as u32, tokens));
            }
        }
        full
    }

    /// Adds a generated token; whether its grammar allows nothing after it.
    pub(crate) fn push(&mut self, token: Token) -> bool {
        self.tokens.push(token);
        self.guided.as_ref().is_some_and(|guided| guided.accept(token))
    }

    /// The engine slot that an import of `block` may be written to: the block is this sequence's,
    /// in this slot, and neither present nor begun.
    pub(crate) fn importable(&self, block: usize, to: SlotRef) -> bool {
        self.slots.get(block) == Some(&to)
            && block < self.prompt / BLOCK
            && !self.is_present(block)
            && self.next <= block * BLOCK
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

    /// More slots; none means no room now.
    pub(crate) fn grant(&mut self, slots: Vec<SlotRef>, now: Instant) {
        if slots.is_empty() {
            let times = match self.room {
                Room::Refused { times, .. } => times + 1,
                _ => 1,
            };
            self.refused(times, now);
            return;
        }
        self.slot_numbers.extend(slots.iter().map(|slot| slot.slot.0 as usize));
        self.slots.extend(slots);
        self.room = Room::Quiet;
    }

    /// Slots of another sequence are about to come back: refusals so far say nothing about them, so
    /// it asks again soon and counts anew.
    pub(crate) fn room_comes(&mut self, now: Instant) {
        if matches!(self.room, Room::Refused { .. }) {
            self.refused(0, now);
        }
    }

    fn refused(&mut self, times: u32, now: Instant) {
        let pause = ROOM_RETRY.saturating_mul(1 << times.min(8)).min(ROOM_RETRY_MAX);
        self.room = Room::Refused { times, again: now + pause };
    }

    /// How many more blocks to ask for now, if any: when at most one unused is left and the answer
    /// may need more. Once until the answer, and again some time after each refusal.
    pub(crate) fn room_wanted(&mut self, now: Instant) -> Option<u32> {
        // The last token of an answer is never fed back.
        let needed = (self.most - 1).div_ceil(BLOCK);
        let used = self.next.div_ceil(BLOCK);
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
    /// for its logits alone counts as computed.
    pub(crate) fn sources(&self) -> PromptSources {
        let mut sources = PromptSources::default();
        for (block, origin) in self.origins.iter().enumerate() {
            let end = ((block + 1) * BLOCK).min(self.prompt - 1);
            let tokens = end.saturating_sub(block * BLOCK) as u32;
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
        let own = |block: &usize| matches!(self.origins.get(*block), Some(Origin::Own));
        let first = self.next / BLOCK;
        let tokens = |block: usize| {
            ((block + 1) * BLOCK).min(self.prompt).saturating_sub(self.next.max(block * BLOCK))
        };
        (first..self.origins.len()).filter(own).map(tokens).sum()
    }
}
