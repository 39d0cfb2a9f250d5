//! The world: nodes, streams, topic, faults. Same seed, same history.

use crate::index::{Entry, Index};
use gossip::{Config, Gossip, In, Out};
use protocol::block::ContentDigest;
use protocol::event::{Contact, MemberState};
use protocol::id::{ClusterId, Incarnation, NodeId};
use protocol::machine::Machine;
use protocol::sign::Keypair;
use protocol::time::{Span, Time};
use protocol::trust::{MemberCert, UnixTime, cluster_of};
use protocol::wire::{decode, encode};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug)]
pub(crate) enum What {
    Tick,
    Input(Box<In>),
    Direct { from: usize, epoch: u64, bytes: Vec<u8> },
    Published { from: usize, bytes: Vec<u8> },
    Dialled { by: usize },
    Broken { with: usize, epoch: u64 },
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) gossip: Gossip,
    pub(crate) index: Index,
    pub(crate) truth: BTreeSet<Entry>,
    pub(crate) up: bool,
    pub(crate) states: BTreeMap<NodeId, MemberState>,
    /// Everything but frames and batches that came out, with its time.
    pub(crate) said: Vec<(Time, Out)>,
    pub(crate) life: u64,
    pub(crate) incarnation: Incarnation,
    pub(crate) asleep_until: Time,
    pub(crate) tick_at: Option<Time>,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) nodes: Vec<Node>,
    pub(crate) issuer: Keypair,
    /// Share of topic messages lost, in percent.
    pub(crate) topic_loss: u64,
    /// Share of direct frames dropped by a full queue at the sender, in percent.
    pub(crate) direct_loss: u64,
    pub(crate) events: u64,
    queue: BTreeMap<(Time, u64), (usize, u64, What)>,
    serial: u64,
    /// Streams that stand, with the epoch that tells one from the next between the same two.
    pub(crate) streams: BTreeMap<(usize, usize), u64>,
    arrivals: BTreeMap<(usize, usize), Time>,
    pub(crate) blocked: BTreeSet<(usize, usize)>,
    pub(crate) rng: ChaCha8Rng,
    digest: ContentDigest,
}

pub(crate) fn pair(a: usize, b: usize) -> (usize, usize) {
    (a.min(b), a.max(b))
}

pub(crate) fn keypair(n: usize) -> Keypair {
    Keypair::from_seed(&[n as u8 + 1; 32])
}

pub(crate) fn contact(n: usize) -> Contact {
    Contact { cluster: vec![n.to_string()], http: String::new(), site: "here".into() }
}

