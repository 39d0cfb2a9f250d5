//! What stands in for libp2p and the transfer agent's connections: dialling, streams, the topic.

use crate::host::{Role, Way, contact, host_of};
use crate::mail::{Event, Mail};
use crate::net::{Arrival, Frame, Kind, Side, StreamId};
use crate::world::World;
use protocol::event::{Contact, MemberView};
use protocol::id::NodeId;
use protocol::time::Span;
use protocol::wire::gossip::{Direct, Published};
use protocol::wire::{decode, encode};
use std::sync::Arc;

/// A host that answers nothing is given up after so long.
pub(crate) const CONNECT_WITHIN: Span = Span::secs(3);
/// A peer that failed is not asked for so long.
pub(crate) const QUARANTINE: Span = Span::millis(1500);

impl World {
    /// A gossip machine wants a connection.
    pub(crate) fn dial(&mut self, h: usize, node: NodeId, contact: &Contact) {
        let Some(there) = host_of(contact).filter(|there| *there < self.hosts.len()) else {
            return;
        };
        if there == h {
            return;
        }
        if let Some(live) = self.live(h) {
            live.roster.insert(node, there);
        }
        let at = self.now + self.net.delay(h, there);
        self.plan_for(there, at, Event::Dialled { by: h });
    }

    /// An attempt of `a` to connect has arrived at `b`.
    pub(crate) fn connect(&mut self, a: usize, b: usize) {
        if !self.is_up(a) || !self.net.is_open(a, b) {
            return;
        }
        let lives = [a, b].map(|h| (h, self.hosts.get(h).map_or(0, |host| host.life)));
        let [one, other] = lives;
        if let Some(standing) = self.net.gossip(a, b) {
            let ends =
                self.net.stream(standing).map(|s| [s.host(Side::Opener), s.host(Side::Acceptor)]);
            if ends.is_some_and(|ends| ends.contains(&one) && ends.contains(&other)) {
                return;
            }
            // One end has died unnoticed.
            let idle = self.net.idle();
            self.break_stream(standing, idle);
        }
        let stream = self.net.open(Kind::Gossip, one, other);
        for (h, peer) in [(a, b), (b, a)] {
            let Some(id) = self.hosts.get(peer).map(|host| host.id) else { continue };
            let Some(live) = self.live(h) else { continue };
            live.roles.insert(stream, Role::Gossip(peer));
            let links = live.links.entry(id).or_default();
            *links += 1;
            // As with libp2p, the first connection to a peer and the end of the last one are told.
            if *links == 1 {
                self.mail(h, Mail::Gossip(Box::new(gossip::In::Connected(id))));
            }
        }
    }

    /// Ends a stream under both of its ends; they notice after up to `within`.
    pub(crate) fn break_stream(&mut self, id: StreamId, within: Span) {
        let Some(stream) = self.net.remove(id) else { return };
        for side in [Side::Opener, Side::Acceptor] {
            let ((h, life), (peer, _)) = (stream.host(side), stream.host(side.other()));
            if self.hosts.get(h).is_some_and(|host| host.life == life) {
                let at = self.now + self.fates.of("noticed").span(Span::ZERO, within);
                self.plan_for(h, at, Event::Closed { stream: id, peer });
            }
        }
    }

    /// This end closes a stream in mid-air; the other notices.
    pub(crate) fn reset_stream(&mut self, h: usize, id: StreamId) {
        if let Some(live) = self.live(h) {
            live.roles.remove(&id);
        }
        let Some(stream) = self.net.remove(id) else { return };
        let Some(side) = stream.side_of(h) else { return };
        let (peer, life) = stream.host(side.other());
        if self.hosts.get(peer).is_some_and(|host| host.life == life) {
            // A reset is lost in a cut; then the idle time tells.
            let delay = match self.net.is_cut(h, peer) {
                true => self.net.idle(),
                false => self.net.delay(h, peer),
            };
            self.plan_for(peer, self.now + delay, Event::Closed { stream: id, peer: h });
        }
    }

    pub(crate) fn stream_closed(&mut self, h: usize, stream: StreamId, peer: usize) {
        let Some(live) = self.live(h) else { return };
        let Some(role) = live.roles.remove(&stream) else { return };
        match role {
            Role::Gossip(_) => {
                let Some(id) = self.hosts.get(peer).map(|host| host.id) else { return };
                let Some(live) = self.live(h) else { return };
                let links = live.links.entry(id).or_default();
                *links = links.saturating_sub(1);
                if *links > 0 {
                    return;
                }
                self.mail(h, Mail::Gossip(Box::new(gossip::In::Disconnected(id))));
            }
            Role::Ask(request) => self.ask_lost(h, request),
            Role::Run(Some(run)) => self.abandon_run(h, run),
            Role::Fetch(op) => self.fetch_lost(h, op),
            Role::Lend(Some(read)) => self.end_lending(h, read),
            Role::Run(None) | Role::Lend(None) => {}
        }
    }

