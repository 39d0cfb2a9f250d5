//! Asking a silent member whether it is there: directly, and through others.
//!
//! As in SWIM (Das, Gupta, Motivala, "SWIM: Scalable Weakly-consistent Infection-style Process Group
//! Membership Protocol", DSN 2002), but only silent members are asked: heartbeats on the topic make
//! probes of the talkative needless.

use crate::config::PROBES_MAX;
use crate::door::Out;
use crate::machine::Gossip;
use crate::members::Member;
use protocol::event::MemberState;
use protocol::id::NodeId;
use protocol::time::{Span, Time};
use protocol::wire::gossip::Direct;

/// Others who are asked to probe a silent member.
const HELPERS: usize = 3;
/// Between two probes of one silent member.
const PROBE_EVERY: Span = Span::millis(500);
/// Between two rounds of asking others about it.
const HELP_EVERY: Span = Span::millis(700);
/// An answer may come this late.
const PROBE_LIFE: Span = Span::secs(5);
/// Probes under way for one asker: nobody may use up the others' share.
const RELAYED_MAX: usize = 64;

/// A probe under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    subject: NodeId,
    /// Who will answer: the subject, or the helper that was asked.
    via: NodeId,
    /// Who asked for it, and under which nonce.
    asker: Option<(NodeId, u64)>,
    sent: Time,
}

impl Gossip {
    /// Asks a member, and others about it, before its silence gets long enough for suspicion.
    pub(crate) fn probe_silent(&mut self, now: Time, node: &NodeId, out: &mut Vec<Out>) {
        let Some(member) = self.members.get(node) else {
            return;
        };
        let silence = now.since(member.heard);
        let half = Span(self.silence_allowed(member).0 / 2);
        let gone = matches!(member.state, MemberState::Dead | MemberState::Left);
        if gone || !member.ever_heard || silence < half {
            return;
        }
        let direct = member.is_ready() && now.since(member.asked) >= PROBE_EVERY;
        let late = silence >= Span(half.0 + half.0 / 2) || !member.is_ready();
        let others = late && now.since(member.asked_others) >= HELP_EVERY;
        if direct && !self.luck.strikes(4) {
            self.probe(now, *node, None, out);
        }
        if others {
            self.ask_helpers(now, node, out);
        }
        if let Some(member) = self.members.get_mut(node) {
            member.asked = if direct { now } else { member.asked };
            member.asked_others = if others { now } else { member.asked_others };
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
            self.probes.insert(nonce, Probe { subject, via: subject, asker, sent: now });
            out.push(Out::Direct { to: subject, frame: Direct::Probe { nonce } });
        }
    }

    /// Perhaps only the path from here to it is broken.
    fn ask_helpers(&mut self, now: Time, subject: &NodeId, out: &mut Vec<Out>) {
        for helper in self.some_peers(HELPERS, Some(*subject)) {
            if self.probes.len() >= PROBES_MAX {
                return;
            }
            let nonce = self.random(u64::MAX);
            let probe = Probe { subject: *subject, via: helper, asker: None, sent: now };
            self.probes.insert(nonce, probe);
            let frame = Direct::ProbeFor { subject: *subject, nonce };
            out.push(Out::Direct { to: helper, frame });
        }
    }

    /// Up to `count` live peers drawn at random.
    pub(crate) fn some_peers(&mut self, count: usize, except: Option<NodeId>) -> Vec<NodeId> {
        let mut peers: Vec<NodeId> =
            self.live_peers().filter(|node| Some(*node) != except).collect();
        let mut picked = Vec::with_capacity(count.min(peers.len()));
        while picked.len() < count && !peers.is_empty() {
            let pick = usize::try_from(self.random(peers.len() as u64)).unwrap_or(0);
            picked.push(peers.swap_remove(pick));
        }
        picked
    }

    /// A peer asks whether this node is there. Its heartbeat comes first, so that a helper can pass
    /// it on as proof.
    pub(crate) fn probed(&self, from: NodeId, nonce: u64, out: &mut Vec<Out>) {
        if let Some(beat) = &self.last_beat {
            out.push(Out::Direct { to: from, frame: Direct::Heard(beat.clone()) });
        }
        out.push(Out::Direct { to: from, frame: Direct::Ack { nonce } });
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
            return self.probed(from, nonce, out);
        }
        let relayed =
            self.probes.values().filter(|p| p.asker.is_some_and(|(asker, _)| asker == from));
        if relayed.count() >= RELAYED_MAX {
            self.counters.improper += 1;
        } else if self.members.get(&subject).is_some_and(Member::is_ready) {
            self.probe(now, subject, Some((from, nonce)), out);
        }
    }

    /// An answer to a probe. Of a third party it comes only from a helper that was asked: no one
    /// else knows the nonce.
    pub(crate) fn acked(&mut self, now: Time, from: NodeId, nonce: u64, out: &mut Vec<Out>) {
        let Some(probe) = self.probes.get(&nonce).copied().filter(|probe| probe.via == from) else {
            return;
        };
        self.probes.remove(&nonce);
        match probe.asker {
            Some((asker, nonce)) => {
                if let Some(beat) = self.members.get(&from).and_then(|m| m.beat.clone()) {
                    out.push(Out::Direct { to: asker, frame: Direct::Heard(beat) });
                }
                out.push(Out::Direct { to: asker, frame: Direct::Ack { nonce } });
            }
            None => self.heard(now, &probe.subject, false, out),
        }
    }

    /// Lets go of probes that nobody answered.
    pub(crate) fn expire_probes(&mut self, now: Time) {
        self.probes.retain(|_, probe| now.since(probe.sent) < PROBE_LIFE);
    }
}
