//! Streams to peers: hello, dialling, goodbye.

use crate::config::CERTS_PER_FRAME;
use crate::door::{Out, Refused};
use crate::machine::Gossip;
use crate::members::{Member, Word, contact_fits};
use protocol::event::{Contact, MemberState};
use protocol::hash::HASH_VERSION;
use protocol::id::{Incarnation, NodeId};
use protocol::time::{Span, Time};
use protocol::trust::MemberCert;
use protocol::wire::gossip::{Direct, Published};
use protocol::wire::handshake::{Hello, VERSION, VERSION_MIN};

/// First wait before a lost peer is dialled again; doubles up to [`DIAL_MAX`].
const DIAL_FIRST: Span = Span::millis(250);
/// Longest wait between two dials: a partition heals within seconds.
const DIAL_MAX: Span = Span::secs(5);
/// The same for a member that was forgotten: it costs two dials a minute.
const DIAL_MAX_FORGOTTEN: Span = Span::secs(30);
/// The node with the larger id waits so much longer: else both dial at once.
const DIAL_YIELD: Span = Span::secs(1);
/// Dials begun in one sweep.
const DIALS_PER_SWEEP: usize = 32;
/// A peer that says hello again is answered at most so often.
const HELLO_EVERY: Span = Span::secs(1);
/// A hello without answer is repeated after so long.
const HELLO_AGAIN: Span = Span::secs(2);

/// The direct stream to one member, or the attempts at it.
#[derive(Debug)]
pub(crate) struct Line {
    /// libp2p has a stream.
    pub(crate) up: bool,
    /// The life in which the peer said hello on it.
    pub(crate) hello: Option<Incarnation>,
    /// The stream was lost and not found again.
    pub(crate) cut: bool,
    said_hello: Option<Time>,
    pub(crate) dial_at: Time,
    dials: u32,
}

impl Line {
    pub(crate) fn new(now: Time) -> Self {
        Self { up: false, hello: None, cut: false, said_hello: None, dial_at: now, dials: 0 }
    }

    /// There is a new reason to hope: no need to wait out the back-off.
    pub(crate) fn dial_soon(&mut self, now: Time) {
        self.dial_at = self.dial_at.min(now + DIAL_FIRST);
        self.dials = 0;
    }
}

impl Gossip {
    /// How long to leave the first dial to the other side.
    pub(crate) fn dial_delay(&self, node: &NodeId) -> Span {
        if self.node < *node { Span::ZERO } else { DIAL_YIELD }
    }

    fn hello(&self) -> Direct {
        Direct::Hello(Box::new(Hello {
            version: VERSION,
            version_min: VERSION_MIN,
            hash_version: HASH_VERSION,
            cluster: self.config.cluster,
            node: self.node,
            incarnation: self.own.incarnation(),
            cert: self.config.cert.clone(),
            contact: self.config.contact.clone(),
        }))
    }

    /// Says hello on a stream that stands. Not a member yet: the peer's hello will bring its
    /// certificate.
    fn say_hello(&mut self, now: Time, to: NodeId, out: &mut Vec<Out>) {
        if let Some(member) = self.members.get_mut(&to) {
            member.line.said_hello = Some(now);
        }
        out.push(Out::Direct { to, frame: self.hello() });
    }

    pub(crate) fn connected(&mut self, now: Time, node: NodeId, out: &mut Vec<Out>) {
        if let Some(member) = self.members.get_mut(&node) {
            member.line.up = true;
            member.line.hello = None;
        }
        self.say_hello(now, node, out);
    }

    pub(crate) fn disconnected(&mut self, now: Time, node: NodeId, out: &mut Vec<Out>) {
        let delay = self.dial_delay(&node);
        let Some(member) = self.members.get_mut(&node) else {
            return;
        };
        if member.line.up {
            member.line = Line { cut: true, ..Line::new(now + DIAL_FIRST + delay) };
        }
        self.donor_lost(&node);
        self.donations.stop(&node);
        self.judge(now, &node, out);
    }

    pub(crate) fn greeted(&mut self, now: Time, from: NodeId, hello: Hello, out: &mut Vec<Out>) {
        if let Err(reason) = self.accept(now, from, &hello, out) {
            self.counters.refused += 1;
            out.push(Out::Refused { node: from, reason });
            out.push(Out::Close(from));
            return;
        }
        if !self.settle_life(now, &from, hello.incarnation, Word::Said, out) {
            self.tell_newer_life(&from, out);
            return;
        }
        let Some(member) = self.members.get_mut(&from) else {
            return;
        };
        let again = member.line.hello.is_some();
        let answered = member.line.said_hello.is_some_and(|at| now.since(at) < HELLO_EVERY);
        member.line.up = true;
        member.line.cut = false;
        member.line.hello = Some(hello.incarnation);
        member.line.dials = 0;
        member.contact = hello.contact;
        let unknown_before = member.line.said_hello.is_none();
        if unknown_before || (again && !answered) {
            self.say_hello(now, from, out);
        }
        for part in self.all_certs().chunks(CERTS_PER_FRAME) {
            out.push(Out::Direct { to: from, frame: Direct::Members(part.to_vec()) });
        }
        self.heard(now, &from, true, out);
        self.ask_donor(now, from, out);
    }