impl World {
    /// An empty world.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            now: Time(1),
            nodes: Vec::new(),
            issuer: Keypair::from_seed(&[200; 32]),
            topic_loss: 0,
            direct_loss: 0,
            events: 0,
            queue: BTreeMap::new(),
            serial: 0,
            streams: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            blocked: BTreeSet::new(),
            rng: ChaCha8Rng::seed_from_u64(seed),
            digest: ContentDigest::of(b""),
        }
    }

    /// `n` nodes that know each other from the start.
    pub(crate) fn with_nodes(seed: u64, n: usize) -> Self {
        let mut world = Self::new(seed);
        for _ in 0..n {
            world.add();
        }
        for a in 0..n {
            world.introduce_all(a);
        }
        world
    }

    pub(crate) fn cluster(&self) -> ClusterId {
        cluster_of(&self.issuer.node())
    }

    pub(crate) fn cert(&self, n: usize) -> MemberCert {
        let node = keypair(n).node();
        MemberCert::issue(&self.issuer, self.cluster(), node, vec![], UnixTime(0))
    }

    pub(crate) fn machine(&mut self, n: usize, incarnation: Incarnation) -> Gossip {
        let mut config = Config::new(
            keypair(n),
            incarnation,
            self.cert(n),
            self.issuer.node(),
            contact(n),
            self.rng.next_u64(),
        );
        // Ten minutes are long to simulate.
        config.forget_after = Span::secs(60);
        Gossip::new(config, self.now)
    }

    /// A new node, knowing nobody.
    pub(crate) fn add(&mut self) -> usize {
        let n = self.nodes.len();
        let incarnation = Incarnation { counter: 1, nonce: self.rng.next_u64() };
        let gossip = self.machine(n, incarnation);
        self.nodes.push(Node {
            id: keypair(n).node(),
            gossip,
            index: Index::default(),
            truth: BTreeSet::new(),
            up: true,
            states: BTreeMap::new(),
            said: Vec::new(),
            life: 0,
            incarnation,
            asleep_until: Time::ZERO,
            tick_at: None,
        });
        self.arm(n);
        n
    }

    pub(crate) fn introduce_all(&mut self, n: usize) {
        for other in (0..self.nodes.len()).filter(|other| *other != n) {
            let cert = self.cert(other);
            self.input(n, In::Known { cert, contact: contact(other) });
        }
    }

    /// A newcomer admitted by `by`, which tells it all members.
    pub(crate) fn join(&mut self, by: usize) -> usize {
        let n = self.add();
        let cert = self.cert(n);
        self.input(by, In::Admitted(cert));
        self.introduce_all(n);
        n
    }

    pub(crate) fn percent(&mut self, share: u64) -> bool {
        self.rng.next_u64() % 100 < share
    }

    pub(crate) fn random(&mut self, n: u64) -> u64 {
        self.rng.next_u64() % n
    }

    pub(crate) fn push(&mut self, at: Time, n: usize, what: What) {
        self.serial += 1;
        let life = self.nodes[n].life;
        self.queue.insert((at, self.serial), (n, life, what));
    }

    /// Gives a node an input now.
    pub(crate) fn input(&mut self, n: usize, input: In) {
        self.push(self.now, n, What::Input(Box::new(input)));
    }

    pub(crate) fn arm(&mut self, n: usize) {
        let due = self.nodes[n].gossip.deadline();
        if let Some(at) = due
            && self.nodes[n].tick_at.is_none_or(|armed| at < armed)
        {
            self.nodes[n].tick_at = Some(at);
            self.push(at.max(self.now), n, What::Tick);
        }
    }

    pub(crate) fn run(&mut self, span: Span) {
        let end = self.now + span;
        while let Some((&(at, serial), _)) = self.queue.first_key_value() {
            if at > end {
                break;
            }
            let Some((n, life, what)) = self.queue.remove(&(at, serial)) else {
                break;
            };
            self.now = self.now.max(at);
            if !self.nodes[n].up || self.nodes[n].life != life {
                continue;
            }
            if self.nodes[n].asleep_until > self.now {
                let later = self.nodes[n].asleep_until;
                self.serial += 1;
                self.queue.insert((later, self.serial), (n, life, what));
                continue;
            }
            self.events += 1;
            self.happen(n, what);
        }
        self.now = end;
    }

    /// Runs until `done`, at most for `span`; how long it took.
    pub(crate) fn run_until(&mut self, span: Span, done: impl Fn(&Self) -> bool) -> Span {
        let start = self.now;
        while !done(self) {
            assert!(self.now.since(start) < span, "not within {} ms", span.as_ms());
            self.run(Span::millis(10));
        }
        self.now.since(start)
    }

    fn happen(&mut self, n: usize, what: What) {
        let mut out = Vec::new();
        let now = self.now;
        match what {
            What::Tick => {
                self.nodes[n].tick_at = None;
                self.nodes[n].gossip.tick(now, &mut out);
            }
            What::Input(input) => self.nodes[n].gossip.handle(now, *input, &mut out),
            What::Direct { from, epoch, bytes } => {
                if self.streams.get(&pair(n, from)) == Some(&epoch) {
                    let from = self.nodes[from].id;
                    let frame = decode(&bytes).unwrap();
                    self.nodes[n].gossip.handle(now, In::Direct { from, frame }, &mut out);
                }
            }
            What::Published { from, bytes } => {
                let from = self.nodes[from].id;
                let frame = decode(&bytes).unwrap();
                self.nodes[n].gossip.handle(now, In::Published { from, frame }, &mut out);
            }
            What::Dialled { by } => self.connect(by, n),
            What::Broken { with, epoch } => self.broken(n, with, epoch),
        }
        self.perform(n, out);
        self.arm(n);
    }

    fn connect(&mut self, a: usize, b: usize) {
        let fine = self.nodes[a].up && !self.blocked.contains(&pair(a, b));
        if fine && !self.streams.contains_key(&pair(a, b)) {
            self.serial += 1;
            self.streams.insert(pair(a, b), self.serial);
            self.input(a, In::Connected(self.nodes[b].id));
            self.input(b, In::Connected(self.nodes[a].id));
        }
    }

    fn broken(&mut self, n: usize, with: usize, epoch: u64) {
        if self.streams.get(&pair(n, with)) == Some(&epoch) {
            self.streams.remove(&pair(n, with));
            self.input(n, In::Disconnected(self.nodes[with].id));
            self.input(with, In::Disconnected(self.nodes[n].id));
        }
    }

    fn number(&self, id: &NodeId) -> Option<usize> {
        self.nodes.iter().position(|node| node.id == *id)
    }

    fn perform(&mut self, n: usize, out: Vec<Out>) {
        for effect in out {
            match effect {
                Out::Direct { to, frame } => self.send(n, &to, &encode(&frame).unwrap()),
                Out::Publish(frame) => self.publish(n, &encode(&frame).unwrap()),
                Out::Learn(batch) => self.nodes[n].index.learn(&batch),
                Out::LearnSnapshot(snapshot) => self.nodes[n].index.learn_snapshot(*snapshot),
                Out::CutSnapshot { to, origin } => {
                    let snapshots = self.nodes[n].index.cut(origin);
                    self.input(n, In::SnapshotCut { to, snapshots });
                }
                Out::Forget { node, incarnation } => {
                    self.nodes[n].index.forget(&node, incarnation);
                    self.nodes[n].said.push((self.now, Out::Forget { node, incarnation }));
                }
                Out::Member(view) => {
                    self.nodes[n].states.insert(view.node, view.state);
                }
                Out::Dial { node, contact } => {
                    let there = contact.cluster.first().and_then(|a| a.parse::<usize>().ok());
                    if let Some(there) = there.filter(|there| *there < self.nodes.len()) {
                        let at = self.now + Span::millis(2);
                        self.push(at, there, What::Dialled { by: n });
                    }
                    self.nodes[n].said.push((self.now, Out::Dial { node, contact }));
                }
                Out::JumpPast(counter) => {
                    let incarnation =
                        Incarnation { counter: counter + 1, nonce: self.rng.next_u64() };
                    self.nodes[n].incarnation = incarnation;
                    self.nodes[n].said.push((self.now, Out::JumpPast(counter)));
                    self.input(n, In::Reborn(incarnation));
                }
                other => self.nodes[n].said.push((self.now, other)),
            }
        }
    }

    fn send(&mut self, n: usize, to: &NodeId, bytes: &[u8]) {
        let Some(to) = self.number(to) else { return };
        self.digest = ContentDigest::of(&[self.digest.0.as_slice(), bytes].concat());
        let Some(epoch) = self.streams.get(&pair(n, to)).copied() else {
            return;
        };
        let loss = self.direct_loss;
        if self.blocked.contains(&pair(n, to)) || self.percent(loss) {
            return;
        }
        let delay = Span(200_000 + self.rng.next_u64() % 3_000_000);
        let at = (self.now + delay).max(self.arrivals.get(&(n, to)).copied().unwrap_or_default());
        self.arrivals.insert((n, to), at);
        self.push(at, to, What::Direct { from: n, epoch, bytes: bytes.to_vec() });
    }

    fn publish(&mut self, n: usize, bytes: &[u8]) {
        self.digest = ContentDigest::of(&[self.digest.0.as_slice(), bytes].concat());
        for to in 0..self.nodes.len() {
            let loss = self.topic_loss;
            if to == n || !self.can_reach(n, to) || self.percent(loss) {
                continue;
            }
            for _ in 0..=u64::from(self.percent(3)) {
                let delay = Span(500_000 + self.rng.next_u64() % 60_000_000);
                let what = What::Published { from: n, bytes: bytes.to_vec() };
                self.push(self.now + delay, to, what);
            }
        }
    }

    /// Over streams, from neighbour to neighbour.
    fn can_reach(&self, from: usize, to: usize) -> bool {
        let mut reached = BTreeSet::from([from]);
        loop {
            let more: Vec<usize> = self
                .streams
                .keys()
                .filter(|(a, b)| {
                    !self.blocked.contains(&(*a, *b)) && self.nodes[*a].up && self.nodes[*b].up
                })
                .flat_map(|(a, b)| [(*a, *b), (*b, *a)])
                .filter(|(a, b)| reached.contains(a) && !reached.contains(b))
                .map(|(_, b)| b)
                .collect();
            if more.is_empty() {
                return reached.contains(&to);
            }
            reached.extend(more);
        }
    }

    /// Nodes whose index of `origin` is not what `origin` holds.
    pub(crate) fn wrong_about(&self, origin: usize) -> Vec<usize> {
        let truth = &self.nodes[origin].truth;
        let id = self.nodes[origin].id;
        (0..self.nodes.len())
            .filter(|n| self.nodes[*n].up && self.nodes[*n].index.entries(&id) != *truth)
            .collect()
    }

    /// Everybody up knows exactly what everybody up holds.
    pub(crate) fn converged(&self) -> bool {
        (0..self.nodes.len()).all(|n| !self.nodes[n].up || self.wrong_about(n).is_empty())
    }

    /// `who` sees `whom` in `state`.
    pub(crate) fn sees(&self, who: usize, whom: usize, state: MemberState) -> bool {
        self.nodes[who].states.get(&self.nodes[whom].id) == Some(&state)
    }

    /// Everybody up sees everybody up alive.
    pub(crate) fn all_alive(&self) -> bool {
        let up: Vec<usize> = (0..self.nodes.len()).filter(|n| self.nodes[*n].up).collect();
        up.iter().all(|a| up.iter().all(|b| a == b || self.sees(*a, *b, MemberState::Alive)))
    }

    pub(crate) fn digest(&self) -> [u8; 32] {
        self.digest.0
    }
}
