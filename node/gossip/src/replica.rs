//! One other origin's history as far as it is known here.

use crate::buckets::Mending;
use crate::config::{Keep, PENDING_BYTES, PENDING_COUNT, SNAPSHOT_ENTRIES};
use crate::ring::{Ring, weight};
use protocol::event::{EventBatch, EventRun, Heartbeat, Seq, SetDigest, Snapshot};
use protocol::id::NodeId;
use protocol::time::Time;
use std::collections::BTreeMap;

/// Heartbeats below an unproven watermark that show it to be invented: late ones come singly.
const BELOW_MAX: u8 = 3;

/// A question under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) peer: NodeId,
    /// Last batch of the range; `None` when a snapshot was asked for.
    pub(crate) to: Option<Seq>,
}

/// The place in an origin's history up to which the index has learned, and what came after.
#[derive(Debug)]
pub(crate) struct Replica {
    applied: Seq,
    link: [u8; 32],
    digest: SetDigest,
    /// Highest batch heard of under the origin's signature.
    head: Seq,
    /// A signed batch or the origin itself vouches for `applied`, `link` and `digest`.
    proven: bool,
    below: u8,
    /// The set here is wrong, or cannot be continued: only a snapshot helps.
    needs_set: bool,
    pending: BTreeMap<Seq, EventBatch>,
    pending_bytes: usize,
    ring: Ring,
    assembly: Option<Snapshot>,
    /// When to ask (again) for what is missing.
    pub(crate) ask_at: Option<Time>,
    pub(crate) asked: Option<Asked>,
    pub(crate) attempts: u32,
    pub(crate) mending: Mending,
}

/// What became of a batch.
#[derive(Debug, PartialEq, Eq, Default)]
pub(crate) struct Offered {
    /// To hand on, in order.
    pub(crate) ready: Vec<EventBatch>,
    /// Waiting batches let go for room.
    pub(crate) dropped: u64,
    /// The chain did not continue.
    pub(crate) broke: bool,
}

/// What became of a snapshot.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Installed {
    /// Parts are missing still.
    Part,
    /// Of no use: this is known already.
    Known,
    /// Contradicts itself, or cannot be continued.
    Refused,
    /// Taken over: for the index, and the batches after it.
    Done(Box<Snapshot>, Offered),
}

/// Entries that runs name.
pub(crate) fn entries(runs: &[EventRun]) -> u64 {
    runs.iter()
        .map(|run| match run {
            EventRun::Stored { hashes, .. }
            | EventRun::Removed { hashes, .. }
            | EventRun::Computing { hashes, .. } => hashes.len() as u64,
            EventRun::Cleared { .. } => 0,
        })
        .sum()
}

impl Replica {
    /// Nothing known: the place before the first batch.
    pub(crate) fn new(keep: Keep) -> Self {
        Self {
            applied: Seq(0),
            link: [0; 32],
            digest: SetDigest::default(),
            head: Seq(0),
            proven: true,
            below: 0,
            needs_set: false,
            pending: BTreeMap::new(),
            pending_bytes: 0,
            ring: Ring::new(keep),
            assembly: None,
            ask_at: None,
            asked: None,
            attempts: 0,
            mending: Mending::default(),
        }
    }

    pub(crate) fn applied(&self) -> Seq {
        self.applied
    }

    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Entries that the origin had at `applied`.
    pub(crate) fn count(&self) -> u64 {
        self.digest.count
    }

    /// Link and digest after a batch, as far back as batches are kept.
    pub(crate) fn known_at(&self, seq: Seq) -> Option<([u8; 32], SetDigest)> {
        if seq == self.applied {
            return Some((self.link, self.digest));
        }
        let batch = self.ring.range(seq, seq)?.next()?;
        Some((batch.link(), batch.digest))
    }

    /// All batches after `seq` up to `applied`, where they are kept.
    pub(crate) fn after(&self, seq: Seq) -> Option<Vec<EventBatch>> {
        if seq >= self.applied {
            return (seq == self.applied).then(Vec::new);
        }
        let later = self.ring.range(Seq(seq.0.saturating_add(1)), self.applied)?;
        Some(later.cloned().collect())
    }

    /// Batches that exist and are not applied here.
    pub(crate) fn behind(&self) -> u64 {
        self.head.0.saturating_sub(self.applied.0)
    }

    pub(crate) fn needs_set(&self) -> bool {
        self.needs_set
    }

    /// Something is missing.
    pub(crate) fn has_gap(&self) -> bool {
        self.needs_set || self.head > self.applied
    }

    /// First and last missing batch of the first hole.
    pub(crate) fn hole(&self) -> Option<(Seq, Seq)> {
        let from = Seq(self.applied.0.saturating_add(1));
        let to = match self.pending.first_key_value() {
            Some((first, _)) => Seq(first.0.saturating_sub(1)),
            None => self.head,
        };
        (from <= to).then_some((from, to))
    }

    pub(crate) fn has(&self, seq: Seq) -> bool {
        seq <= self.applied || self.pending.contains_key(&seq)
    }

