//! Whole sets: a newcomer's donor, asking, cutting into frames, taking over.

use crate::door::Out;
use crate::machine::Gossip;
use crate::members::{Member, Word, begin_life};
use crate::replica::Installed;
use protocol::event::{EventRun, INDEX_GRANULE, Seq, Snapshot};
use protocol::hash::PrefixHash;
use protocol::id::NodeId;
use protocol::time::{Span, Time};
use protocol::wire::gossip::Direct;
use std::collections::BTreeSet;

/// A donor that sends nothing for so long has nothing more, or is gone.
const DONOR_PATIENCE: Span = Span::secs(2);
/// One peer may ask for one set at most so often.
const CUT_EVERY: Span = Span::millis(500);
/// Remembered requests for sets.
const CUTS_MAX: usize = 4096;
/// What a name, a run and a snapshot cost on the wire beside each other, about.
const NAME_BYTES: u64 = 17;
const RUN_BYTES: u64 = 24;
const HEAD_BYTES: u64 = 128;
/// Snapshots in one frame.
const SNAPSHOTS_PER_FRAME: usize = 256;

/// How a newcomer gets its first index.
#[derive(Debug, Default)]
pub(crate) struct Bootstrap {
    done: bool,
    /// Who was asked, until when to wait, and whether it has sent anything.
    donor: Option<(NodeId, Time, bool)>,
    tried: BTreeSet<NodeId>,
}

impl Gossip {
    /// True once a donor has begun to give this node its first index: it may route from it.
    pub fn has_index(&self) -> bool {
        self.bootstrap.done || self.bootstrap.donor.is_some_and(|(_, _, answered)| answered)
    }

    /// Asks the first peer that is ready for everything it knows.
    pub(crate) fn ask_donor(&mut self, now: Time, peer: NodeId, out: &mut Vec<Out>) {
        let fits = !self.bootstrap.done
            && self.bootstrap.donor.is_none()
            && self.live_peers().any(|node| node == peer);
        if fits {
            self.bootstrap.tried.insert(peer);
            self.bootstrap.donor = Some((peer, now + DONOR_PATIENCE, false));
            self.counters.snapshot_wants += 1;
            let frame = Direct::WantSnapshot { origin: None };
            out.push(Out::Direct { to: peer, frame });
        }
    }

    pub(crate) fn donor_lost(&mut self, node: &NodeId) {
        if let Some((donor, until, _)) = &mut self.bootstrap.donor
            && donor == node
        {
            *until = Time::ZERO;
        }
    }

    /// Ends the wait for a donor, or tries the next one.
    pub(crate) fn sweep_donor(&mut self, now: Time, out: &mut Vec<Out>) {
        let Some((_, until, answered)) = self.bootstrap.donor else {
            return;
        };
        if now < until {
            return;
        }
        self.bootstrap.donor = None;
        if answered {
            self.bootstrap.done = true;
            return;
        }
        let next = self.live_peers().find(|node| !self.bootstrap.tried.contains(node));
        if let Some(next) = next {
            self.ask_donor(now, next, out);
        }
    }

    /// Whether an origin's set is likely on its way with the donor's, so that it need not be
    /// asked for.
    pub(crate) fn comes_with_donor(&self, origin: &NodeId, member: &Member) -> bool {
        member.replica.applied() == Seq(0)
            && self
                .bootstrap
                .donor
                .is_some_and(|(donor, _, answered)| donor != *origin || !answered)
    }

    /// Whether a peer may have sets cut now; remembers that it did.
    pub(crate) fn may_cut(&mut self, now: Time, to: NodeId, origin: Option<NodeId>) -> bool {
        self.cuts.retain(|_, at| now.since(*at) < CUT_EVERY);
        let may = self.cuts.len() < CUTS_MAX && !self.cuts.contains_key(&(to, origin));
        if may {
            self.cuts.insert((to, origin), now);
        }
        may
    }

    /// Serves a request for one set or all, at a bounded rate. The own set is cut here, exactly at
    /// the last batch; the index, which may be ahead of it, cuts the others.
    pub(crate) fn serve_snapshot(
        &mut self,
        now: Time,
        to: NodeId,
        origin: Option<NodeId>,
        out: &mut Vec<Out>,
    ) {
        if !self.may_cut(now, to, origin) {
            return;
        }
        if origin.is_none_or(|origin| origin == self.node) {
            self.flush(out);
            let own = self.own.cut();
            if !self.send_snapshots(to, vec![own]) {
                return;
            }
        }
        let known = |member: &Member| member.replica.applied() > Seq(0);
        let mut others: Vec<(NodeId, u64)> = self
            .members
            .iter()
            .filter(|(node, member)| {
                **node != to && known(member) && origin.is_none_or(|origin| origin == **node)
            })
            .map(|(node, member)| (*node, member.replica.count()))
            .collect();
        // Small ones first: the newcomer soon knows something of most.
        others.sort_by_key(|(_, count)| *count);
        if !others.is_empty() {
            self.donations.owe(to, others);
        }
    }

    /// Sends what the index has cut.
    pub(crate) fn snapshot_cut(&mut self, to: NodeId, mut snapshots: Vec<Snapshot>) {
        if self.donations.cut_done(&to) {
            snapshots.retain(|snapshot| snapshot.origin != self.node && snapshot.origin != to);
            self.send_snapshots(to, snapshots);
        }
    }

