//! Mending a set of which the index says that it is not what its origin signed.
//!
//! Its digests by buckets go to a donor, the origin first; the donor answers with the buckets that
//! differ ([`protocol::event::Buckets`]). The answer must name the link and digest that the origin
//! signed for that place; whether its content has that digest only the index can tell, which says
//! so at once. A donor whose set did not fit is passed over for this origin for a while.

use crate::config::SNAPSHOT_ENTRIES;
use crate::door::Out;
use crate::machine::Gossip;
use crate::replica::{Replica, entries};
use crate::snapshots::into_parts;
use protocol::event::{BucketDigests, Buckets, BucketsWanted, EventRun, Seq, bucket_of};
use protocol::id::{Incarnation, NodeId};
use protocol::time::{Span, Time};
use protocol::wire::gossip::Direct;
use std::collections::BTreeMap;

/// Repairs under way at one time.
const REPAIRS_MAX: usize = 8;
/// Donors asked in vain before the whole set is asked for.
const DONORS_MAX: u32 = 4;
/// A donor that sends nothing for so long is passed over.
const PATIENCE: Span = Span::secs(1);
/// A set found wrong so soon after it was mended was mended wrongly.
const BLAME_WITHIN: Span = Span::secs(10);
/// How long a liar is not asked about that origin.
const BLAMED_FOR: Span = Span::secs(60);
/// Liars remembered per origin.
const BLAMED_MAX: usize = 16;
/// First and longest wait after repairs that did not help: the origin itself may be at fault.
const FRUITLESS_FIRST: Span = Span::millis(500);
const FRUITLESS_MAX: Span = Span::secs(60);

/// One repair.
#[derive(Debug)]
struct Repair {
    wanted: Box<BucketsWanted>,
    /// When to ask, or to ask another.
    ask_at: Time,
    asked: Option<NodeId>,
    tries: u32,
    /// What came so far; `part` is the next one.
    parts: Option<Buckets>,
    whole: bool,
}

/// Repairs of one origin's set, and whom to trust with it.
#[derive(Debug, Default)]
pub(crate) struct Mending {
    repair: Option<Repair>,
    /// Who gave the last set or buckets.
    given: Option<(NodeId, Time)>,
    blamed: BTreeMap<NodeId, Time>,
    fruitless: u32,
}

impl Mending {
    /// Notes who gave a set that the index now has.
    pub(crate) fn given_by(&mut self, donor: NodeId, now: Time) {
        self.given = Some((donor, now));
        self.repair = None;
    }

    /// The set was wrong: whoever gave it loses its turn. False when nobody gave it lately.
    fn blame_giver(&mut self, now: Time) -> bool {
        match self.given.take() {
            Some((donor, at)) if now.since(at) < BLAME_WITHIN => {
                self.blame(donor, now);
                true
            }
            _ => false,
        }
    }

    fn blame(&mut self, donor: NodeId, now: Time) {
        self.blamed.retain(|_, at| now.since(*at) < BLAMED_FOR);
        if self.blamed.len() < BLAMED_MAX {
            self.blamed.insert(donor, now);
        }
    }

    /// Whether a peer may be asked about this origin.
    pub(crate) fn trusts(&self, donor: &NodeId, now: Time) -> bool {
        self.blamed.get(donor).is_none_or(|at| now.since(*at) >= BLAMED_FOR)
    }
}

impl Gossip {
    /// The index says that its set is not what the origin signed.
    pub(crate) fn diverged(
        &mut self,
        now: Time,
        (origin, incarnation): (NodeId, Incarnation),
        seq: Seq,
        buckets: &BucketDigests,
    ) {
        let Some(member) = self.members.get_mut(&origin) else {
            return;
        };
        let replica = &mut member.replica;
        if member.incarnation != incarnation || replica.applied() < seq {
            return;
        }
        self.counters.digest_mismatch += 1;
        let mending = &mut replica.mending;
        if mending.blame_giver(now) {
            mending.fruitless = mending.fruitless.saturating_add(1);
        } else {
            mending.fruitless = 0;
        }
        let wait = match mending.fruitless {
            0 => Span::ZERO,
            n => Span((FRUITLESS_FIRST * 2u64.saturating_pow(n.min(16))).0.min(FRUITLESS_MAX.0)),
        };
        if mending.fruitless % DONORS_MAX == DONORS_MAX - 1 {
            mending.repair = None;
            replica.distrust();
            replica.ask_at = Some(now + wait);
        } else if mending.repair.as_ref().is_none_or(|repair| repair.asked.is_none()) {
            let digests = buckets.to_vec();
            mending.repair = Some(Repair {
                wanted: Box::new(BucketsWanted { origin, incarnation, seq, digests }),
                ask_at: now + wait,
                asked: None,
                tries: 0,
                parts: None,
                whole: false,
            });
        }
    }