    /// A frame for a member, over the gossip stream to whichever process has that identity.
    pub(crate) fn send_direct(&mut self, h: usize, to: &NodeId, frame: Direct) {
        let frame = self.dress(h, frame);
        let Ok(bytes) = encode(&frame) else { return };
        if self.stormy && self.fates.of("frames").share(self.scenario.faults.frame_loss) {
            return;
        }
        let Some(peer) = self.peer_of(h, to) else { return };
        if self.is_deaf(peer) {
            return;
        }
        if let Some(stream) = self.net.gossip(h, peer) {
            self.send(h, stream, Frame::Data { head: bytes, body: Vec::new() });
        }
    }

    /// The host with this identity to which `h` has a gossip stream.
    fn peer_of(&self, h: usize, node: &NodeId) -> Option<usize> {
        let live = self.hosts.get(h)?.live.as_ref()?;
        if let Some(there) =
            live.roster.get(node).filter(|there| self.net.gossip(h, **there).is_some())
        {
            return Some(*there);
        }
        let is = |peer: &usize| {
            self.hosts.get(*peer).is_some_and(|host| host.id == *node)
                && self.net.gossip(h, *peer).is_some()
        };
        (0..self.hosts.len()).find(is)
    }

    /// Sends a frame over a stream that `h` has an end of.
    pub(crate) fn send(&mut self, h: usize, stream: StreamId, frame: Frame) {
        let Some(side) = self.net.stream(stream).and_then(|s| s.side_of(h)) else { return };
        let Some(at) = self.net.send(self.now, stream, side, frame) else { return };
        self.plan_arrival(stream, side.other(), at);
    }

    fn plan_arrival(&mut self, stream: StreamId, side: Side, at: protocol::time::Time) {
        let Some((to, life)) = self.net.stream(stream).map(|s| s.host(side)) else { return };
        if self.hosts.get(to).is_some_and(|host| host.life == life) {
            self.plan_for(to, at, Event::Frame { stream, side });
        }
    }

    pub(crate) fn frame_arrives(&mut self, h: usize, stream: StreamId, side: Side) {
        let frame = match self.net.arrive(self.now, stream, side) {
            Arrival::Frame(frame) => frame,
            Arrival::Later(at) => return self.plan_arrival(stream, side, at),
            Arrival::Nothing => return,
        };
        if let Frame::Data { head, body } = &frame {
            self.digest.bytes(head);
            self.digest.bytes(body);
        }
        self.let_sender_go_on(stream, side);
        let Some(role) = self.role(h, stream) else { return self.first_frame(h, stream, frame) };
        match (role, frame) {
            (Role::Gossip(peer), Frame::Data { head, .. }) => self.gossip_frame(h, peer, &head),
            (Role::Ask(request), Frame::Data { head, .. }) => {
                self.answer_arrives(h, request, &head);
            }
            (Role::Fetch(op), Frame::Data { head, body }) => self.block_arrives(h, op, &head, body),
            (Role::Fetch(op), Frame::Fin) => self.fetch_ends(h, op, stream),
            (Role::Ask(request), Frame::Fin) => {
                self.reset_stream(h, stream);
                self.ask_lost(h, request);
            }
            (Role::Gossip(_) | Role::Run(_) | Role::Lend(_), _) => {}
        }
    }

    /// A stream that another host opened says what it is for.
    fn first_frame(&mut self, h: usize, stream: StreamId, frame: Frame) {
        let Frame::Data { head, .. } = frame else { return };
        match self.net.stream(stream).map(|s| s.kind) {
            Some(Kind::Serve) => self.serve_arrives(h, stream, &head),
            Some(Kind::Blocks) => self.blocks_wanted(h, stream, &head),
            Some(Kind::Gossip) | None => {}
        }
    }

    fn gossip_frame(&mut self, h: usize, peer: usize, bytes: &[u8]) {
        let Ok(frame) = decode(bytes) else {
            return self.watch.found("wire", h, "a frame between honest nodes cannot be read");
        };
        let Some(from) = self.hosts.get(peer).map(|host| host.id) else { return };
        match wiring::hear(from, frame) {
            wiring::Input::Gossip(input) => self.mail(h, Mail::Gossip(Box::new(input))),
            wiring::Input::State(input) => self.mail(h, Mail::State(Box::new(input))),
            wiring::Input::Router(_) | wiring::Input::Store(_) => {}
        }
    }

    pub(crate) fn publish(&mut self, h: usize, message: &Published) {
        let Ok(bytes) = encode(message) else { return };
        let now = self.now;
        if self.live(h).is_none_or(|live| !live.seen.is_new(now, &bytes)) {
            return;
        }
        self.remember_beat(h, message);
        self.publish_bytes(h, bytes.into());
    }

