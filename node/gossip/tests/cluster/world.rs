//! The world: nodes, streams, topic, faults. Same seed, same history.

use crate::index::{Entry, Index};
use gossip::{Config, Gossip, In, Out};
use protocol::block::{ContentDigest, StorageId};
use protocol::event::{Contact, EventRun, Holder, MemberState};
use protocol::hash::PrefixHash;
use protocol::id::{ClusterId, Incarnation, NodeId};
use protocol::machine::Machine;
use protocol::sign::Keypair;
use protocol::time::{Span, Time};
use protocol::trust::{MemberCert, UnixTime, cluster_of};
use protocol::wire::gossip::Direct;
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
    /// Whose key it has: its own number, but for twins.
    pub(crate) key: usize,
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
    /// What the index costs on direct streams: bytes of batches, sets, buckets and requests.
    pub(crate) index_bytes: u64,
    /// … and the share of it that only repairs cost: sets, buckets, ranges asked for.
    pub(crate) heal_bytes: u64,
    /// Changes of state: when, at whom, of whom, to what.
    pub(crate) changes: Vec<(Time, usize, NodeId, MemberState)>,
    /// Entries of a living node's present life that were given up.
    pub(crate) false_removals: u64,
    /// Donors who invent an entry in whatever their index cuts.
    pub(crate) liars: BTreeSet<usize>,
    /// Changes the settings of nodes made from now on.
    pub(crate) tune: fn(&mut Config),
    queue: BTreeMap<(Time, u64), (usize, u64, What)>,
    serial: u64,
    /// Streams that stand, with the epoch that tells one from the next between the same two.
    pub(crate) streams: BTreeMap<(usize, usize), u64>,
    arrivals: BTreeMap<(usize, usize), Time>,
    pub(crate) blocked: BTreeSet<(usize, usize)>,
    /// (from, to): what goes this way is lost, and nobody notices.
    pub(crate) one_way: BTreeSet<(usize, usize)>,
    /// Who hears whose messages on the topic; emptied when paths change.
    pub(crate) reach: BTreeMap<usize, BTreeSet<usize>>,
    numbers: BTreeMap<NodeId, Vec<usize>>,
    pub(crate) rng: ChaCha8Rng,
    digest: ContentDigest,
}

pub(crate) fn pair(a: usize, b: usize) -> (usize, usize) {
    (a.min(b), a.max(b))
}

pub(crate) fn keypair(n: usize) -> Keypair {
    let mut seed = [n as u8 ^ 0x55; 32];
    seed[..8].copy_from_slice(&(n as u64 + 1).to_le_bytes());
    Keypair::from_seed(&seed)
}