    /// Asks donors where it is time, and mends what waited for batches.
    pub(crate) fn sweep_repairs(&mut self, now: Time, out: &mut Vec<Out>) {
        let under_way = |replica: &Replica| {
            replica.mending.repair.as_ref().is_some_and(|r| r.asked.is_some() && r.ask_at > now)
        };
        let busy = self.members.values().filter(|m| under_way(&m.replica)).count();
        let whole: Vec<NodeId> = self
            .members
            .iter()
            .filter(|(_, m)| m.replica.mending.repair.as_ref().is_some_and(|r| r.whole))
            .map(|(node, _)| *node)
            .collect();
        for origin in whole {
            self.mend(now, &origin, out);
        }
        let site = &self.config.contact.site;
        let due: Vec<NodeId> = self
            .members
            .iter()
            .filter(|(_, m)| m.contact.site == *site)
            .filter(|(_, m)| m.replica.mending.repair.as_ref().is_some_and(|r| r.ask_at <= now))
            .map(|(node, _)| *node)
            .take(REPAIRS_MAX.saturating_sub(busy))
            .collect();
        for origin in due {
            self.ask_buckets(now, origin, out);
        }
    }

    fn ask_buckets(&mut self, now: Time, origin: NodeId, out: &mut Vec<Out>) {
        let repair = self.members.get(&origin).and_then(|m| m.replica.mending.repair.as_ref());
        let Some((tries, last)) = repair.map(|repair| (repair.tries, repair.asked)) else {
            return;
        };
        let origin_first = tries.is_multiple_of(2) && self.is_live_peer(&origin);
        let donor = if origin_first { Some(origin) } else { self.pick_peer(now, last, &origin) };
        let Some(member) = self.members.get_mut(&origin) else {
            return;
        };
        let replica = &mut member.replica;
        if tries >= DONORS_MAX || replica.needs_set() {
            replica.mending.repair = None;
            replica.distrust();
            replica.ask_at = Some(now);
            return;
        }
        let Some(repair) = &mut replica.mending.repair else {
            return;
        };
        (repair.asked, repair.parts, repair.whole) = (donor, None, false);
        repair.ask_at = now + PATIENCE;
        repair.tries += 1;
        if let Some(to) = donor {
            self.counters.bucket_wants += 1;
            out.push(Out::Direct { to, frame: Direct::WantBuckets(repair.wanted.clone()) });
        }
    }

    /// A peer's set is wrong somewhere.
    pub(crate) fn serve_buckets(
        &mut self,
        now: Time,
        to: NodeId,
        wanted: Box<BucketsWanted>,
        out: &mut Vec<Out>,
    ) {
        let BucketsWanted { origin, incarnation, seq, .. } = *wanted;
        let Some(theirs) = BucketDigests::from_slice(&wanted.digests) else {
            self.counters.improper += 1;
            return;
        };
        if !self.may_cut(now, to, Some(origin)) {
            return;
        }
        if origin == self.node {
            self.flush(out);
            if incarnation == self.own.incarnation() && seq <= self.own.head().0 {
                let buckets = self.own.cut_buckets(seq, &theirs);
                self.send_buckets(to, buckets);
            }
            return;
        }
        let Some(member) = self.members.get(&origin) else {
            return;
        };
        let replica = &member.replica;
        let healthy = !replica.needs_set() && replica.mending.repair.is_none();
        if healthy
            && member.incarnation == incarnation
            && let Some(later) = replica.after(seq)
        {
            out.push(Out::CutBuckets { to, wanted, later });
        }
    }

