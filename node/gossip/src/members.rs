//! Who belongs, and what each member last said of itself.

use crate::config::{CERTS_PER_FRAME, Keep, MEMBERS_MAX};
use crate::door::Out;
use crate::machine::Gossip;
use crate::peers::Line;
use crate::replica::Replica;
use protocol::event::{Contact, Heartbeat, MemberState, MemberView, Seq};
use protocol::id::{Incarnation, NodeId};
use protocol::time::{Span, Time};
use protocol::trust::{MemberCert, UnixTime};
use protocol::wire::gossip::Direct;
use std::collections::BTreeSet;

/// Longest host name, URL or label that a member may state, in bytes.
const TEXT_MAX: usize = 256;
/// Addresses, labels or engines of one member.
const LIST_MAX: usize = 64;

/// A wall clock that differs so much from what it should be has jumped, in seconds.
const JUMP_SECONDS: u64 = 3600;
/// How long it must stay there to be believed.
const JUMP_HELD: Span = Span::secs(600);

/// On what word a life of a member counts, weakest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Word {
    /// A donor's.
    Told,
    /// The node's own, over its stream: nothing that could be shown to others.
    Said,
    /// The node's own, signed.
    Signed,
}

/// What is known of another member.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) cert: MemberCert,
    pub(crate) contact: Contact,
    pub(crate) incarnation: Incarnation,
    /// On whose word that incarnation counts, and since when.
    pub(crate) word: Word,
    pub(crate) life_since: Time,
    pub(crate) state: MemberState,
    /// When it was last heard; for one never heard, when it became known.
    pub(crate) heard: Time,
    pub(crate) ever_heard: bool,
    pub(crate) suspect_since: Option<Time>,
    /// Others who have not heard it either; as many as count.
    pub(crate) accusers: BTreeSet<NodeId>,
    /// When it was last probed, and others last asked to.
    pub(crate) asked: Time,
    pub(crate) asked_others: Time,
    /// Its newest heartbeat in this life.
    pub(crate) beat: Option<Box<Heartbeat>>,
    /// Its entries were given up after a long silence.
    pub(crate) forgotten: bool,
    /// Two lives of its present counter were heard: its heartbeats are sent back to its id, so that
    /// one twin hears of the other.
    pub(crate) twins: bool,
    pub(crate) line: Line,
    pub(crate) replica: Replica,
}

impl Member {
    fn new(cert: MemberCert, contact: Contact, keep: Keep, now: Time) -> Self {
        Self {
            cert,
            contact,
            incarnation: Incarnation::default(),
            word: Word::Told,
            life_since: now,
            state: MemberState::Suspect,
            heard: now,
            ever_heard: false,
            suspect_since: Some(now),
            accusers: BTreeSet::new(),
            asked: Time::ZERO,
            asked_others: Time::ZERO,
            beat: None,
            forgotten: false,
            twins: false,
            line: Line::new(now),
            replica: Replica::new(keep),
        }
    }

    pub(crate) fn view(&self) -> MemberView {
        let beat = self.beat.as_deref();
        MemberView {
            node: self.cert.node,
            incarnation: self.incarnation,
            state: self.state,
            contact: self.contact.clone(),
            engines: beat.map(|b| b.engines.clone()).unwrap_or_default(),
            owed_bytes: beat.map_or(0, |b| b.owed_bytes),
            blocks: beat.map_or([0; 3], |b| b.blocks),
        }
    }

    pub(crate) fn is_live(&self) -> bool {
        matches!(self.state, MemberState::Alive | MemberState::Draining)
    }

    /// It said hello on a stream that still stands, in the life that is current here.
    pub(crate) fn is_ready(&self) -> bool {
        self.line.hello == Some(self.incarnation)
    }
}

/// Whether what a member states of itself is within limits.
pub(crate) fn contact_fits(contact: &Contact) -> bool {
    contact.cluster.len() <= LIST_MAX
        && contact.cluster.iter().all(|address| address.len() <= TEXT_MAX)
        && contact.http.len() <= TEXT_MAX
        && contact.site.len() <= TEXT_MAX
}

pub(crate) fn heartbeat_fits(beat: &Heartbeat) -> bool {
    contact_fits(&beat.contact)
        && beat.engines.len() <= LIST_MAX
        && beat.engines.iter().all(|e| e.kind.len() <= TEXT_MAX && e.model.len() <= TEXT_MAX)
}

