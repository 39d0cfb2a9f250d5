//! Batches: taking them in, noticing what is missing, asking for it, and serving those who ask.

use crate::config::{ANSWER_BYTES, FRAME_BYTES, WANT_MAX};
use crate::door::Out;
use crate::machine::Gossip;
use crate::members::{Member, Word};
use crate::replica::{Asked, Offered};
use crate::ring::weight;
use protocol::event::{EventBatch, Seq};
use protocol::id::{Incarnation, NodeId};
use protocol::time::{Span, Time};
use protocol::wire::gossip::Direct;

/// A gap younger than this may close by itself: heartbeats overtake batches.
const GRACE: Span = Span::millis(150);
/// Before a question is put again, to another peer; grows with each attempt.
const RETRY: Span = Span::millis(500);
/// Longest wait between two questions about one origin.
const RETRY_MAX: Span = Span::secs(4);
/// Fruitless questions after which a range is given up for a snapshot.
const RANGE_ATTEMPTS: u32 = 4;
/// Longest gap that is asked for batch by batch.
const RANGE_MAX: u64 = 8192;
/// Batches in one frame.
const BATCHES_PER_FRAME: usize = 4096;
/// Whole sets asked for at one time: more would come at once.
const SETS_WANTED_MAX: usize = 4;

impl Gossip {
    /// Tells own changes: to the own index, and to every live peer of the site.
    pub(crate) fn flush(&mut self, out: &mut Vec<Out>) {
        self.flush_at = None;
        let made = self.own.flush();
        if made.is_empty() {
            return;
        }
        self.counters.batches_made += made.len() as u64;
        let peers: Vec<NodeId> = self.live_peers().collect();
        for batch in made {
            for to in &peers {
                if self.luck.strikes(50) {
                    continue;
                }
                let frame = Direct::Batches(vec![batch.clone()]);
                out.push(Out::Direct { to: *to, frame });
            }
            out.push(Out::Learn(Box::new(batch)));
        }
    }

    pub(crate) fn batches(
        &mut self,
        now: Time,
        from: NodeId,
        batches: Vec<EventBatch>,
        out: &mut Vec<Out>,
    ) {
        if batches.len() > BATCHES_PER_FRAME {
            self.counters.improper += 1;
            return;
        }
        for batch in batches {
            self.batch(now, from, batch, out);
        }
    }

    fn batch(&mut self, now: Time, from: NodeId, batch: EventBatch, out: &mut Vec<Out>) {
        let origin = batch.origin;
        if origin == self.node {
            if batch.incarnation != self.own.incarnation() && batch.is_genuine() {
                self.echo(now, batch.incarnation, None, out);
            }
            return;
        }
        let Some(member) = self.members.get(&origin) else {
            self.counters.strangers += 1;
            return;
        };
        if batch.incarnation == member.incarnation && member.replica.has(batch.seq) {
            self.counters.duplicates += 1;
            return;
        }
        if !batch.is_genuine() {
            self.counters.forged += 1;
            return;
        }
        if !self.settle_life(now, &origin, batch.incarnation, Word::Signed, out) {
            return;
        }
        let Some(member) = self.members.get_mut(&origin) else {
            return;
        };
        let offered = member.replica.offer(batch);
        let progress = !offered.ready.is_empty();
        self.hand_on(offered, out);
        self.note_progress(now, &origin, progress.then_some(from));
    }

    /// Hands what became ready to the index.
    pub(crate) fn hand_on(&mut self, offered: Offered, out: &mut Vec<Out>) {
        self.counters.pending_dropped += offered.dropped;
        self.counters.chain_breaks += u64::from(offered.broke);
        self.counters.batches_learned += offered.ready.len() as u64;
        out.extend(offered.ready.into_iter().map(|batch| Out::Learn(Box::new(batch))));
    }

    /// After news of an origin: ends the repair, or hurries it on when the peer that was asked
    /// has sent all that it was asked for.
    pub(crate) fn note_progress(&mut self, now: Time, origin: &NodeId, by: Option<NodeId>) {
        if let Some(member) = self.members.get_mut(origin) {
            let replica = &mut member.replica;
            let answered = |asked: Asked| {
                by == Some(asked.peer) && asked.to.is_none_or(|to| to <= replica.applied())
            };
            if replica.asked.is_some_and(answered) {
                replica.asked = None;
                replica.attempts = 0;
                replica.ask_at = Some(now);
            } else if by.is_some_and(|by| replica.was_asked(&by)) {
                replica.ask_at = Some(now + RETRY);
            }
        }
        self.note_gap(now, origin);
    }

    /// Starts or ends the wait before something missing is asked for.
    pub(crate) fn note_gap(&mut self, now: Time, origin: &NodeId) {
        let Some(member) = self.members.get_mut(origin) else {
            return;
        };
        let replica = &mut member.replica;
        if !replica.has_gap() {
            replica.ask_at = None;
            replica.asked = None;
            replica.attempts = 0;
        } else if replica.ask_at.is_none() {
            replica.ask_at = Some(now + GRACE);
        }
    }

    /// Asks for whatever is due.
    pub(crate) fn sweep_gaps(&mut self, now: Time, out: &mut Vec<Out>) {
        let site = self.config.contact.site.clone();
        let sets = self.members.values().filter(|m| {
            let waits = m.replica.ask_at.is_some_and(|at| at > now);
            waits && m.replica.asked.is_some_and(|asked| asked.to.is_none())
        });
        let mut sets = SETS_WANTED_MAX.saturating_sub(sets.count());
        let due: Vec<NodeId> = self
            .members
            .iter()
            .filter(|(node, member)| {
                member.contact.site == site
                    && member.replica.has_gap()
                    && member.replica.ask_at.is_some_and(|at| at <= now)
                    && !self.comes_with_donor(node, member)
            })
            .map(|(node, _)| *node)
            .collect();
        for origin in due {
            self.ask(now, origin, &mut sets, out);
        }
    }

