//! The failure detector: who is heard, who is suspect, who is dead.
//!
//! A member is heard by its signed heartbeats (on the topic, or passed on), by any frame on its own
//! stream, and by an answer to a probe, its own or a helper's. Silence is measured in local time
//! with this node's own stalls taken out, and every limit is stretched by its own ill health
//! ([`crate::health`]). Silence makes a member *suspect*: nothing is placed there, its entries
//! stay, and it is back at its first word. Only when the suspicion runs out it is *dead*; its
//! entries go minutes later, or with its next life.
//!
//! How long a suspicion lasts depends on what else is known. A stalled machine keeps its streams
//! open, so a silent member whose stream stands is given [`crate::Config::patience`]; a stream that
//! the other kernel closed, and that cannot be had again, is the mark of a process that is gone.

use crate::door::Out;
use crate::machine::Gossip;
use crate::members::Member;
use crate::suspect::CONFIRMATIONS;
use protocol::event::MemberState;
use protocol::id::{Incarnation, NodeId};
use protocol::time::{Span, Time};

/// A lost stream makes a member suspect after so much silence.
const CUT_SILENCE: Span = Span::secs(1);
/// Being called later than this counts as a stall of this node's own.
const STALL_MIN: Span = Span::millis(200);
/// Independent suspicions of others that halve the silence allowed.
const CONFIRMED: usize = 2;
/// Fewer peers than this say nothing of this node's own health.
const CROWD: usize = 3;

/// How much of the way from the longest to the shortest suspicion `count` of `CONFIRMATIONS`
/// confirmations go, in thousandths: log(count + 1) / log(expected + 1), as in Lifeguard.
fn shortened(count: usize, expected: usize) -> u64 {
    match (count.min(expected), expected.min(CONFIRMATIONS)) {
        (_, 0) => 1000,
        (0, _) => 0,
        (1, 2) => 631,
        (1, 3) => 500,
        (2, 3) => 792,
        _ => 1000,
    }
}

impl Gossip {
    /// Called first at every entry. What this node slept through is no silence of others: its
    /// queues may hold their heartbeats still.
    pub(crate) fn note_stall(&mut self, now: Time) {
        let late = now.since(self.due);
        if late <= STALL_MIN {
            return;
        }
        let fresh = now.since(self.due.max(self.stall_credited));
        if self.stall_credited <= self.due {
            self.counters.stalls += 1;
            self.health.worse(now, 1 + late.0 / Span::secs(1).0);
        }
        self.stall_credited = now;
        let doubted = |m: &&mut Member| m.is_live() || m.state == MemberState::Suspect;
        for member in self.members.values_mut().filter(doubted) {
            member.heard = (member.heard + fresh).min(now);
            member.suspect_since = member.suspect_since.map(|since| (since + fresh).min(now));
        }
    }

    /// A genuine sign of life; `tell` when its load or contact is new too.
    pub(crate) fn heard(&mut self, now: Time, node: &NodeId, tell: bool, out: &mut Vec<Out>) {
        let Some(member) = self.members.get_mut(node) else {
            return;
        };
        if member.state == MemberState::Left {
            return;
        }
        member.heard = now;
        member.ever_heard = true;
        member.forgotten = false;
        member.accusers.clear();
        if !member.is_live() {
            member.line.dial_soon(now);
        }
        if !self.judge(now, node, out)
            && tell
            && let Some(member) = self.members.get(node)
        {
            out.push(Out::Member(Box::new(member.view())));
        }
    }

    /// Silence that makes a member suspect, for a healthy observer.
    pub(crate) fn silence_allowed(&self, member: &Member) -> Span {
        if member.line.cut {
            CUT_SILENCE.min(self.config.suspect_after)
        } else if member.accusers.len() >= CONFIRMED {
            Span(self.config.suspect_after.0 / 2)
        } else {
            self.config.suspect_after
        }
    }

