//! The failure detector: who is heard, who is suspect, who is dead.
//!
//! First form: silence in local time, with this node's own stalls taken out, and probes (direct,
//! then through others) before silence turns into suspicion.

use crate::config::PROBES_MAX;
use crate::door::Out;
use crate::machine::Gossip;
use crate::members::Member;
use protocol::event::MemberState;
use protocol::id::{Incarnation, NodeId};
use protocol::time::{Span, Time};
use protocol::wire::gossip::Direct;

/// A lost stream makes a member suspect after so much silence.
const CUT_SILENCE: Span = Span::secs(1);
/// Others who are asked to probe a suspect.
const HELPERS: usize = 3;
/// Being called later than this counts as a stall of this node's own.
const STALL_MIN: Span = Span::millis(200);
/// Between two probes of one silent member.
const PROBE_EVERY: Span = Span::millis(500);

/// A probe under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    subject: NodeId,
    /// Who asked for it, and under which nonce.
    asker: Option<(NodeId, u64)>,
    sent: Time,
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
        }
        self.stall_credited = now;
        let doubted = |m: &&mut Member| m.is_live() || m.state == MemberState::Suspect;
        for member in self.members.values_mut().filter(doubted) {
            member.heard = (member.heard + fresh).min(now);
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

    fn verdict(&self, now: Time, member: &Member) -> MemberState {
        let silence = now.since(member.heard);
        if member.state == MemberState::Left {
            MemberState::Left
        } else if silence >= self.config.dead_after {
            MemberState::Dead
        } else if silence >= self.config.suspect_after
            || !member.ever_heard
            || (member.line.cut && silence >= CUT_SILENCE)
        {
            MemberState::Suspect
        } else if member.beat.as_ref().is_some_and(|beat| beat.draining) {
            MemberState::Draining
        } else {
            MemberState::Alive
        }
    }

    /// Brings a member's state up to date; true when that was told.
    pub(crate) fn judge(&mut self, now: Time, node: &NodeId, out: &mut Vec<Out>) -> bool {
        let Some(member) = self.members.get(node) else {
            return false;
        };
        let (was, is) = (member.state, self.verdict(now, member));
        if was == is {
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
        out.push(Out::Member(Box::new(member.view())));
        if is == MemberState::Suspect {
            self.ask_helpers(now, node, out);
        }
        true
    }

    /// Judges all members, probes the silent, and forgets the long dead.
    pub(crate) fn sweep_members(&mut self, now: Time, out: &mut Vec<Out>) {
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
        let expired = self.config.dead_after;
        self.probes.retain(|_, probe| now.since(probe.sent) < expired);
    }

    /// Asks a member directly before its silence gets long enough for suspicion: heartbeats on the
    /// topic may be lost.
    fn probe_silent(&mut self, now: Time, node: &NodeId, out: &mut Vec<Out>) {
        let half = Span(self.config.suspect_after.0 / 2);
        let due = self.members.get(node).is_some_and(|member| {
            member.is_ready()
                && matches!(
                    member.state,
                    MemberState::Alive | MemberState::Draining | MemberState::Suspect
                )
                && now.since(member.heard) >= half
        });
        let asked = self
            .probes
            .values()
            .any(|p| p.subject == *node && p.asker.is_none() && now.since(p.sent) < PROBE_EVERY);
        if due && !asked {
            self.probe(now, *node, None, out);
        }
    }

    fn probe(
        &mut self,
        now: Time,
        subject: NodeId,
        asker: Option<(NodeId, u64)>,
        out: &mut Vec<Out>,
    ) {
        if self.probes.len() < PROBES_MAX {
            let nonce = self.random(u64::MAX);
            self.probes.insert(nonce, Probe { subject, asker, sent: now });
            out.push(Out::Direct { to: subject, frame: Direct::Probe { nonce } });
        }
    }

    /// A member became suspect: perhaps only the path to it is broken.
    fn ask_helpers(&mut self, now: Time, subject: &NodeId, out: &mut Vec<Out>) {
        let mut helpers: Vec<NodeId> = self.live_peers().filter(|node| node != subject).collect();
        for _ in 0..HELPERS.min(helpers.len()) {
            if self.probes.len() >= PROBES_MAX {
                return;
            }
            let pick = usize::try_from(self.random(helpers.len() as u64)).unwrap_or(0);
            let helper = helpers.swap_remove(pick);
            let nonce = self.random(u64::MAX);
            self.probes.insert(nonce, Probe { subject: *subject, asker: None, sent: now });
            let frame = Direct::ProbeFor { subject: *subject, nonce };
            out.push(Out::Direct { to: helper, frame });
        }
    }

    /// A peer asks whether `subject` is there.
    pub(crate) fn probe_for(
        &mut self,
        now: Time,
        from: NodeId,
        subject: NodeId,
        nonce: u64,
        out: &mut Vec<Out>,
    ) {
        if subject == self.node {
            out.push(Out::Direct { to: from, frame: Direct::Ack { nonce } });
        } else if self.members.get(&subject).is_some_and(Member::is_ready) {
            self.probe(now, subject, Some((from, nonce)), out);
        }
    }

    /// An answer to a probe. Of a third party it comes only from a helper that was asked: no one
    /// else knows the nonce.
    pub(crate) fn acked(&mut self, now: Time, from: NodeId, nonce: u64, out: &mut Vec<Out>) {
        let Some(probe) = self.probes.remove(&nonce) else {
            return;
        };
        match probe.asker {
            Some((asker, nonce)) if probe.subject == from => {
                out.push(Out::Direct { to: asker, frame: Direct::Ack { nonce } });
            }
            Some(_) => {}
            None => self.heard(now, &probe.subject, false, out),
        }
    }
}
