//! Owners compare what they share, bucket by bucket, and push what the other lacks.

use crate::config::{LIST_MAX, PUSH_BYTES, PUSHES_MAX};
use crate::copies::Copy;
use crate::door::Out;
use crate::machine::State;
use crate::table::{Waiter, bucket_ends};
use protocol::id::NodeId;
use protocol::state::{Record, RecordId, Version};
use protocol::time::{Span, Time};
use protocol::wire::state::{Holding, Range, StateFrame, Summary};
use std::collections::{BTreeMap, BTreeSet};

/// Changes among members gather for so long before a comparison begins.
const SETTLE: Span = Span::millis(300);
/// Between two rounds of pushes.
const PUSH_EVERY: Span = Span::millis(20);

/// The state of comparisons and pushes.
#[derive(Debug)]
pub(crate) struct Comparing {
    /// The next step of a comparison, and its first bucket.
    step_at: Time,
    bucket: u8,
    /// Another comparison follows at once.
    again: bool,
    queue: BTreeMap<NodeId, BTreeSet<RecordId>>,
    queued: usize,
    /// Who was pushed to last.
    last: Option<NodeId>,
    push_at: Option<Time>,
    /// Bytes that may be pushed, and as of when; below zero after a record that was larger.
    budget: i64,
    budget_at: Time,
}

impl Comparing {
    pub(crate) fn new(now: Time) -> Self {
        Self {
            step_at: now + SETTLE,
            bucket: 0,
            again: false,
            queue: BTreeMap::new(),
            queued: 0,
            last: None,
            push_at: None,
            budget: 0,
            budget_at: now,
        }
    }

    /// A whole comparison is due: owners may have changed.
    pub(crate) fn begin(&mut self, now: Time) {
        if self.bucket == 0 {
            self.step_at = self.step_at.min(now + SETTLE);
        }
        self.again = self.bucket != 0;
    }

    pub(crate) fn due(&self) -> Time {
        self.step_at.min(self.push_at.unwrap_or(self.step_at))
    }

    /// Records that wait to be pushed.
    pub(crate) fn pushes(&self) -> usize {
        self.queued
    }

    fn enqueue(&mut self, now: Time, to: NodeId, id: RecordId) {
        if self.queued < PUSHES_MAX && self.queue.entry(to).or_default().insert(id) {
            self.queued += 1;
            self.push_at.get_or_insert(now);
        }
    }

    /// Peers for whom something waits, those after the last one first: what may be pushed at a time
    /// is often not enough for all. What waited for one that is not there is forgotten; it compares
    /// when it comes back.
    fn in_turn(&mut self, lives: impl Fn(&NodeId) -> bool) -> Vec<NodeId> {
        self.queue.retain(|peer, ids| {
            let stays = lives(peer);
            self.queued -= if stays { 0 } else { ids.len() };
            stays
        });
        let mut peers: Vec<NodeId> = self.queue.keys().copied().collect();
        let after = peers.partition_point(|peer| Some(*peer) <= self.last);
        peers.rotate_left(after);
        peers
    }

    fn pop(&mut self, to: NodeId) -> Option<RecordId> {
        let ids = self.queue.get_mut(&to)?;
        let id = ids.pop_first();
        if ids.is_empty() {
            self.queue.remove(&to);
        }
        self.queued -= usize::from(id.is_some());
        id
    }

    fn refill(&mut self, now: Time, per_second: u64) {
        let more = u128::from(per_second) * u128::from(now.since(self.budget_at).0) / 1_000_000_000;
        if more > 0 {
            let more = i64::try_from(more).unwrap_or(i64::MAX);
            self.budget = self.budget.saturating_add(more).min(PUSH_BYTES as i64);
            self.budget_at = now;
        }
    }
}

impl State {
    pub(crate) fn tick_sync(&mut self, now: Time, out: &mut Vec<Out>) {
        if self.sync.step_at <= now {
            self.step(now, out);
        }
        if self.sync.push_at.is_some_and(|at| at <= now) {
            self.push_some(now, out);
        }
    }

    /// Compares some buckets.
    fn step(&mut self, now: Time, out: &mut Vec<Out>) {
        let mut summaries: BTreeMap<NodeId, Vec<Summary>> = BTreeMap::new();
        if self.sync.bucket == 0 {
            self.table.reconsider(now);
        }
        let mut next = Some(self.sync.bucket);
        for _ in 0..self.config.step_buckets.max(1) {
            let Some(bucket) = next.and_then(|from| self.table.next_bucket(from)) else {
                next = None;
                break;
            };
            for (peer, summary) in self.sums(now, bucket) {
                summaries.entry(*peer).or_default().push(*summary);
            }
            self.hand_over_bucket(now, bucket, out);
            next = bucket.checked_add(1);
        }
        for (to, summaries) in summaries {
            out.push(Out::Send { to, frame: StateFrame::Digests(summaries) });
        }
        self.sync.bucket = next.unwrap_or(0);
        self.sync.step_at = now
            + match next {
                Some(_) => self.config.step_every,
                None if std::mem::take(&mut self.sync.again) => SETTLE,
                None => self.comparison_pause(),
            };
        if next.is_none() {
            self.maybe_handed_over(now, out);
        }
    }

    /// A peer says what it shares with this node, in short.
    pub(crate) fn compare(
        &mut self,
        now: Time,
        from: NodeId,
        summaries: &[Summary],
        out: &mut Vec<Out>,
    ) {
        let in_order = summaries.is_sorted_by(|one, next| one.bucket < next.bucket);
        if !in_order {
            // Each bucket once: a difference is answered with all that is shared of it.
            self.counters.improper += 1;
            return;
        }
        for theirs in summaries {
            let ours = self.sums(now, theirs.bucket).get(&from).copied();
            let nothing = Summary { bucket: theirs.bucket, count: 0, digest: 0 };
            if ours.unwrap_or(nothing) == *theirs {
                continue;
            }
            self.counters.mismatches += 1;
            for range in self.ranges(now, from, theirs.bucket) {
                out.push(Out::Send { to: from, frame: StateFrame::Range(range) });
            }
        }
    }