/// Adds an entry that nobody has.
fn lie(runs: &mut Vec<EventRun>) {
    match runs.first_mut() {
        Some(EventRun::Stored { hashes, .. }) => hashes[0].0 ^= 1 << 100,
        _ => runs.push(EventRun::Stored {
            storage: StorageId(1),
            holder: Holder::Nvme,
            first: 64,
            hashes: vec![PrefixHash(1 << 100)],
        }),
    }
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
            index_bytes: 0,
            heal_bytes: 0,
            changes: Vec::new(),
            false_removals: 0,
            liars: BTreeSet::new(),
            tune: |_| {},
            queue: BTreeMap::new(),
            serial: 0,
            streams: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            blocked: BTreeSet::new(),
            one_way: BTreeSet::new(),
            reach: BTreeMap::new(),
            numbers: BTreeMap::new(),
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

    pub(crate) fn machine(&mut self, n: usize, key: usize, incarnation: Incarnation) -> Gossip {
        let mut config = Config::new(
            keypair(key),
            incarnation,
            self.cert(key),
            self.issuer.node(),
            contact(n),
            self.rng.next_u64(),
        );
        // Ten minutes are long to simulate.
        config.forget_after = Span::secs(60);
        (self.tune)(&mut config);
        Gossip::new(config, self.now)
    }

    /// A new node, knowing nobody.
    pub(crate) fn add(&mut self) -> usize {
        self.add_as(self.nodes.len())
    }

    /// A new node with the identity of node `key`.
    pub(crate) fn add_as(&mut self, key: usize) -> usize {
        let n = self.nodes.len();
        let incarnation = Incarnation { counter: 1, nonce: self.rng.next_u64() };
        let gossip = self.machine(n, key, incarnation);
        let id = keypair(key).node();
        self.numbers.entry(id).or_default().push(n);
        self.nodes.push(Node {
            id,
            key,
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
            let cert = self.cert(self.nodes[other].key);
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
        let deaf = self.one_way.contains(&(a, b)) || self.one_way.contains(&(b, a));
        let fine = self.nodes[a].up && !self.blocked.contains(&pair(a, b)) && !deaf;
        if fine && !self.streams.contains_key(&pair(a, b)) {
            self.serial += 1;
            self.streams.insert(pair(a, b), self.serial);
            self.reach.clear();
            self.input(a, In::Connected(self.nodes[b].id));
            self.input(b, In::Connected(self.nodes[a].id));
        }
    }

    fn broken(&mut self, n: usize, with: usize, epoch: u64) {
        if self.streams.get(&pair(n, with)) == Some(&epoch) {
            self.streams.remove(&pair(n, with));
            self.reach.clear();
            self.input(n, In::Disconnected(self.nodes[with].id));
            self.input(with, In::Disconnected(self.nodes[n].id));
        }
    }

    /// The process that `n` reaches under an id: with twins, the one it has a stream with.
    fn number(&self, n: usize, id: &NodeId) -> Option<usize> {
        let all = self.numbers.get(id)?;
        let near = all.iter().find(|to| self.streams.contains_key(&pair(n, **to)));
        near.or(all.first()).copied()
    }

    fn perform(&mut self, n: usize, out: Vec<Out>) {
        for effect in out {
            match effect {
                Out::Direct { to, frame } => self.send(n, &to, &frame),
                Out::Publish(frame) => self.publish(n, &encode(&frame).unwrap()),
                Out::Learn(batch) => {
                    let told = self.nodes[n].index.learn(&batch);
                    told.into_iter().for_each(|input| self.input(n, input));
                }
                Out::LearnSnapshot(snapshot) => {
                    let told = self.nodes[n].index.learn_snapshot(*snapshot);
                    told.into_iter().for_each(|input| self.input(n, input));
                }
                Out::LearnBuckets { buckets, later } => {
                    let told = self.nodes[n].index.learn_buckets(*buckets, &later);
                    told.into_iter().for_each(|input| self.input(n, input));
                }
                Out::CutSnapshot { to, origins } => {
                    assert!(!origins.is_empty() && !origins.contains(&self.nodes[n].id));
                    let mut snapshots = self.nodes[n].index.cut(&origins);
                    if self.liars.contains(&n) {
                        snapshots.iter_mut().for_each(|snapshot| lie(&mut snapshot.runs));
                    }
                    self.input(n, In::SnapshotCut { to, snapshots });
                }
                Out::CutBuckets { to, wanted, later } => {
                    let mut buckets = self.nodes[n].index.cut_buckets(&wanted, &later);
                    if let Some(buckets) = buckets.as_mut().filter(|_| self.liars.contains(&n)) {
                        lie(&mut buckets.runs);
                    }
                    self.input(n, In::BucketsCut { to, buckets: buckets.map(Box::new) });
                }
                Out::Forget { node, incarnation } => {
                    let lives = |m: &Node| m.id == node && m.up && m.incarnation == incarnation;
                    self.false_removals += u64::from(self.nodes.iter().any(lives));
                    self.nodes[n].index.forget(&node, incarnation);
                    self.nodes[n].said.push((self.now, Out::Forget { node, incarnation }));
                }
                Out::Member(view) => {
                    if self.nodes[n].states.insert(view.node, view.state) != Some(view.state) {
                        self.changes.push((self.now, n, view.node, view.state));
                    }
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

    fn account(&mut self, frame: &Direct, bytes: u64) {
        let heal = match frame {
            Direct::Batches(batches) => batches.len() > 1,
            Direct::Snapshots(_)
            | Direct::Buckets(_)
            | Direct::WantBuckets(_)
            | Direct::Want { .. }
            | Direct::WantSnapshot { .. } => true,
            _ => return,
        };
        self.index_bytes += bytes;
        self.heal_bytes += if heal { bytes } else { 0 };
    }

    fn send(&mut self, n: usize, to: &NodeId, frame: &Direct) {
        let Some(to) = self.number(n, to) else { return };
        let bytes = encode(frame).unwrap();
        self.account(frame, bytes.len() as u64);
        self.digest = ContentDigest::of(&[self.digest.0.as_slice(), &bytes].concat());
        let Some(epoch) = self.streams.get(&pair(n, to)).copied() else {
            return;
        };
        let loss = self.direct_loss;
        let cut = self.blocked.contains(&pair(n, to)) || self.one_way.contains(&(n, to));
        if cut || self.percent(loss) {
            return;
        }
        let delay = Span(200_000 + self.rng.next_u64() % 3_000_000);
        let at = (self.now + delay).max(self.arrivals.get(&(n, to)).copied().unwrap_or_default());
        self.arrivals.insert((n, to), at);
        self.push(at, to, What::Direct { from: n, epoch, bytes });
    }

    fn publish(&mut self, n: usize, bytes: &[u8]) {
        self.digest = ContentDigest::of(&[self.digest.0.as_slice(), bytes].concat());
        if !self.reach.contains_key(&n) {
            let reached = self.reached(n);
            self.reach.insert(n, reached);
        }
        for to in self.reach[&n].clone() {
            let loss = self.topic_loss;
            if to == n || self.percent(loss) {
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
    fn reached(&self, from: usize) -> BTreeSet<usize> {
        let mut reached = BTreeSet::from([from]);
        let mut edge = vec![from];
        while let Some(a) = edge.pop() {
            for b in 0..self.nodes.len() {
                let way = self.streams.contains_key(&pair(a, b))
                    && !self.blocked.contains(&pair(a, b))
                    && !self.one_way.contains(&(a, b))
                    && self.nodes[b].up;
                if way && reached.insert(b) {
                    edge.push(b);
                }
            }
        }
        reached
    }

    /// Nodes whose index of `origin` is not what `origin` holds.
    pub(crate) fn wrong_about(&self, origin: usize) -> Vec<usize> {
        let (truth, id) = (&self.nodes[origin].truth, &self.nodes[origin].id);
        let right = |n: &usize| {
            let known = self.nodes[*n].index.origins.get(id);
            known.map_or(truth.is_empty(), |known| known.entries == *truth)
        };
        (0..self.nodes.len()).filter(|n| self.nodes[*n].up && !right(n)).collect()
    }

    /// Origins of which the index of `n` is not what they hold.
    pub(crate) fn wrong_about_all(&self, n: usize) -> Vec<usize> {
        let right = |origin: &usize| {
            let node = &self.nodes[*origin];
            let known = self.nodes[n].index.origins.get(&node.id);
            known.map_or(node.truth.is_empty(), |known| known.entries == node.truth)
        };
        (0..self.nodes.len()).filter(|origin| !right(origin)).collect()
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