    fn accept(
        &mut self,
        now: Time,
        from: NodeId,
        hello: &Hello,
        out: &mut Vec<Out>,
    ) -> Result<(), Refused> {
        if hello.node != from || hello.cert.node != from {
            return Err(Refused::NotItself);
        }
        let Direct::Hello(ours) = self.hello() else {
            return Err(Refused::NotItself);
        };
        ours.agree(hello)?;
        let valid = hello.cert.is_valid(&self.config.issuer, self.config.cluster, self.wall);
        if !valid || !contact_fits(&hello.contact) {
            return Err(Refused::NotMember);
        }
        if self.learn_cert(now, hello.cert.clone(), hello.contact.clone(), out) {
            self.spread_certs(std::slice::from_ref(&hello.cert), Some(from), out);
        }
        if self.members.contains_key(&from) { Ok(()) } else { Err(Refused::Full) }
    }

    /// The peer lives in a life that was over before: give it the proof, so that it jumps past.
    pub(crate) fn tell_newer_life(&self, node: &NodeId, out: &mut Vec<Out>) {
        let Some(member) = self.members.get(node) else {
            return;
        };
        if let Some(batch) = member.replica.ring().last() {
            let frame = Direct::Batches(vec![batch.clone()]);
            out.push(Out::Direct { to: *node, frame });
        } else if let Some(beat) = &member.beat {
            // Not on the topic: that passes nothing on twice, and this was on it before.
            out.push(Out::Direct { to: *node, frame: Direct::Echo(beat.clone()) });
        }
    }

    pub(crate) fn goodbye(&mut self, from: NodeId, incarnation: Incarnation, out: &mut Vec<Out>) {
        let Some(member) = self.members.get_mut(&from) else {
            return;
        };
        if member.incarnation == incarnation && member.state != MemberState::Left {
            member.state = MemberState::Left;
            out.push(Out::Member(Box::new(member.view())));
        }
    }

    /// Takes members from the join answer or the disk, or a member admitted here.
    pub(crate) fn admit(
        &mut self,
        now: Time,
        cert: MemberCert,
        contact: Contact,
        publish: bool,
        out: &mut Vec<Out>,
    ) {
        if !self.learn_cert(now, cert.clone(), contact, out) {
            return;
        }
        self.spread_certs(std::slice::from_ref(&cert), None, out);
        if publish {
            out.push(Out::Publish(Published::Admitted(Box::new(cert))));
        }
    }

    /// Dials whom this node should be connected to and is not.
    pub(crate) fn dial(&mut self, now: Time, out: &mut Vec<Out>) {
        let jitter = Span(self.random(DIAL_FIRST.0));
        let due = self.members.iter_mut().filter(|(_, member)| {
            let line = &member.line;
            !line.up
                && line.dial_at <= now
                && member.state != MemberState::Left
                && !member.contact.cluster.is_empty()
        });
        for (node, member) in due.take(DIALS_PER_SWEEP) {
            let longest = if member.forgotten { DIAL_MAX_FORGOTTEN } else { DIAL_MAX };
            let wait = DIAL_FIRST * 2u64.saturating_pow(member.line.dials.min(16));
            member.line.dial_at = now + wait.min(longest) + jitter;
            member.line.dials += 1;
            out.push(Out::Dial { node: *node, contact: member.contact.clone() });
        }
    }

    /// Says hello again where no answer came (either word may have been dropped by a full queue), or
    /// where it came from another life than the one that counts.
    pub(crate) fn repeat_hellos(&mut self, now: Time, out: &mut Vec<Out>) {
        let unanswered = |member: &Member| {
            let said = member.line.said_hello.is_some_and(|at| now.since(at) < HELLO_AGAIN);
            member.line.up && !member.is_ready() && !said
        };
        let due = self.members.iter().filter(|(_, member)| unanswered(member));
        let due: Vec<NodeId> = due.map(|(node, _)| *node).collect();
        for node in due {
            self.say_hello(now, node, out);
        }
    }

    /// A new life of this node: every peer must hear of it on the stream it has.
    pub(crate) fn greet_all(&mut self, now: Time, out: &mut Vec<Out>) {
        let up: Vec<NodeId> =
            self.members.iter().filter(|(_, m)| m.line.up).map(|(node, _)| *node).collect();
        for node in up {
            self.say_hello(now, node, out);
        }
    }

    pub(crate) fn leave(&mut self, out: &mut Vec<Out>) {
        let frame = Direct::Goodbye { incarnation: self.own.incarnation() };
        for (node, _) in self.members.iter().filter(|(_, member)| member.line.up) {
            out.push(Out::Direct { to: *node, frame: frame.clone() });
        }
    }
}