    /// All of a bucket that is shared with a peer, in as many parts as it takes.
    fn ranges(&mut self, now: Time, with: NodeId, bucket: u8) -> Vec<Range> {
        let held = self.shared(now, with, bucket_ends(bucket));
        let mut parts: Vec<Vec<Holding>> = held.chunks(LIST_MAX).map(<[Holding]>::to_vec).collect();
        if parts.is_empty() {
            parts.push(Vec::new());
        }
        let (last, mut after) = (parts.len() - 1, None);
        let part = |(n, held): (usize, Vec<Holding>)| {
            let upto = if n == last { None } else { held.last().map(|holding| holding.id) };
            let range = Range { bucket, after, upto, held };
            after = upto;
            range
        };
        parts.into_iter().enumerate().map(part).collect()
    }

    /// A peer lists what it holds of a range.
    pub(crate) fn compare_range(
        &mut self,
        now: Time,
        from: NodeId,
        range: &Range,
        out: &mut Vec<Out>,
    ) {
        let (first, last) = bucket_ends(range.bucket);
        let in_order = range.held.windows(2).all(|pair| match pair {
            [a, b] => a.id < b.id,
            _ => true,
        });
        if range.held.len() > LIST_MAX || !in_order {
            self.counters.improper += 1;
            return;
        }
        let low = range.after.unwrap_or(first).max(first);
        let high = range.upto.unwrap_or(last).min(last);
        let theirs: BTreeMap<RecordId, Version> =
            range.held.iter().map(|holding| (holding.id, holding.version)).collect();
        for holding in self.shared(now, from, (low, high)) {
            let is_first = range.after == Some(holding.id);
            let has = theirs.get(&holding.id).is_some_and(|theirs| *theirs >= holding.version);
            if !is_first && !has {
                self.sync.enqueue(now, from, holding.id);
            }
        }
        let wanted: Vec<RecordId> = self.lacking(now, &range.held);
        if !wanted.is_empty() {
            out.push(Out::Send { to: from, frame: StateFrame::Want(wanted) });
        }
    }

    /// Those of which this node has nothing as new.
    pub(crate) fn lacking(&self, now: Time, held: &[Holding]) -> Vec<RecordId> {
        let lacks = |holding: &&Holding| {
            let own = self.table.get(now, &holding.id);
            let refused = self.table.refused.version(&holding.id);
            own.is_none_or(|own| own.version < holding.version)
                && refused.is_none_or(|refused| refused < holding.version)
        };
        held.iter().filter(lacks).map(|holding| holding.id).collect()
    }

    /// A peer wants records.
    pub(crate) fn wanted(&mut self, now: Time, from: NodeId, ids: Vec<RecordId>) {
        if ids.len() > LIST_MAX {
            self.counters.improper += 1;
            return;
        }
        for id in ids {
            if self.table.get(now, &id).is_some() {
                self.sync.enqueue(now, from, id);
            }
        }
    }

    /// Pushes what the budget allows, in turn.
    fn push_some(&mut self, now: Time, out: &mut Vec<Out>) {
        self.sync.refill(now, self.config.push_bytes_s);
        for to in self.sync.in_turn(|peer| self.view.lives(peer)) {
            let mut records: Vec<Record> = Vec::new();
            let mut bytes = 0;
            while self.sync.budget > 0 && bytes < PUSH_BYTES && records.len() < LIST_MAX {
                let Some(id) = self.sync.pop(to) else { break };
                let Some(entry) = self.table.get(now, &id) else { continue };
                if bytes > 0 && bytes + entry.value.len() > PUSH_BYTES {
                    self.sync.enqueue(now, to, id);
                    break;
                }
                let size = entry.value.len() + crate::config::RECORD_BYTES as usize;
                bytes += size;
                self.sync.budget = self.sync.budget.saturating_sub_unsigned(size as u64);
                records.push(entry.record(now, id));
            }
            if !records.is_empty() {
                self.sync.last = Some(to);
                self.counters.pushed += records.len() as u64;
                self.counters.pushed_bytes += bytes as u64;
                out.push(Out::Send { to, frame: StateFrame::Push(records) });
            }
        }
        self.sync.push_at = (self.sync.queued > 0).then(|| now + PUSH_EVERY);
    }

    /// Records from a peer.
    pub(crate) fn pushed(
        &mut self,
        now: Time,
        from: NodeId,
        records: Vec<Record>,
        out: &mut Vec<Out>,
    ) {
        if records.len() > LIST_MAX {
            self.counters.improper += 1;
            return;
        }
        for record in records {
            if !Self::is_proper(&record) {
                self.counters.improper += 1;
                continue;
            }
            let (id, version, bytes) = (record.id, record.version, record.value.len() as u64);
            match self.keep(now, record, Some(Waiter::Push(from)), out) {
                Copy::Writing => self.counters.taken += 1,
                Copy::Durable => {
                    let frame = StateFrame::Holds(vec![Holding { id, version }]);
                    out.push(Out::Send { to: from, frame });
                }
                // What the peer pushed is old: it gets what is newer.
                Copy::Older(_) => self.sync.enqueue(now, from, id),
                // It counts as held from now on, or the peer would go on pushing it.
                Copy::NoRoom(place) => self.table.refuse(place, version, bytes),
            }
        }
    }
}