    fn send_snapshots(&mut self, to: NodeId, snapshots: Vec<Snapshot>) -> bool {
        self.counters.snapshots_served += snapshots.len() as u64;
        let parcel = |frame: Vec<Snapshot>| {
            let bytes = frame.iter().map(|part| HEAD_BYTES + weight(&part.runs)).sum();
            (Direct::Snapshots(frame), bytes)
        };
        let frames = into_frames(snapshots, self.luck.part_hashes());
        self.donations.give(to, frames.into_iter().map(parcel).collect())
    }

    pub(crate) fn snapshots(
        &mut self,
        now: Time,
        from: NodeId,
        snapshots: Vec<Snapshot>,
        out: &mut Vec<Out>,
    ) {
        let mut donated = false;
        if let Some((donor, until, answered)) = &mut self.bootstrap.donor
            && *donor == from
        {
            (*until, *answered, donated) = (now + DONOR_PATIENCE, true, true);
        }
        for snapshot in snapshots {
            self.snapshot(now, from, snapshot, donated, out);
        }
    }

    fn snapshot(
        &mut self,
        now: Time,
        from: NodeId,
        snapshot: Snapshot,
        donated: bool,
        out: &mut Vec<Out>,
    ) {
        let origin = snapshot.origin;
        if origin == self.node {
            return;
        }
        let keep = self.config.keep_others;
        let Some(member) = self.members.get_mut(&origin) else {
            self.counters.strangers += 1;
            return;
        };
        let by_origin = origin == from;
        let same_life = snapshot.incarnation == member.incarnation;
        let welcome = (donated || member.replica.was_asked(&from))
            && (same_life
                || (member.word == Word::Told && snapshot.incarnation > member.incarnation));
        if !welcome {
            self.counters.snapshots_refused += 1;
            return;
        }
        if !same_life {
            begin_life(member, snapshot.incarnation, keep, out);
            out.push(Out::Member(Box::new(member.view())));
        }
        match member.replica.install(snapshot, by_origin) {
            Installed::Part | Installed::Known => {}
            Installed::Refused => self.counters.snapshots_refused += 1,
            Installed::Done(whole, offered) => {
                member.replica.mending.given_by(from, now);
                member.forgotten = false;
                self.counters.snapshots_learned += 1;
                out.push(Out::LearnSnapshot(whole));
                self.hand_on(offered, out);
                self.note_progress(now, &origin, Some(from));
            }
        }
    }
}

/// Cuts a run that is longer than a frame may be.
fn split_run(run: EventRun, most: usize) -> Vec<EventRun> {
    let parts = |first: u32, hashes: Vec<PrefixHash>| {
        let step = INDEX_GRANULE.saturating_mul(u32::try_from(most).unwrap_or(u32::MAX));
        let parts: Vec<(u32, Vec<PrefixHash>)> = hashes
            .chunks(most)
            .zip(0u32..)
            .map(|(part, n)| (first.saturating_add(step.saturating_mul(n)), part.to_vec()))
            .collect();
        parts.into_iter()
    };
    match run {
        EventRun::Stored { storage, holder, first, hashes } if hashes.len() > most => {
            parts(first, hashes)
                .map(|(first, hashes)| EventRun::Stored { storage, holder, first, hashes })
                .collect()
        }
        other => vec![other],
    }
}

fn names(run: &EventRun) -> usize {
    match run {
        EventRun::Stored { hashes, .. }
        | EventRun::Removed { hashes, .. }
        | EventRun::Computing { hashes, .. } => hashes.len(),
        EventRun::Cleared { .. } => 1,
    }
}

/// Bytes of runs on the wire, about.
pub(crate) fn weight(runs: &[EventRun]) -> u64 {
    runs.iter().map(|run| RUN_BYTES + names(run) as u64 * NAME_BYTES).sum()
}

/// Divides runs into parts of at most `most` names.
pub(crate) fn into_parts(runs: Vec<EventRun>, most: usize) -> Vec<Vec<EventRun>> {
    let mut parts: Vec<Vec<EventRun>> = Vec::new();
    let mut named = 0;
    for run in runs.into_iter().flat_map(|run| split_run(run, most)) {
        if parts.is_empty() || (named > 0 && named + names(&run) > most) {
            parts.push(Vec::new());
            named = 0;
        }
        named += names(&run);
        if let Some(part) = parts.last_mut() {
            part.push(run);
        }
    }
    parts
}

/// Cuts a set into parts that fit a frame; each carries the cut's watermark and digest.
fn split(snapshot: Snapshot, most: usize) -> Vec<Snapshot> {
    let head = Snapshot { runs: Vec::new(), ..snapshot.clone() };
    let mut parts = into_parts(snapshot.runs, most);
    if parts.is_empty() {
        parts.push(Vec::new());
    }
    parts.into_iter().map(|runs| Snapshot { runs, ..head.clone() }).collect()
}

/// Packs sets, or parts of them, into frames of at most `most` names.
fn into_frames(snapshots: Vec<Snapshot>, most: usize) -> Vec<Vec<Snapshot>> {
    let mut frames = Vec::new();
    let (mut frame, mut named) = (Vec::new(), 0);
    for part in snapshots.into_iter().flat_map(|snapshot| split(snapshot, most)) {
        let more: usize = part.runs.iter().map(names).sum();
        let full = named + more > most || frame.len() >= SNAPSHOTS_PER_FRAME;
        if full && !frame.is_empty() {
            frames.push(std::mem::take(&mut frame));
            named = 0;
        }
        named += more;
        frame.push(part);
    }
    if !frame.is_empty() {
        frames.push(frame);
    }
    frames
}

#[cfg(test)]
mod tests;
