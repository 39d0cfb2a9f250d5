//! libp2p at the rim: encrypted, authenticated, ordered direct streams between members, and the
//! site's lossy topic. It decides nothing: the gossip machine says what to send and whom to admit.
//!
//! Transport: TCP under the swarm key (pnet), Noise, Yamux; behind it a list of allowed PeerIds.
//! Direct frames go as request-response exchanges, one in flight per peer, so that they arrive in
//! order and a slow peer holds back its own queue only.

use crate::fault::Fault;
use crate::rim::codec::DirectCodec;
use futures::StreamExt;
use libp2p::gossipsub::{self, IdentTopic, MessageAuthenticity};
use libp2p::multiaddr::Protocol;
use libp2p::request_response::{self, OutboundRequestId, ProtocolSupport};
use libp2p::swarm::{NetworkBehaviour, SwarmEvent, dial_opts::DialOpts};
use libp2p::{Multiaddr, PeerId, Swarm, Transport, allow_block_list, connection_limits, identity};
use protocol::event::Contact;
use protocol::id::NodeId;
use protocol::sign::Keypair;
use protocol::wire::gossip::{Direct, Published};
use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

mod codec;

/// Orders to the rim that may wait; more are dropped and repaired by gossip.
pub(crate) const COMMANDS_MAX: usize = 4096;
/// Frames waiting for one peer; more are dropped and repaired by gossip.
const PEER_QUEUE_MAX: usize = 1024;
/// … and their bytes.
const PEER_QUEUE_BYTES: usize = 64 << 20;
/// Frames sent in one exchange…
const FRAMES_PER_EXCHANGE: usize = 64;
/// … and their bytes, unless one frame alone is larger. The reader refuses more than `FRAME_MAX`.
const BYTES_PER_EXCHANGE: usize = 4 << 20;
/// Between tries to reach a member that is not connected.
const REDIAL_EVERY: Duration = Duration::from_millis(400);
/// Between tries of the addresses that the user named.
const HINT_EVERY: Duration = Duration::from_secs(1);
/// Longest pause between tries.
const REDIAL_MAX: Duration = Duration::from_secs(5);

/// What the node tells the rim.
#[derive(Debug)]
pub(crate) enum Command {
    /// Send a frame.
    Direct(NodeId, Box<Direct>),
    /// Publish on the site's topic.
    Publish(Published),
    /// Let a member in.
    Allow(NodeId),
    /// Where a member may be reached; dialled until connected.
    Contact(NodeId, Contact),
    /// Dial an address of which only the user says that a member is there.
    Dial(SocketAddr),
    /// Close the connections to a member; it may come back.
    Hangup(NodeId),
    /// Let a node in no longer, and stop dialling it.
    Close(NodeId),
}

/// What the rim tells the node.
#[derive(Debug)]
pub(crate) enum Happened {
    /// First connection to a member is up.
    Connected(NodeId),
    /// Last connection to a member is gone.
    Disconnected(NodeId),
    /// A frame from a member.
    Direct(NodeId, Direct),
    /// A message on the topic, as a member passed it on.
    Published(NodeId, Published),
}

#[derive(NetworkBehaviour)]
struct Behaviour {
    allowed: allow_block_list::Behaviour<allow_block_list::AllowedPeers>,
    limits: connection_limits::Behaviour,
    topic: gossipsub::Behaviour,
    direct: request_response::Behaviour<DirectCodec>,
}

/// A member as the rim sees it.
#[derive(Default)]
struct Peer {
    addresses: Vec<Multiaddr>,
    connections: u32,
    /// Frames that wait, with their encoded lengths.
    queue: VecDeque<(Direct, usize)>,
    queued_bytes: usize,
    in_flight: Option<OutboundRequestId>,
    next_dial: Option<Instant>,
    pause: Duration,
}

impl Peer {
    fn clear_queue(&mut self) {
        self.queue.clear();
        self.queued_bytes = 0;
    }
}

/// The task's state.
struct Rim {
    swarm: Swarm<Behaviour>,
    topic: IdentTopic,
    peers: BTreeMap<NodeId, Peer>,
    /// Addresses the user named; dialled again and again while no member is connected.
    hints: Vec<SocketAddr>,
    next_hint: Instant,
    happened: mpsc::Sender<Happened>,
    me: NodeId,
}