    /// The set told to the index is not the origin's: ask for it anew.
    pub(crate) fn distrust(&mut self) {
        self.needs_set = true;
    }

    /// Takes a batch whose signature and life were checked.
    pub(crate) fn offer(&mut self, batch: EventBatch) -> Offered {
        self.head = self.head.max(batch.seq);
        let mut result = Offered::default();
        if self.has(batch.seq) {
            return result;
        }
        self.pending_bytes += weight(&batch);
        self.pending.insert(batch.seq, batch);
        self.drain(&mut result);
        while self.pending.len() > PENDING_COUNT || self.pending_bytes > PENDING_BYTES {
            // The latest goes: what is next is worth most, and the rest can be asked for.
            let Some((_, last)) = self.pending.pop_last() else {
                break;
            };
            self.pending_bytes -= weight(&last);
            result.dropped += 1;
        }
        result
    }

    fn drain(&mut self, result: &mut Offered) {
        while !self.needs_set {
            let Some(batch) = self.pending.remove(&Seq(self.applied.0.saturating_add(1))) else {
                break;
            };
            self.pending_bytes -= weight(&batch);
            if batch.previous != self.link {
                self.needs_set = true;
                result.broke = true;
                break;
            }
            self.applied = batch.seq;
            self.link = batch.link();
            self.digest = batch.digest;
            self.proven = true;
            self.ring.push(batch.clone());
            result.ready.push(batch);
        }
    }

    /// Takes note of a genuine heartbeat of this life; true when it contradicts what is here.
    pub(crate) fn heartbeat(&mut self, beat: &Heartbeat) -> bool {
        self.head = self.head.max(beat.head);
        if beat.head == self.applied && beat.digest != self.digest {
            // Two signed words of one origin may differ only by its own fault; a snapshot of
            // somebody else's hand is the likelier culprit.
            self.needs_set |= !self.proven;
            return true;
        }
        if self.proven || beat.head >= self.applied {
            self.below = 0;
            return false;
        }
        self.below += 1;
        let invented = self.below >= BELOW_MAX;
        if invented {
            self.below = 0;
            self.needs_set = true;
        }
        invented
    }

    /// Whether `peer` was asked about this origin and may answer with a snapshot.
    pub(crate) fn was_asked(&self, peer: &NodeId) -> bool {
        self.asked.is_some_and(|asked| asked.peer == *peer)
    }

    /// Takes a snapshot or a part of one (parts of one cut carry the same watermark and digest;
    /// the digest's count tells when they are all there). `by_origin`: it came from the origin
    /// itself, over an authenticated stream.
    pub(crate) fn install(&mut self, part: Snapshot, by_origin: bool) -> Installed {
        if part.digest.count > SNAPSHOT_ENTRIES {
            return Installed::Refused;
        }
        if part.watermark <= self.applied && !self.needs_set {
            return Installed::Known;
        }
        let whole = match self.assembly.take() {
            Some(mut parts) if same_cut(&parts, &part) => {
                parts.runs.extend(part.runs);
                parts
            }
            _ => part,
        };
        let named = entries(&whole.runs);
        if named < whole.digest.count {
            self.assembly = Some(whole);
            return Installed::Part;
        }
        if named > whole.digest.count {
            return Installed::Refused;
        }
        self.take_over(whole, by_origin)
    }

    fn take_over(&mut self, whole: Snapshot, by_origin: bool) -> Installed {
        let mut result = Offered::default();
        let second_hand = self.proven && !by_origin;
        if second_hand && whole.watermark == self.applied {
            if (whole.link, whole.digest) != (self.link, self.digest) {
                return Installed::Refused;
            }
            self.needs_set = false;
            self.drain(&mut result);
            return Installed::Done(Box::new(whole), result);
        }
        if second_hand && whole.watermark < self.applied {
            // An older set of another hand: only with all that came after it.
            let next = Seq(whole.watermark.0.saturating_add(1));
            let Some(later) = self.ring.range(next, self.applied) else {
                return Installed::Refused;
            };
            let later: Vec<EventBatch> = later.cloned().collect();
            if later.first().is_none_or(|first| first.previous != whole.link) {
                return Installed::Refused;
            }
            self.needs_set = false;
            result.ready = later;
            self.drain(&mut result);
            return Installed::Done(Box::new(whole), result);
        }
        self.applied = whole.watermark;
        self.link = whole.link;
        self.digest = whole.digest;
        self.proven = by_origin || whole.watermark == Seq(0);
        self.below = 0;
        self.needs_set = false;
        self.ring.clear();
        self.pending.retain(|seq, _| *seq > whole.watermark);
        self.pending_bytes = self.pending.values().map(weight).sum();
        self.drain(&mut result);
        Installed::Done(Box::new(whole), result)
    }
}

fn same_cut(a: &Snapshot, b: &Snapshot) -> bool {
    (a.incarnation, a.watermark, a.link, a.digest) == (b.incarnation, b.watermark, b.link, b.digest)
}

#[cfg(test)]
mod tests;