    /// Asks for one origin's missing batches, or for its set if `sets` allows another.
    fn ask(&mut self, now: Time, origin: NodeId, sets: &mut usize, out: &mut Vec<Out>) {
        let needless = self.luck.strikes(20);
        let Some(member) = self.members.get(&origin) else {
            return;
        };
        let replica = &member.replica;
        let last = replica.asked.map(|asked| asked.peer);
        let (attempts, incarnation, hole) = (replica.attempts, member.incarnation, replica.hole());
        let range = !replica.needs_set()
            && attempts < RANGE_ATTEMPTS
            && replica.behind() <= RANGE_MAX
            && !needless;
        if !range {
            let Some(left) = sets.checked_sub(1) else {
                return;
            };
            *sets = left;
        }
        let from_origin = self.is_live_peer(&origin) && attempts.is_multiple_of(3);
        let peer = if from_origin { Some(origin) } else { self.pick_peer(now, last, &origin) };
        let Some(member) = self.members.get_mut(&origin) else {
            return;
        };
        let replica = &mut member.replica;
        let wait = Span((RETRY * u64::from(attempts + 1)).0.min(RETRY_MAX.0));
        replica.ask_at = Some(now + wait);
        replica.attempts = attempts.saturating_add(1);
        let Some(peer) = peer else { return };
        let (frame, to) = match hole.filter(|_| range) {
            Some((from, to)) => {
                let to = Seq(to.0.min(from.0.saturating_add(WANT_MAX - 1)));
                self.counters.wants += 1;
                (Direct::Want { origin, incarnation, from, to }, Some(to))
            }
            None => {
                self.counters.snapshot_wants += 1;
                (Direct::WantSnapshot { origin: Some(origin) }, None)
            }
        };
        replica.asked = Some(Asked { peer, to });
        out.push(Out::Direct { to: peer, frame });
    }

    /// A random live peer that may be asked about `origin`, another than the last one where there
    /// is a choice.
    pub(crate) fn pick_peer(
        &mut self,
        now: Time,
        last: Option<NodeId>,
        origin: &NodeId,
    ) -> Option<NodeId> {
        let mut peers: Vec<NodeId> = self.live_peers().collect();
        if let Some(member) = self.members.get(origin) {
            peers.retain(|peer| member.replica.mending.trusts(peer, now));
        }
        if peers.len() > 1 {
            peers.retain(|peer| Some(*peer) != last);
        }
        if peers.len() > 1 {
            peers.retain(|peer| peer != origin);
        }
        let pick = usize::try_from(self.random(peers.len() as u64)).unwrap_or(0);
        peers.get(pick).copied()
    }

    /// Ready peers of this site that are alive.
    pub(crate) fn live_peers(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.members.iter().filter(|(_, m)| self.may_share(m)).map(|(node, _)| *node)
    }

    fn may_share(&self, member: &Member) -> bool {
        member.is_ready() && member.is_live() && member.contact.site == self.config.contact.site
    }

    pub(crate) fn is_live_peer(&self, node: &NodeId) -> bool {
        self.members.get(node).is_some_and(|member| self.may_share(member))
    }

    /// Serves a range, or the whole set where its beginning is no longer kept. Who has neither
    /// says so by an empty answer.
    pub(crate) fn serve_want(
        &mut self,
        now: Time,
        asker: NodeId,
        (origin, incarnation): (NodeId, Incarnation),
        (from, to): (Seq, Seq),
        out: &mut Vec<Out>,
    ) {
        let (ring, applied) = if origin == self.node {
            if incarnation != self.own.incarnation() {
                return;
            }
            (self.own.ring(), self.own.head().0)
        } else {
            match self.members.get(&origin) {
                Some(m) if m.incarnation == incarnation => (m.replica.ring(), m.replica.applied()),
                _ => return,
            }
        };
        let frames = ring.range(from, to).map(into_frames);
        match frames {
            Some(frames) => {
                self.counters.wants_served += 1;
                out.extend(
                    frames
                        .into_iter()
                        .map(|batches| Out::Direct { to: asker, frame: Direct::Batches(batches) }),
                );
            }
            None if from.0 > 0 && from <= applied => {
                self.serve_snapshot(now, asker, Some(origin), out);
            }
            None => {
                out.push(Out::Direct { to: asker, frame: Direct::Batches(Vec::new()) });
            }
        }
    }
}

/// Packs batches into frames of limited size, up to what one answer may carry.
fn into_frames<'a>(batches: impl Iterator<Item = &'a EventBatch>) -> Vec<Vec<EventBatch>> {
    let mut frames = Vec::new();
    let (mut frame, mut bytes, mut total) = (Vec::new(), 0, 0);
    for batch in batches {
        if total > 0 && total + weight(batch) > ANSWER_BYTES {
            break;
        }
        if !frame.is_empty() && bytes + weight(batch) > FRAME_BYTES {
            frames.push(std::mem::take(&mut frame));
            bytes = 0;
        }
        bytes += weight(batch);
        total += weight(batch);
        frame.push(batch.clone());
    }
    if !frame.is_empty() {
        frames.push(frame);
    }
    frames
}