impl Gossip {
    /// Takes a certificate; true when it is news (a member, or a renewal).
    pub(crate) fn learn_cert(
        &mut self,
        now: Time,
        cert: MemberCert,
        contact: Contact,
        out: &mut Vec<Out>,
    ) -> bool {
        let known = self.members.get(&cert.node).map(|member| &member.cert);
        if known.or((cert.node == self.node).then_some(&self.config.cert)).is_some_and(|known| {
            // Validity is the same for the same text, and the longer-lived one wins.
            *known == cert || known.expires >= cert.expires
        }) {
            return false;
        }
        let fits = cert.labels.len() <= LIST_MAX
            && cert.labels.iter().all(|label| label.len() <= TEXT_MAX)
            && contact_fits(&contact);
        if !fits || !cert.is_valid(&self.config.issuer, self.config.cluster, self.wall) {
            self.counters.certs_refused += 1;
            return false;
        }
        if cert.node == self.node {
            self.config.cert = cert;
            return true;
        }
        if let Some(member) = self.members.get_mut(&cert.node) {
            member.cert = cert.clone();
        } else {
            if !self.make_room(out) {
                self.counters.certs_refused += 1;
                return false;
            }
            let mut member = Member::new(cert.clone(), contact, self.config.keep_others, now);
            member.line.dial_at = now + self.dial_delay(&cert.node);
            out.push(Out::Member(Box::new(member.view())));
            self.members.insert(cert.node, member);
        }
        out.push(Out::Allow(cert));
        true
    }

    /// Makes room for one member: those long dead go first, longest silent first.
    fn make_room(&mut self, out: &mut Vec<Out>) -> bool {
        if self.members.len() < MEMBERS_MAX {
            return true;
        }
        let gone = |m: &Member| matches!(m.state, MemberState::Dead | MemberState::Left);
        let oldest = self.members.iter().filter(|(_, m)| gone(m)).min_by_key(|(_, m)| m.heard);
        let Some((node, _)) = oldest.map(|(node, m)| (*node, m.heard)) else {
            return false;
        };
        self.drop_member(&node, out);
        true
    }

    /// Removes a member altogether.
    pub(crate) fn drop_member(&mut self, node: &NodeId, out: &mut Vec<Out>) {
        let Some(mut member) = self.members.remove(node) else {
            return;
        };
        if member.line.up {
            out.push(Out::Close(*node));
        }
        if member.incarnation != Incarnation::default() && !member.forgotten {
            out.push(Out::Forget { node: *node, incarnation: member.incarnation });
        }
        member.state = MemberState::Dead;
        out.push(Out::Member(Box::new(member.view())));
        out.push(Out::Disallow(*node));
    }

    /// Tells all ready peers but `except` of certificates that are news.
    pub(crate) fn spread_certs(
        &self,
        certs: &[MemberCert],
        except: Option<NodeId>,
        out: &mut Vec<Out>,
    ) {
        for (node, _) in self.members.iter().filter(|(n, m)| m.is_ready() && Some(**n) != except) {
            for part in certs.chunks(CERTS_PER_FRAME) {
                out.push(Out::Direct { to: *node, frame: Direct::Members(part.to_vec()) });
            }
        }
    }

    /// All valid certificates known here, the own one first.
    pub(crate) fn all_certs(&self) -> Vec<MemberCert> {
        std::iter::once(&self.config.cert)
            .chain(self.members.values().map(|member| &member.cert))
            .filter(|cert| self.wall <= cert.expires)
            .cloned()
            .collect()
    }

    /// Takes the wall clock; certificates that ran out end membership. A clock that jumps is not
    /// believed before it has stood by its word for [`JUMP_HELD`]: a wrong clock of this node must
    /// not cost it all its members.
    pub(crate) fn wall_clock(&mut self, now: Time, told: UnixTime, out: &mut Vec<Out>) {
        let passed = now.since(self.wall_at).0 / Span::secs(1).0;
        let expected = UnixTime(self.wall.0.saturating_add(passed));
        let jumped = self.wall.0 > 0 && told.0.abs_diff(expected.0) > JUMP_SECONDS;
        let since = if jumped { *self.jumped.get_or_insert(now) } else { now };
        let held = jumped && now.since(since) < JUMP_HELD;
        if !held {
            self.jumped = None;
        }
        let wall = if held { expected } else { told };
        if !held || passed > 0 {
            (self.wall, self.wall_at) = (wall, now);
        }
        let expired: Vec<NodeId> = self
            .members
            .iter()
            .filter(|(_, member)| member.cert.expires < wall)
            .map(|(node, _)| *node)
            .collect();
        for node in expired {
            self.drop_member(&node, out);
        }
    }