/// PeerId of a node.
pub(crate) fn peer_id(node: &NodeId) -> Option<PeerId> {
    let key = identity::ed25519::PublicKey::try_from_bytes(&node.0).ok()?;
    Some(identity::PublicKey::from(key).to_peer_id())
}

/// Node behind a PeerId; `None` for other key types.
fn node_id(peer: &PeerId) -> Option<NodeId> {
    let key = identity::PublicKey::try_decode_protobuf(peer.as_ref().digest()).ok()?;
    key.try_into_ed25519().ok().map(|key| NodeId(key.to_bytes()))
}

fn multiaddr(addr: SocketAddr) -> Multiaddr {
    Multiaddr::from(addr.ip()).with(Protocol::Tcp(addr.port()))
}

/// Messages carry no author of libp2p's: what they say is signed by whom it concerns, and a topic
/// that knows authors never passes a message on to its author's id, so that two processes with one
/// identity would not hear of each other. Equal messages are one message.
fn behaviour() -> Result<Behaviour, Fault> {
    let content = |message: &gossipsub::Message| {
        gossipsub::MessageId::new(blake3::hash(&message.data).as_bytes())
    };
    let config = gossipsub::ConfigBuilder::default()
        .heartbeat_interval(Duration::from_millis(700))
        .max_transmit_size(256 << 10)
        .validation_mode(gossipsub::ValidationMode::Anonymous)
        .message_id_fn(content)
        .build()
        .map_err(internal)?;
    let authenticity = MessageAuthenticity::Anonymous;
    Ok(Behaviour {
        allowed: allow_block_list::Behaviour::default(),
        limits: connection_limits::Behaviour::new(
            connection_limits::ConnectionLimits::default()
                .with_max_pending_incoming(Some(64))
                .with_max_established_per_peer(Some(4)),
        ),
        topic: gossipsub::Behaviour::new(authenticity, config).map_err(internal)?,
        direct: request_response::Behaviour::new(
            [(codec::PROTOCOL, ProtocolSupport::Full)],
            request_response::Config::default()
                .with_request_timeout(Duration::from_secs(10))
                .with_max_concurrent_streams(1024),
        ),
    })
}

fn internal(error: impl std::fmt::Display) -> Fault {
    Fault::new(error, "this is a defect; please report it with the log")
}

fn build(seed: &Keypair, swarm_key: [u8; 32]) -> Result<Swarm<Behaviour>, Fault> {
    use libp2p::core::upgrade::Version;
    let key = identity::Keypair::ed25519_from_bytes(seed.seed()).map_err(internal)?;
    let psk = libp2p::pnet::PreSharedKey::new(swarm_key);
    let noise = libp2p::noise::Config::new(&key).map_err(internal)?;
    let tcp = libp2p::tcp::Config::default().nodelay(true);
    let transport = libp2p::tcp::tokio::Transport::new(tcp)
        .and_then(move |socket, _| libp2p::pnet::PnetConfig::new(psk).handshake(socket))
        .upgrade(Version::V1)
        .authenticate(noise)
        .multiplex(libp2p::yamux::Config::default())
        .timeout(Duration::from_secs(5))
        .boxed();
    let config = libp2p::swarm::Config::with_tokio_executor()
        .with_idle_connection_timeout(Duration::from_secs(24 * 3600));
    Ok(Swarm::new(transport, behaviour()?, key.public().to_peer_id(), config))
}

/// Binds the TCP side of the cluster listener and starts the rim's task. The task ends when
/// `commands` is closed.
pub(crate) fn start(
    keypair: &Keypair,
    swarm_key: [u8; 32],
    listen: SocketAddr,
    site: &str,
    commands: mpsc::Receiver<Command>,
    happened: mpsc::Sender<Happened>,
) -> Result<tokio::task::JoinHandle<()>, Fault> {
    let mut swarm = build(keypair, swarm_key)?;
    let topic = IdentTopic::new(format!("dynamo-node/1/{site}"));
    swarm.behaviour_mut().topic.subscribe(&topic).map_err(internal)?;
    swarm.listen_on(multiaddr(listen)).map_err(|error| {
        // The outer error's text leaves the cause out.
        let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        Fault::new(
            format!("cannot listen on {listen} (TCP): {cause}"),
            "is another dynamo-node running there? a node takes its port and the next one; choose another with --listen",
        )
    })?;
    let rim = Rim {
        swarm,
        topic,
        peers: BTreeMap::new(),
        hints: Vec::new(),
        next_hint: Instant::now(),
        happened,
        me: keypair.node(),
    };
    Ok(tokio::spawn(rim.run(commands)))
}