    /// How long a suspicion of a member lasts.
    fn suspicion(&self, member: &Member) -> Span {
        let known_gone = self.config.dead_after.0.saturating_sub(self.config.suspect_after.0);
        let (least, most) = if member.line.cut || !member.ever_heard {
            (known_gone, known_gone + known_gone / 2)
        } else {
            (self.config.patience.0, self.config.patience.0.saturating_mul(2))
        };
        let expected = self.live_peers().take(CONFIRMATIONS).count();
        let share = shortened(member.accusers.len(), expected);
        let left = (most - least) / 1000 * (1000 - share);
        self.health.stretch(Span(least + left))
    }

    fn verdict(&self, now: Time, member: &Member) -> MemberState {
        let silence = now.since(member.heard);
        if member.state == MemberState::Left {
            return MemberState::Left;
        }
        if member.ever_heard && silence < self.health.stretch(self.silence_allowed(member)) {
            let draining = member.beat.as_ref().is_some_and(|beat| beat.draining);
            return if draining { MemberState::Draining } else { MemberState::Alive };
        }
        match member.suspect_since {
            Some(_) if member.state == MemberState::Dead => MemberState::Dead,
            Some(since) if now.since(since) >= self.suspicion(member) => MemberState::Dead,
            _ => MemberState::Suspect,
        }
    }

    /// Brings a member's state up to date; true when that was told.
    pub(crate) fn judge(&mut self, now: Time, node: &NodeId, out: &mut Vec<Out>) -> bool {
        let Some(member) = self.members.get(node) else {
            return false;
        };
        let (was, is) = (member.state, self.verdict(now, member));
        let back = matches!(is, MemberState::Alive | MemberState::Draining)
            && matches!(was, MemberState::Suspect | MemberState::Dead);
        // A longer limit is no sign of life.
        if was == is || (back && member.heard < now) {
            return false;
        }
        match is {
            MemberState::Suspect => self.counters.suspicions += 1,
            MemberState::Dead => self.counters.deaths += 1,
            _ => {}
        }
        let Some(member) = self.members.get_mut(node) else {
            return false;
        };
        member.state = is;
        member.suspect_since = match is {
            MemberState::Suspect => Some(now),
            MemberState::Dead => member.suspect_since,
            _ => None,
        };
        out.push(Out::Member(Box::new(member.view())));
        if is == MemberState::Suspect {
            self.accuse(*node);
        }
        true
    }

    /// Judges all members, probes the silent, and forgets the long dead.
    pub(crate) fn sweep_members(&mut self, now: Time, out: &mut Vec<Out>) {
        self.feel(now);
        let nodes: Vec<NodeId> = self.members.keys().copied().collect();
        for node in &nodes {
            self.judge(now, node, out);
            self.probe_silent(now, node, out);
            let forget_after = self.config.forget_after;
            let Some(member) = self.members.get_mut(node) else {
                continue;
            };
            let gone = matches!(member.state, MemberState::Dead | MemberState::Left);
            if gone && !member.forgotten && now.since(member.heard) >= forget_after {
                if member.incarnation != Incarnation::default() {
                    out.push(Out::Forget { node: *node, incarnation: member.incarnation });
                }
                member.forgotten = true;
                member.replica = crate::replica::Replica::new(self.config.keep_others);
            }
        }
        self.tell_suspicions(out);
        self.expire_probes(now);
    }

    /// When most of those with whom a stream stands are silent at once, it is likelier this node.
    fn feel(&mut self, now: Time) {
        let half = Span(self.config.suspect_after.0 / 2);
        let (mut near, mut silent) = (0usize, 0usize);
        for member in self.members.values() {
            let counts =
                member.is_ready() && !matches!(member.state, MemberState::Left | MemberState::Dead);
            near += usize::from(counts);
            silent += usize::from(counts && now.since(member.heard) >= half);
        }
        if near >= CROWD && silent * 2 > near {
            self.health.lonely(now);
        } else {
            self.health.ease(now);
        }
    }
}
