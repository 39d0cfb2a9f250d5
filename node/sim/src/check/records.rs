//! Replicated records: what is acknowledged as safe lies on two disks and can be read; what is
//! deleted stays away; what is read was written.
//!
//! Promised of a call that ended safely, as long as not all disks with what it left were lost:
//! * when it ends, two disks have it (or what a later call left), or had it and were lost meanwhile;
//! * a confirmed read that begins later, all nodes having seen each other alive since the call began,
//!   finds it or what a later call left; and a deletion that finds nothing to delete, likewise.
//!   Nobody says that there is nothing without knowing it;
//! * at rest all nodes find it, or what a call left that did not end safely, or that a write left
//!   whose node saw other members than the node of this call (of two writes on two sides of a
//!   partition one stays, the same everywhere).

use crate::clerks::Wish;
use crate::scenario::Scenario;
use protocol::id::{Incarnation, NodeId};
use protocol::state::{Kept, Record, RecordId};
use protocol::time::Time;
use state::{Answer, Deleted};
use std::collections::BTreeMap;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    /// It has not ended, or with its node.
    Open,
    Safe,
    /// It ended without that promise.
    Loose,
    /// It changed nothing.
    Nothing,
}

#[derive(Debug)]
struct Op {
    call: u64,
    start: Time,
    end: Option<Time>,
    /// What it leaves: a value, or nothing.
    leaves: Option<Vec<u8>>,
    outcome: Outcome,
    /// Disks lost before it began.
    losses: u64,
    /// Since when all nodes saw each other alive when it ended, if they did.
    calm_since: Option<Time>,
}

#[derive(Debug, Default)]
struct Story {
    /// Writes and deletions, in the order of their beginnings.
    ops: Vec<Op>,
    /// All disks that had what was promised are lost.
    is_void: bool,
}

impl Story {
    /// Whether `later` left something that counts more than what `op` left, for a read from `at` on.
    fn supersedes(&self, later: &Op, op: &Op, at: Time) -> bool {
        let ended = later.end.is_some_and(|end| end < at);
        let after = op.end.is_some_and(|end| end < later.start);
        let puts = self.ops.iter().filter(|op| op.leaves.is_some()).count();
        // Both asked the same owners, and what is not safe may come to be seen at any time. But a
        // deletion that found the only write there ever was is above it whatever happened.
        let same_owners = later.calm_since.is_some_and(|since| since < op.start);
        let is_above =
            (op.outcome == Outcome::Safe && same_owners) || (later.leaves.is_none() && puts == 1);
        later.outcome == Outcome::Safe && ended && after && is_above
    }

    /// Whether a read that began at `at` may find this.
    fn allows(&self, found: Option<&[u8]>, at: Time) -> bool {
        let stands = |op: &Op| !self.ops.iter().any(|later| self.supersedes(later, op, at));
        let leaves = |op: &&Op| op.outcome != Outcome::Nothing && op.leaves.as_deref() == found;
        let untouched = found.is_none()
            && !self
                .ops
                .iter()
                .any(|op| op.outcome == Outcome::Safe && op.end.is_some_and(|end| end < at));
        untouched || self.ops.iter().filter(leaves).any(stands)
    }
}

/// All calls of a run.
#[derive(Debug, Default)]
pub(crate) struct Book {
    nodes: usize,
    stories: BTreeMap<RecordId, Story>,
    calls: BTreeMap<u64, (RecordId, Time)>,
    losses: u64,
    changed_at: Time,
    seen: BTreeMap<(usize, NodeId), (Incarnation, bool)>,
    has_twins: bool,
}