    /// Sends what differs, in parts.
    pub(crate) fn send_buckets(&mut self, to: NodeId, buckets: Buckets) {
        self.counters.buckets_served += 1;
        let head = Buckets { runs: Vec::new(), ..buckets.clone() };
        let chunks = into_parts(buckets.runs, self.luck.part_hashes());
        let Ok(parts) = u16::try_from(chunks.len().max(1)) else {
            return;
        };
        let mut chunks = chunks.into_iter();
        let frames = (0..parts).map(|part| {
            let runs = chunks.next().unwrap_or_default();
            let bytes = crate::snapshots::weight(&runs) + head.buckets.len() as u64;
            (Direct::Buckets(Box::new(Buckets { part, parts, runs, ..head.clone() })), bytes)
        });
        let frames = frames.collect();
        self.donations.give(to, frames);
    }

    /// Takes a part of an answer.
    pub(crate) fn buckets(&mut self, now: Time, from: NodeId, part: Buckets, out: &mut Vec<Out>) {
        let origin = part.origin;
        let Some(member) = self.members.get_mut(&origin) else {
            self.counters.strangers += 1;
            return;
        };
        let same_life = part.incarnation == member.incarnation;
        let mending = &mut member.replica.mending;
        let Some(repair) = mending
            .repair
            .as_mut()
            .filter(|repair| repair.asked == Some(from) && same_life && !repair.whole)
        else {
            self.counters.buckets_refused += 1;
            return;
        };
        let next = repair.parts.as_ref().map_or(0, |parts| parts.part);
        let fits = repair.parts.as_ref().is_none_or(|parts| same_cut(parts, &part));
        if part.part != next || part.part >= part.parts || !fits {
            // A frame got lost: what comes without it is of no use.
            repair.parts = None;
            self.counters.buckets_refused += 1;
            return;
        }
        let last = part.part + 1 == part.parts;
        let whole = match repair.parts.take() {
            Some(mut parts) => {
                parts.runs.extend(part.runs);
                parts
            }
            None => part,
        };
        if entries(&whole.runs) > whole.digest.count.min(SNAPSHOT_ENTRIES) {
            mending.blame(from, now);
            repair_again(mending, now);
            self.counters.buckets_refused += 1;
            return;
        }
        repair.ask_at = now + PATIENCE;
        repair.whole = last;
        repair.parts = Some(Buckets { part: next + 1, ..whole });
        if last {
            self.mend(now, &origin, out);
        }
    }

    /// Hands an answer to the index, once this node is not behind it.
    fn mend(&mut self, now: Time, origin: &NodeId, out: &mut Vec<Out>) {
        let Some(member) = self.members.get_mut(origin) else {
            return;
        };
        let replica = &mut member.replica;
        let applied = replica.applied();
        let Some(repair) = replica.mending.repair.as_mut() else {
            return;
        };
        let Some(buckets) =
            repair.parts.take_if(|parts| repair.whole && parts.watermark <= applied)
        else {
            return;
        };
        repair.whole = false;
        let asked = repair.asked;
        let place = replica.known_at(buckets.watermark);
        let later = replica.after(buckets.watermark);
        let mending = &mut replica.mending;
        let (Some(place), Some(later), Some(donor)) = (place, later, asked) else {
            return repair_again(mending, now);
        };
        if place != (buckets.link, buckets.digest) || !within(&buckets) {
            mending.blame(donor, now);
            self.counters.buckets_refused += 1;
            return repair_again(mending, now);
        }
        mending.given_by(donor, now);
        self.counters.buckets_learned += 1;
        let buckets = Box::new(Buckets { part: 0, parts: 1, ..buckets });
        out.push(Out::LearnBuckets { buckets, later });
    }

    /// The origin's own word contradicts what a donor gave.
    pub(crate) fn blame_giver(&mut self, now: Time, origin: &NodeId) {
        if let Some(member) = self.members.get_mut(origin) {
            member.replica.mending.blame_giver(now);
        }
    }
}

fn repair_again(mending: &mut Mending, now: Time) {
    if let Some(repair) = &mut mending.repair {
        (repair.ask_at, repair.parts, repair.whole) = (now, None, false);
    }
}

/// Every name lies in one of the buckets named.
fn within(buckets: &Buckets) -> bool {
    buckets.runs.iter().all(|run| match run {
        EventRun::Stored { hashes, .. } => {
            hashes.iter().all(|hash| buckets.buckets.contains(&bucket_of(*hash)))
        }
        _ => false,
    })
}

fn same_cut(a: &Buckets, b: &Buckets) -> bool {
    (a.incarnation, a.watermark, a.link, a.digest, a.parts, &a.buckets)
        == (b.incarnation, b.watermark, b.link, b.digest, b.parts, &b.buckets)
}