impl Rim {
    async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        let mut redial = tokio::time::interval(REDIAL_EVERY);
        redial.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                command = commands.recv() => match command {
                    Some(command) => self.obey(command),
                    None => return,
                },
                event = self.swarm.select_next_some() => {
                    for happened in self.observe(event) {
                        if self.happened.send(happened).await.is_err() {
                            return;
                        }
                    }
                }
                _ = redial.tick() => self.redial(),
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Direct(to, frame) => self.enqueue(to, *frame),
            Command::Publish(message) => {
                let Ok(bytes) = protocol::wire::encode(&message) else { return };
                // Without peers on the topic there is nobody to tell.
                if let Err(error) =
                    self.swarm.behaviour_mut().topic.publish(self.topic.hash(), bytes)
                {
                    tracing::trace!(%error, "not published");
                }
            }
            Command::Allow(node) => {
                let Some(peer) = peer_id(&node) else { return };
                self.swarm.behaviour_mut().allowed.allow_peer(peer);
                self.peers.entry(node).or_default();
            }
            Command::Contact(node, contact) if node != self.me => {
                let addresses =
                    contact.cluster.iter().filter_map(|a| a.parse().ok()).map(multiaddr).collect();
                self.peers.entry(node).or_default().addresses = addresses;
                self.redial();
            }
            Command::Contact(..) => {}
            Command::Dial(address) => self.hints.push(address),
            Command::Hangup(node) => {
                if let Some(peer) = peer_id(&node) {
                    let _ = self.swarm.disconnect_peer_id(peer);
                }
            }
            Command::Close(node) => {
                let Some(peer) = peer_id(&node) else { return };
                if let Some(known) = self.peers.get_mut(&node) {
                    known.addresses.clear();
                    known.clear_queue();
                }
                self.swarm.behaviour_mut().allowed.disallow_peer(peer);
            }
        }
    }

    fn enqueue(&mut self, to: NodeId, frame: Direct) {
        let Some(peer) = self.peers.get_mut(&to) else { return };
        if peer.connections == 0 {
            return;
        }
        let bytes = protocol::wire::encode(&frame).map_or(usize::MAX, |bytes| bytes.len());
        if bytes > protocol::wire::FRAME_MAX - 64 {
            tracing::error!(peer = %to.short(), bytes, "frame over the limit, not sent");
            return;
        }
        let waiting = peer.queued_bytes.saturating_add(bytes);
        if peer.queue.len() >= PEER_QUEUE_MAX || waiting > PEER_QUEUE_BYTES {
            tracing::debug!(peer = %to.short(), "queue full, frame dropped; gossip repairs it");
            return;
        }
        peer.queued_bytes = waiting;
        peer.queue.push_back((frame, bytes));
        self.pump(to);
    }

    /// Sends what waits for a peer, if nothing is in flight to it.
    fn pump(&mut self, to: NodeId) {
        let (Some(peer), Some(id)) = (self.peers.get_mut(&to), peer_id(&to)) else { return };
        if peer.in_flight.is_some() || peer.queue.is_empty() {
            return;
        }
        let mut room = BYTES_PER_EXCHANGE;
        let fits = |(_, bytes): &&(Direct, usize)| {
            let fits = *bytes <= room;
            room = room.saturating_sub(*bytes);
            fits
        };
        let waiting = peer.queue.iter().take(FRAMES_PER_EXCHANGE);
        let count = waiting.take_while(fits).count().max(1);
        let mut frames = Vec::with_capacity(count);
        for (frame, bytes) in peer.queue.drain(..count) {
            peer.queued_bytes = peer.queued_bytes.saturating_sub(bytes);
            frames.push(frame);
        }
        peer.in_flight = Some(self.swarm.behaviour_mut().direct.send_request(&id, frames));
    }

    fn follow_hints(&mut self, now: Instant) {
        let alone = self.peers.values().all(|peer| peer.connections == 0);
        if !alone || now < self.next_hint {
            return;
        }
        self.next_hint = now + HINT_EVERY;
        for address in &self.hints {
            if let Err(error) = self.swarm.dial(multiaddr(*address)) {
                tracing::debug!(%address, %error, "not dialled");
            }
        }
    }

    fn redial(&mut self) {
        let now = Instant::now();
        self.follow_hints(now);
        let mut due = Vec::new();
        for (node, peer) in &mut self.peers {
            let waits = peer.next_dial.is_some_and(|at| at > now);
            if peer.connections > 0 || peer.addresses.is_empty() || waits {
                continue;
            }
            peer.pause = (peer.pause * 2).clamp(REDIAL_EVERY, REDIAL_MAX);
            peer.next_dial = Some(now + peer.pause);
            due.push((*node, peer.addresses.clone()));
        }
        for (node, addresses) in due {
            let Some(id) = peer_id(&node) else { continue };
            let options = DialOpts::peer_id(id).addresses(addresses).build();
            if let Err(error) = self.swarm.dial(options) {
                tracing::trace!(peer = %node.short(), %error, "not dialled");
            }
        }
    }

    fn observe(&mut self, event: SwarmEvent<BehaviourEvent>) -> Vec<Happened> {
        match event {
            SwarmEvent::ConnectionEstablished { peer_id, num_established, .. } => {
                let Some(node) = node_id(&peer_id) else { return Vec::new() };
                let peer = self.peers.entry(node).or_default();
                peer.connections = num_established.get();
                peer.pause = Duration::ZERO;
                peer.next_dial = None;
                if num_established.get() == 1 {
                    vec![Happened::Connected(node)]
                } else {
                    Vec::new()
                }
            }
            SwarmEvent::ConnectionClosed { peer_id, num_established, .. } => {
                let Some(node) = node_id(&peer_id) else { return Vec::new() };
                let Some(peer) = self.peers.get_mut(&node) else { return Vec::new() };
                peer.connections = num_established;
                if num_established > 0 {
                    return Vec::new();
                }
                peer.clear_queue();
                peer.in_flight = None;
                vec![Happened::Disconnected(node)]
            }
            SwarmEvent::Behaviour(BehaviourEvent::Topic(gossipsub::Event::Message {
                propagation_source,
                message,
                ..
            })) => node_id(&propagation_source)
                .zip(protocol::wire::decode(&message.data).ok())
                .map(|(from, message)| Happened::Published(from, message))
                .into_iter()
                .collect(),
            SwarmEvent::Behaviour(BehaviourEvent::Direct(event)) => self.exchange(event),
            SwarmEvent::NewListenAddr { address, .. } => {
                tracing::debug!(%address, "cluster listener (TCP)");
                Vec::new()
            }
            SwarmEvent::ListenerError { error, .. } => {
                tracing::warn!(%error, "cluster listener (TCP)");
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn exchange(&mut self, event: request_response::Event<Vec<Direct>, ()>) -> Vec<Happened> {
        use request_response::{Event, Message};
        match event {
            Event::Message { peer, message: Message::Request { request, channel, .. }, .. } => {
                let _ = self.swarm.behaviour_mut().direct.send_response(channel, ());
                let Some(from) = node_id(&peer) else { return Vec::new() };
                request.into_iter().map(|frame| Happened::Direct(from, frame)).collect()
            }
            Event::Message { peer, message: Message::Response { request_id, .. }, .. } => {
                self.landed(&peer, request_id);
                Vec::new()
            }
            Event::OutboundFailure { peer, request_id, error, .. } => {
                tracing::debug!(%peer, %error, "frames not delivered; gossip repairs it");
                self.landed(&peer, request_id);
                Vec::new()
            }
            Event::InboundFailure { .. } | Event::ResponseSent { .. } => Vec::new(),
        }
    }

    fn landed(&mut self, peer: &PeerId, request: OutboundRequestId) {
        let Some(node) = node_id(peer) else { return };
        if let Some(peer) = self.peers.get_mut(&node)
            && peer.in_flight == Some(request)
        {
            peer.in_flight = None;
            self.pump(node);
        }
    }
}