    pub(crate) fn publish_bytes(&mut self, h: usize, bytes: Arc<[u8]>) {
        let faults = &self.scenario.faults;
        let (loss, twice, late) = match self.stormy {
            true => (faults.topic_loss, faults.topic_twice, faults.topic_late),
            false => (0.0, 0.0, 0.0),
        };
        for to in self.net.reach(h) {
            if !self.is_up(to) || self.is_deaf(to) || self.fates.of("topic loss").share(loss) {
                continue;
            }
            for _ in 0..=u32::from(self.fates.of("topic twice").share(twice)) {
                let mut delay = self.net.topic_delay();
                if self.fates.of("topic late").share(late) {
                    delay = delay + self.fates.of("topic late").span(Span::ZERO, Span::secs(2));
                }
                if let Some(counter) = self.net.bytes.get_mut(3) {
                    *counter += bytes.len() as u64;
                }
                let event = Event::Topic { from: h, bytes: bytes.clone() };
                self.plan_for(to, self.now + delay, event);
            }
        }
    }

    pub(crate) fn topic_arrives(&mut self, h: usize, from: usize, bytes: &[u8]) {
        self.digest.bytes(bytes);
        let Some(from) = self.hosts.get(from).map(|host| host.id) else { return };
        let now = self.now;
        if let Some(live) = self.live(h) {
            live.seen.is_new(now, bytes);
        }
        // Bytes that are no message are dropped at the rim.
        let Ok(frame) = decode(bytes) else { return };
        self.gossip_in(h, gossip::In::Published { from, frame });
    }

    /// Closes the connections to a node.
    pub(crate) fn hang_up(&mut self, h: usize, node: &NodeId) {
        let Some(peer) = self.peer_of(h, node) else { return };
        if let Some(stream) = self.net.gossip(h, peer) {
            self.break_stream(stream, Span::millis(5));
        }
    }

    /// A member's state, place or load: what the node itself does about it.
    pub(crate) fn member_changed(&mut self, h: usize, view: &MemberView) {
        if let Some(there) = host_of(&view.contact)
            && let Some(live) = self.live(h)
        {
            live.roster.insert(view.node, there);
        }
        self.watch_member(h, view);
        self.members_seen(h, view);
    }

    /// A node could not be reached: no placements there until a way to it works again.
    pub(crate) fn lost(&mut self, h: usize, node: NodeId) {
        let until = self.now + QUARANTINE;
        let Some(live) = self.live(h) else { return };
        let way = live.ways.entry(node).or_default();
        way.quarantined_until = until;
        way.told = None;
        let input = router::In::Path { node, rtt_ms: 0.0, bytes_s: 0.0, reachable: false };
        self.mail(h, Mail::Router(Box::new(input)));
    }

    /// Tells the router what the ways to peers measure, where that has changed.
    pub(crate) fn tell_ways(&mut self, h: usize) {
        let now = self.now;
        let Some(live) = self.live(h) else { return };
        let roster: Vec<(NodeId, usize)> = live.roster.iter().map(|(n, t)| (*n, *t)).collect();
        for (node, there) in roster {
            let Some(rtt) = self.net.rtt(h, there).filter(|_| there != h) else { continue };
            let Some(live) = self.live(h) else { return };
            let way = live.ways.entry(node).or_default();
            let reachable = way.quarantined_until <= now;
            let told = Some((rtt.0 / 1000, way.bytes_s as u64, reachable));
            if way.told == told {
                continue;
            }
            way.told = told;
            let (rtt_ms, bytes_s) = (rtt.as_ms() as f32, way.bytes_s);
            self.router_in(h, router::In::Path { node, rtt_ms, bytes_s, reachable });
        }
    }

    /// The way from `h` to a node, as far as it was measured.
    pub(crate) fn way(&mut self, h: usize, node: NodeId) -> Option<&mut Way> {
        Some(self.live(h)?.ways.entry(node).or_default())
    }

    /// Opens a stream to a node and sends its first frame. `None`: it cannot be reached; what comes
    /// of it is for the caller to say, after the time it takes to notice.
    pub(crate) fn open(
        &mut self,
        h: usize,
        kind: Kind,
        node: &NodeId,
        head: Vec<u8>,
    ) -> Option<StreamId> {
        let there = self.live(h)?.roster.get(node).copied()?;
        let is_there = self.hosts.get(there).is_some_and(|host| host.id == *node);
        if !self.is_up(there) || !self.net.is_open(h, there) || !is_there {
            return None;
        }
        let [from, to] = [h, there].map(|h| (h, self.hosts.get(h).map_or(0, |host| host.life)));
        let stream = self.net.open(kind, from, to);
        self.send(h, stream, Frame::Data { head, body: Vec::new() });
        Some(stream)
    }

    /// All hosts know all others from the start.
    pub(crate) fn introduce(&mut self, h: usize) {
        for other in 0..self.hosts.len() {
            let Some(host) = self.hosts.get(other).filter(|host| other != h && !host.is_twin)
            else {
                continue;
            };
            let known = gossip::In::Known {
                cert: crate::host::cert(&host.keypair),
                contact: contact(other),
            };
            self.mail(h, Mail::Gossip(Box::new(known)));
        }
    }
}