    /// Settles which life of a node counts, on the word of the node itself. False when
    /// `incarnation` is over; a newer one ends the one before. A life that was only said gives way
    /// to whoever greets now, to a twin's signed word, and when it keeps silent to any signed word
    /// (at first that may just be late): there would be nothing to show to whoever lives in an
    /// earlier one, and a process that ended right after its greeting would lock its identity out.
    pub(crate) fn settle_life(
        &mut self,
        now: Time,
        node: &NodeId,
        incarnation: Incarnation,
        word: Word,
        out: &mut Vec<Out>,
    ) -> bool {
        let keep = self.config.keep_others;
        let Some(member) = self.members.get_mut(node) else {
            return false;
        };
        if incarnation == member.incarnation {
            member.word = member.word.max(word);
            return true;
        }
        let silent = now.since(member.life_since) >= self.config.suspect_after;
        let equal = incarnation.counter == member.incarnation.counter;
        member.twins = equal && member.word >= Word::Said;
        let gives_way = match member.word {
            Word::Told => true,
            Word::Said => equal || silent || word == Word::Said,
            Word::Signed => false,
        };
        if incarnation < member.incarnation && !gives_way {
            self.counters.old_lives += 1;
            return false;
        }
        begin_life(member, incarnation, keep, out);
        member.word = word;
        member.life_since = now;
        if member.state == MemberState::Left {
            member.state = MemberState::Suspect;
            member.suspect_since = Some(now);
            member.heard = now;
        }
        out.push(Out::Member(Box::new(member.view())));
        true
    }

    /// Handles a heartbeat, from the topic or passed on.
    pub(crate) fn heartbeat(&mut self, now: Time, beat: Box<Heartbeat>, out: &mut Vec<Out>) {
        let node = beat.node;
        let genuine = |beat: &Heartbeat| beat.signature.verify(&beat.node, &beat.signed_bytes());
        if node == self.node {
            if beat.incarnation != self.own.incarnation() && genuine(&beat) {
                self.echo(now, beat.incarnation, Some(beat.beat), out);
            }
            return;
        }
        let Some(member) = self.members.get(&node) else {
            self.counters.strangers += 1;
            return;
        };
        if !heartbeat_fits(&beat) {
            self.counters.improper += 1;
            return;
        }
        let same = beat.incarnation == member.incarnation;
        if same && member.beat.as_ref().is_some_and(|last| last.beat >= beat.beat) {
            self.counters.duplicates += 1;
            return;
        }
        if !genuine(&beat) {
            self.counters.forged += 1;
            return;
        }
        let settled = self.settle_life(now, &node, beat.incarnation, Word::Signed, out);
        let Some(member) = self.members.get_mut(&node) else {
            return;
        };
        if member.twins {
            out.push(Out::Direct { to: node, frame: Direct::Echo(beat.clone()) });
        }
        if !settled {
            // It lives beside the life that counts, or long after it: let it see the proof.
            self.tell_newer_life(&node, out);
            return;
        }
        if member.state == MemberState::Left {
            return;
        }
        let contradicted = member.replica.heartbeat(&beat);
        member.contact = beat.contact.clone();
        member.beat = Some(beat);
        if contradicted {
            self.counters.digest_mismatch += 1;
            self.blame_giver(now, &node);
        }
        self.heard(now, &node, true, out);
        self.note_gap(now, &node);
    }

    /// How far the index has learned of each origin: (node, life, last batch); this node first.
    pub fn applied(&self) -> impl Iterator<Item = (NodeId, Incarnation, Seq)> + '_ {
        let own = (self.node, self.own.incarnation(), self.own.head().0);
        std::iter::once(own)
            .chain(self.members.iter().map(|(node, m)| (*node, m.incarnation, m.replica.applied())))
    }
}

/// Starts another life of `member`; the old one's entries go.
pub(crate) fn begin_life(
    member: &mut Member,
    incarnation: Incarnation,
    keep: Keep,
    out: &mut Vec<Out>,
) {
    if member.incarnation != Incarnation::default() && !member.forgotten {
        out.push(Out::Forget { node: member.cert.node, incarnation: member.incarnation });
    }
    member.incarnation = incarnation;
    member.beat = None;
    member.forgotten = false;
    member.replica = Replica::new(keep);
}
