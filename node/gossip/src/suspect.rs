//! Suspicions told, confirmed and refuted.
//!
//! SWIM's suspicion with Lifeguard's timing (both cited at [`crate::probe`] and [`crate::health`]),
//! adapted to members that beat on a topic: an accuser tells a few others and the suspect. Who
//! knows a later heartbeat of the suspect passes it on, signed as it is: that refutes. Who has not
//! heard it either counts as an independent confirmation, and confirmations shorten the time until
//! a suspect is dead. A suspect that hears of it beats at once.

use crate::door::Out;
use crate::machine::Gossip;
use protocol::event::{MemberState, Suspicion};
use protocol::id::NodeId;
use protocol::time::{Span, Time};
use protocol::wire::gossip::Direct;
use std::cmp::Ordering;

/// Peers who are told of a suspicion, beside the suspect.
const FANOUT: usize = 8;
/// Suspicions in one frame: a whole site.
const SUSPECTS_PER_FRAME: usize = 256;
/// Confirmations that count; more change nothing.
pub(crate) const CONFIRMATIONS: usize = 3;
/// Extra heartbeats of a node that is suspected come at most so often.
const REFUTE_EVERY: Span = Span::millis(100);

impl Gossip {
    /// Notes for the next sweep that a member became suspect here.
    pub(crate) fn accuse(&mut self, subject: NodeId) {
        let Some(member) = self.members.get(&subject) else {
            return;
        };
        if member.ever_heard && self.health.may_accuse() && !self.luck.strikes(3) {
            let beat = member.beat.as_ref().map_or(0, |beat| beat.beat);
            self.accused.push(Suspicion { subject, incarnation: member.incarnation, beat });
        }
    }

    /// Tells whom this node suspects since the last sweep.
    pub(crate) fn tell_suspicions(&mut self, out: &mut Vec<Out>) {
        let accused = std::mem::take(&mut self.accused);
        if accused.is_empty() {
            return;
        }
        self.counters.accusations += accused.len() as u64;
        for to in self.some_peers(FANOUT, None) {
            for part in accused.chunks(SUSPECTS_PER_FRAME) {
                out.push(Out::Direct { to, frame: Direct::Suspects(part.to_vec()) });
            }
        }
        for suspicion in accused {
            if self.members.get(&suspicion.subject).is_some_and(|member| member.line.up) {
                let frame = Direct::Suspects(vec![suspicion]);
                out.push(Out::Direct { to: suspicion.subject, frame });
            }
        }
    }

    /// A peer suspects some members.
    pub(crate) fn suspected(
        &mut self,
        now: Time,
        from: NodeId,
        suspicions: Vec<Suspicion>,
        out: &mut Vec<Out>,
    ) {
        if suspicions.len() > SUSPECTS_PER_FRAME {
            self.counters.improper += 1;
            return;
        }
        for suspicion in suspicions {
            if suspicion.subject == self.node {
                self.refute(now, from, &suspicion, out);
            } else {
                self.weigh(now, from, &suspicion, out);
            }
        }
    }

    /// This node is suspected, and lives.
    fn refute(&mut self, now: Time, from: NodeId, suspicion: &Suspicion, out: &mut Vec<Out>) {
        if suspicion.incarnation != self.own.incarnation() {
            return;
        }
        let last = self.last_beat.as_ref().map_or(0, |beat| beat.beat);
        if last <= suspicion.beat || now.since(self.beat_told) >= REFUTE_EVERY {
            self.publish_heartbeat(now, out);
        }
        self.counters.refutations += 1;
        if let Some(beat) = &self.last_beat {
            out.push(Out::Direct { to: from, frame: Direct::Heard(beat.clone()) });
        }
    }

    /// Somebody else is suspected: contradict with proof, or confirm.
    fn weigh(&mut self, now: Time, from: NodeId, suspicion: &Suspicion, out: &mut Vec<Out>) {
        let fresh = Span(self.config.suspect_after.0 / 2);
        let Some(member) = self.members.get_mut(&suspicion.subject) else {
            self.counters.strangers += 1;
            return;
        };
        let later_beat = match suspicion.incarnation.cmp(&member.incarnation) {
            Ordering::Less => member.beat.clone(),
            Ordering::Equal => member.beat.clone().filter(|beat| beat.beat > suspicion.beat),
            Ordering::Greater => return,
        };
        if now.since(member.heard) < fresh || suspicion.incarnation != member.incarnation {
            if let Some(beat) = later_beat {
                self.counters.refutations += 1;
                out.push(Out::Direct { to: from, frame: Direct::Heard(beat) });
            }
        } else if matches!(
            member.state,
            MemberState::Alive | MemberState::Draining | MemberState::Suspect
        ) {
            if member.accusers.len() < CONFIRMATIONS {
                member.accusers.insert(from);
            }
            self.judge(now, &suspicion.subject, out);
        }
    }
}
