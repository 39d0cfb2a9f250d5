//! Handing out sets at a bounded rate.
//!
//! Whoever asks gets a session; all sessions together send [`crate::Config::donate_bytes_s`] and take
//! turns frame by frame, so a newcomer's whole index neither floods the wire nor the peer's queue.
//! Sets are cut a few at a time while the frames before them leave: a session holds about a million
//! entries at most, or one origin's set where that is larger.

use crate::door::Out;
use crate::machine::Gossip;
use protocol::id::NodeId;
use protocol::time::{Span, Time};
use protocol::wire::gossip::Direct;
use std::collections::{BTreeMap, VecDeque};

/// Peers that are served at one time; more are not answered, and ask another donor.
const SESSIONS_MAX: usize = 16;
/// Entries that one cut of several origins aims at.
const CUT_ENTRIES: u64 = 1 << 20;
/// An index that has not cut for so long will not.
const CUT_PATIENCE: Span = Span::secs(10);
/// What may be sent at once after a pause.
const BURST: Span = Span::millis(100);

/// One frame to hand out, and about how many bytes it has.
pub(crate) type Parcel = (Direct, u64);

/// What one peer is owed.
#[derive(Debug, Default)]
struct Session {
    frames: VecDeque<Parcel>,
    /// Whose sets are to be cut when the frames have left.
    origins: VecDeque<(NodeId, u64)>,
    cutting: Option<Time>,
}

impl Session {
    fn is_done(&self) -> bool {
        self.frames.is_empty() && self.origins.is_empty() && self.cutting.is_none()
    }
}

/// All sessions.
#[derive(Debug, Default)]
pub(crate) struct Donations {
    sessions: BTreeMap<NodeId, Session>,
    /// Bytes that may be sent; negative while a large frame is being paid off.
    credit: i64,
    paid_until: Time,
    /// Whose turn was last.
    turn: Option<NodeId>,
}

impl Donations {
    fn open(&mut self, to: NodeId) -> Option<&mut Session> {
        if self.sessions.len() >= SESSIONS_MAX && !self.sessions.contains_key(&to) {
            return None;
        }
        Some(self.sessions.entry(to).or_default())
    }

    /// Queues frames; false when there is no room for another session.
    pub(crate) fn give(&mut self, to: NodeId, frames: Vec<Parcel>) -> bool {
        let session = self.open(to);
        let room = session.is_some();
        if let Some(session) = session {
            session.frames.extend(frames);
        }
        room
    }

    /// Queues sets of others, each with its count of entries, to be cut when their turn comes.
    pub(crate) fn owe(&mut self, to: NodeId, origins: Vec<(NodeId, u64)>) {
        if let Some(session) = self.open(to) {
            let known: Vec<NodeId> = session.origins.iter().map(|(node, _)| *node).collect();
            session.origins.extend(origins.into_iter().filter(|(node, _)| !known.contains(node)));
        }
    }

    /// The index has cut for `to`; false when nobody waits for it any more.
    pub(crate) fn cut_done(&mut self, to: &NodeId) -> bool {
        self.sessions.get_mut(to).is_some_and(|session| session.cutting.take().is_some())
    }

    /// The peer is gone.
    pub(crate) fn stop(&mut self, to: &NodeId) {
        self.sessions.remove(to);
    }

    /// When there is something to do next.
    pub(crate) fn due(&self, bytes_s: u64) -> Option<Time> {
        self.sessions.values().find(|session| !session.frames.is_empty())?;
        let missing = u64::try_from(self.credit.min(0).saturating_neg()).unwrap_or(0) + 1;
        // Rounded up: at that time the credit is there.
        Some(self.paid_until + worth(missing, bytes_s) + Span(1))
    }

    fn earn(&mut self, now: Time, bytes_s: u64) {
        let passed = u128::from(now.since(self.paid_until).0);
        let earned = u128::from(bytes_s) * passed / u128::from(Span::secs(1).0);
        let earned = u64::try_from(earned).unwrap_or(u64::MAX);
        let most = i64::try_from(bytes_s / (Span::secs(1).0 / BURST.0)).unwrap_or(i64::MAX).max(1);
        let credit = self.credit.saturating_add(i64::try_from(earned).unwrap_or(i64::MAX));
        self.credit = credit.min(most);
        // The time that made no whole byte counts later: else many short waits would earn nothing.
        self.paid_until =
            if credit > most { now } else { (self.paid_until + worth(earned, bytes_s)).min(now) };
    }

    /// Who is next to be sent a frame.
    fn next_turn(&self) -> Option<NodeId> {
        let waits =
            |(node, session): (&NodeId, &Session)| (!session.frames.is_empty()).then_some(*node);
        let after = self.turn.unwrap_or(NodeId([0; 32]));
        let later = self.sessions.range(after..).filter(|(node, _)| Some(**node) != self.turn);
        later.chain(self.sessions.range(..=after)).find_map(waits)
    }
}

/// How long it takes to earn so many bytes, rounded down.
fn worth(bytes: u64, bytes_s: u64) -> Span {
    let span = u128::from(bytes) * u128::from(Span::secs(1).0) / u128::from(bytes_s.max(1));
    Span(u64::try_from(span).unwrap_or(u64::MAX))
}

impl Gossip {
    /// Sends what the rate allows, and has the next sets cut.
    pub(crate) fn donate(&mut self, now: Time, out: &mut Vec<Out>) {
        if self.donations.sessions.is_empty() {
            return;
        }
        let gone: Vec<NodeId> = self.donations.sessions.keys().copied().collect();
        for node in gone {
            if !self.members.get(&node).is_some_and(crate::members::Member::is_ready) {
                self.donations.stop(&node);
            }
        }
        self.donations.earn(now, self.config.donate_bytes_s);
        while self.donations.credit > 0 {
            let Some(to) = self.donations.next_turn() else {
                break;
            };
            let session = self.donations.sessions.get_mut(&to);
            let Some((frame, bytes)) = session.and_then(|session| session.frames.pop_front())
            else {
                break;
            };
            self.donations.turn = Some(to);
            self.donations.credit -= i64::try_from(bytes).unwrap_or(i64::MAX);
            self.counters.donated_bytes += bytes;
            out.push(Out::Direct { to, frame });
        }
        self.cut_more(now, out);
        self.donations.sessions.retain(|_, session| !session.is_done());
    }

    fn cut_more(&mut self, now: Time, out: &mut Vec<Out>) {
        for (to, session) in &mut self.donations.sessions {
            if session.cutting.is_some_and(|since| now.since(since) < CUT_PATIENCE) {
                continue;
            }
            session.cutting = None;
            if !session.frames.is_empty() || session.origins.is_empty() {
                continue;
            }
            let (mut origins, mut entries) = (Vec::new(), 0u64);
            while let Some((node, count)) = session.origins.front().copied() {
                if !origins.is_empty() && entries.saturating_add(count) > CUT_ENTRIES {
                    break;
                }
                session.origins.pop_front();
                entries = entries.saturating_add(count);
                origins.push(node);
            }
            session.cutting = Some(now);
            out.push(Out::CutSnapshot { to: *to, origins });
        }
    }
}

#[cfg(test)]
mod tests;