impl Book {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self { nodes: scenario.nodes as usize, ..Self::default() }
    }

    /// Two processes answer for one node: only what is on disks and what was ever put is looked at.
    pub(crate) fn there_are_twins(&mut self) {
        self.has_twins = true;
    }

    pub(crate) fn members_changed(&mut self, now: Time) {
        self.changed_at = now;
    }

    pub(crate) fn member_seen(
        &mut self,
        now: Time,
        h: usize,
        node: NodeId,
        seen: (Incarnation, bool),
    ) {
        if self.seen.insert((h, node), seen) != Some(seen) {
            self.changed_at = now;
        }
    }

    /// A disk was lost: what promises are left, `copies` says.
    pub(crate) fn disk_lost(&mut self, now: Time, copies: impl Fn(&RecordId) -> Vec<Record>) {
        self.losses += 1;
        for (id, story) in &mut self.stories {
            let allowed = |copy: &Record| story.allows(content(copy), now);
            let copies = copies(id);
            // Where nothing is left, what was deleted is away. But an older write may be left when the
            // deletion is lost.
            let is_away = copies.is_empty() && story.allows(None, now);
            let is_kept = is_away || copies.iter().any(allowed);
            story.is_void |= !is_kept;
        }
    }

    pub(crate) fn begins(&mut self, now: Time, call: u64, id: RecordId, wish: &Wish) {
        self.calls.insert(call, (id, now));
        let leaves = match wish {
            Wish::Put(value) => Some(value.clone()),
            Wish::Delete => None,
            Wish::Get => return,
        };
        let (outcome, losses) = (Outcome::Open, self.losses);
        let op = Op { call, start: now, end: None, leaves, outcome, losses, calm_since: None };
        self.stories.entry(id).or_default().ops.push(op);
    }

    pub(crate) fn id_of(&self, call: u64) -> Option<RecordId> {
        self.calls.get(&call).map(|(id, _)| *id)
    }

    /// The node died at which a call came in.
    pub(crate) fn cut_off(&mut self, now: Time, call: u64) {
        let Some((id, _)) = self.calls.remove(&call) else { return };
        let story = self.stories.entry(id).or_default();
        if let Some(op) = story.ops.iter_mut().find(|op| op.call == call) {
            (op.end, op.outcome) = (Some(now), Outcome::Loose);
        }
    }

    /// A call is answered; `copies` are on disks now.
    pub(crate) fn ends(
        &mut self,
        now: Time,
        call: u64,
        answer: &Answer,
        copies: &[Record],
        is_agreed: bool,
    ) -> Result<(), String> {
        let (id, start) = self.calls.remove(&call).ok_or("an unknown call is answered")?;
        let (nodes, losses, changed_at) = (self.nodes, self.losses, self.changed_at);
        let is_calm = is_agreed && !self.has_twins;
        let story = self.stories.entry(id).or_default();
        let outcome = match answer {
            Answer::Got(Ok(found)) => {
                let value = found.value.as_deref();
                let known = value.is_none_or(|value| story.wrote(value));
                if !known {
                    return Err(format!("{id:?}: bytes are read that were never put"));
                }
                if value.is_none() && !found.confirmed {
                    return Err(format!("{id:?}: nobody knows that it is absent, and it is said"));
                }
                let checked = found.confirmed && is_calm && !story.is_void;
                if checked && story.calm_since() > changed_at && !story.allows(value, start) {
                    return Err(format!("{id:?}: a read finds {} instead", words(value)));
                }
                return Ok(());
            }
            Answer::Put(Ok(Kept::Safe)) | Answer::Deleted(Ok(Deleted::Gone(Kept::Safe))) => {
                Outcome::Safe
            }
            Answer::Deleted(Ok(Deleted::Absent)) => Outcome::Nothing,
            Answer::Put(_) | Answer::Deleted(_) => Outcome::Loose,
            Answer::Got(Err(_)) => return Ok(()),
        };
        let Some(at) = story.ops.iter().position(|op| op.call == call) else {
            return Err(format!("{id:?}: a call gets the answer of another kind"));
        };
        if let Some(op) = story.ops.get_mut(at) {
            (op.end, op.outcome) = (Some(now), outcome);
            op.calm_since = is_calm.then_some(changed_at);
        }
        if outcome == Outcome::Nothing {
            let checked = is_calm && !story.is_void && story.calm_since() > changed_at;
            return match checked && !story.allows(None, start) {
                true => Err(format!("{id:?}: a deletion finds nothing instead")),
                false => Ok(()),
            };
        }
        let Some(op) = story.ops.get(at).filter(|op| op.outcome == Outcome::Safe) else {
            return Ok(());
        };
        // What this call left, or one that was under way after it began.
        let is_new = |copy: &&Record| {
            let later = |other: &&Op| other.end.is_none_or(|end| end >= op.start);
            story.ops.iter().filter(later).any(|other| other.leaves.as_deref() == content(copy))
        };
        let have = copies.iter().filter(is_new).count() as u64 + (losses - op.losses);
        if have < nodes.min(2) as u64 {
            let left = words(op.leaves.as_deref());
            return Err(format!("{id:?}: {left} is acknowledged and on {have} disks"));
        }
        Ok(())
    }

    /// At rest: the newest copy counts, everywhere.
    pub(crate) fn probed(&self, copies: &[Record], answer: &Answer) -> Result<(), String> {
        let newest = copies.iter().max_by_key(|copy| copy.version);
        let expected = newest.and_then(content);
        match answer {
            Answer::Got(Ok(found)) if found.value.as_deref() == expected => {}
            other => {
                let told = match other {
                    Answer::Got(Ok(found)) => words(found.value.as_deref()),
                    _ => format!("{other:?}"),
                };
                return Err(format!("at rest a read finds {told} and not {}", words(expected)));
            }
        }
        let Some(newest) = newest else { return Ok(()) };
        self.at_rest(&newest.id, copies)
    }

    /// At rest: what the disks have is what was promised.
    pub(crate) fn at_rest(&self, id: &RecordId, copies: &[Record]) -> Result<(), String> {
        let Some(story) = self.stories.get(id).filter(|story| !story.is_void) else {
            return Ok(());
        };
        let newest = copies.iter().max_by_key(|copy| copy.version);
        let found = newest.and_then(content);
        match story.allows(found, Time(u64::MAX)) {
            true => Ok(()),
            false => Err(format!("{id:?}: at rest there is {}", words(found))),
        }
    }
}

impl Story {
    fn wrote(&self, value: &[u8]) -> bool {
        self.ops.iter().any(|op| op.leaves.as_deref() == Some(value))
    }

    /// When the first call began of which something can be seen; nodes that agree since then have
    /// asked the same owners.
    fn calm_since(&self) -> Time {
        self.ops.first().map_or(Time(u64::MAX), |op| op.start)
    }
}

fn content(copy: &Record) -> Option<&[u8]> {
    (!copy.deleted).then_some(copy.value.as_slice())
}

fn words(value: Option<&[u8]>) -> String {
    match value {
        None => "nothing".into(),
        Some(value) => {
            let number =
                value.iter().take(8).rev().fold(0u64, |n, byte| (n << 8) | u64::from(*byte));
            format!("what call {number} put")
        }
    }
}
