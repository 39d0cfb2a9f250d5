//! A small world: machines, disks, a network, time.

use protocol::event::{MemberState, MemberView};
use protocol::id::{Incarnation, NodeId};
use protocol::machine::Machine;
use protocol::state::{Kept, Record, RecordId, RecordKey, RecordKind, StateError};
use protocol::time::{Span, Time};
use protocol::wire::{decode, encode};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use state::{Answer, Config, Deleted, DiskOp, Found, In, Out, State};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const DAY: Span = Span::secs(24 * 3600);

pub(crate) fn node(n: usize) -> NodeId {
    NodeId([n as u8 + 1; 32])
}

pub(crate) fn id(place: u8, name: u8) -> RecordId {
    let key = RecordKey { place: [place; 16], name: [name; 16] };
    RecordId { key, kind: RecordKind::Response }
}

enum Event {
    Frame { from: usize, to: usize, bytes: Vec<u8> },
    Disk { host: usize, life: u64, op: DiskOp },
    Tick { host: usize, life: u64 },
}

pub(crate) struct Host {
    pub(crate) machine: Option<State>,
    pub(crate) disk: BTreeMap<RecordId, Record>,
    /// When each was written.
    written: BTreeMap<RecordId, Time>,
    pub(crate) disk_fails: bool,
    /// The disk does nothing for a while; what it was told.
    pub(crate) disk_stalls: bool,
    pub(crate) stalled: Vec<DiskOp>,
    pub(crate) handed_over: bool,
    pub(crate) life: u64,
    disk_free: Time,
}

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) hosts: Vec<Host>,
    /// Shares of frames, in percent.
    pub(crate) loss: u64,
    pub(crate) twice: u64,
    pub(crate) cut: BTreeSet<(usize, usize)>,
    pub(crate) answers: BTreeMap<u64, Answer>,
    pub(crate) tune: fn(&mut Config),
    queue: BTreeMap<(Time, u64), Event>,
    seq: u64,
    calls: u64,
    rng: ChaCha8Rng,
}

impl World {
    pub(crate) fn new(nodes: usize, seed: u64) -> Self {
        Self::tuned(nodes, seed, |_| {})
    }

    pub(crate) fn tuned(nodes: usize, seed: u64, tune: fn(&mut Config)) -> Self {
        let host = |_| Host {
            machine: None,
            disk: BTreeMap::new(),
            written: BTreeMap::new(),
            disk_fails: false,
            disk_stalls: false,
            stalled: Vec::new(),
            handed_over: false,
            life: 0,
            disk_free: Time::ZERO,
        };
        let mut world = Self {
            now: Time::ZERO + Span::secs(1),
            hosts: (0..nodes).map(host).collect(),
            loss: 0,
            twice: 0,
            cut: BTreeSet::new(),
            answers: BTreeMap::new(),
            tune,
            queue: BTreeMap::new(),
            seq: 0,
            calls: 0,
            rng: ChaCha8Rng::seed_from_u64(seed),
        };
        (0..nodes).for_each(|h| world.start(h));
        (0..nodes).for_each(|h| world.all_see(h, MemberState::Alive));
        world
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.rng.next_u64() % n
    }

    fn plan(&mut self, after: Span, event: Event) {
        self.seq += 1;
        self.queue.insert((self.now + after, self.seq), event);
    }

    pub(crate) fn start(&mut self, h: usize) {
        let nonce = self.rng.next_u64();
        let (now, tune) = (self.now, self.tune);
        let host = &mut self.hosts[h];
        host.life += 1;
        host.handed_over = false;
        host.stalled.clear();
        let mut config = Config::new(node(h), Incarnation { counter: host.life, nonce });
        tune(&mut config);
        let aged = |record: &Record| {
            let ttl = record.ttl.0.saturating_sub(now.since(host.written[&record.id]).0);
            Record { ttl: Span(ttl), ..record.clone() }
        };
        let records = host.disk.values().map(aged).collect();
        host.machine = Some(State::new(config, now, records));
        self.arm(h);
    }

    /// The process dies; what its disk had not confirmed is lost, or all of it.
    pub(crate) fn crash(&mut self, h: usize, with_disk: bool) {
        self.hosts[h].machine = None;
        if with_disk {
            self.hosts[h].disk.clear();
        }
    }

    /// Starts a node again; it and the others see each other alive.
    pub(crate) fn restart(&mut self, h: usize) {
        self.start(h);
        self.all_see(h, MemberState::Alive);
        for other in 0..self.hosts.len() {
            if self.hosts[other].machine.is_some() {
                self.sees(h, other, MemberState::Alive);
            }
        }
    }

    pub(crate) fn sees(&mut self, h: usize, other: usize, state: MemberState) {
        let counter = self.hosts[other].life;
        let view = MemberView {
            node: node(other),
            incarnation: Incarnation { counter, nonce: 0 },
            state,
            contact: Default::default(),
            engines: Vec::new(),
            owed_bytes: 0,
            blocks: [0; 3],
        };
        self.input(h, In::Member(Box::new(view)));
    }

    /// All others that run see `h` so.
    pub(crate) fn all_see(&mut self, h: usize, state: MemberState) {
        for other in 0..self.hosts.len() {
            if other != h {
                self.sees(other, h, state);
            }
        }
    }

    pub(crate) fn input(&mut self, h: usize, input: In) {
        let now = self.now;
        let Some(machine) = self.hosts[h].machine.as_mut() else { return };
        let mut out = Vec::new();
        machine.handle(now, input, &mut out);
        self.perform(h, out);
    }

    fn perform(&mut self, h: usize, out: Vec<Out>) {
        for effect in out {
            match effect {
                Out::Send { to, frame } => {
                    let Some(to) = (0..self.hosts.len()).find(|n| node(*n) == to) else { continue };
                    let bytes = encode(&frame).unwrap();
                    if self.cut.contains(&(h, to)) || self.below(100) < self.loss {
                        continue;
                    }
                    for _ in 0..=u32::from(self.below(100) < self.twice) {
                        let delay = Span(100_000 + self.below(2_000_000));
                        self.plan(delay, Event::Frame { from: h, to, bytes: bytes.clone() });
                    }
                }
                Out::Disk(op) if self.hosts[h].disk_stalls => self.hosts[h].stalled.push(op),
                Out::Disk(op) => {
                    let life = self.hosts[h].life;
                    let at = self.hosts[h].disk_free.max(self.now) + Span(self.below(3_000_000));
                    self.hosts[h].disk_free = at;
                    self.plan(at.since(self.now), Event::Disk { host: h, life, op });
                }
                Out::Answer { call, answer } => {
                    assert!(self.answers.insert(call, answer).is_none(), "one answer a call");
                }
                Out::HandedOver => self.hosts[h].handed_over = true,
            }
        }
        self.arm(h);
    }

    /// A disk that stalled goes on.
    pub(crate) fn disk_goes_on(&mut self, h: usize) {
        self.hosts[h].disk_stalls = false;
        let ops = std::mem::take(&mut self.hosts[h].stalled);
        self.perform(h, ops.into_iter().map(Out::Disk).collect());
    }

    fn arm(&mut self, h: usize) {
        let life = self.hosts[h].life;
        let Some(machine) = &self.hosts[h].machine else { return };
        if let Some(at) = machine.deadline() {
            self.plan(at.since(self.now), Event::Tick { host: h, life });
        }
    }

    /// Lets so much time pass.
    pub(crate) fn pass(&mut self, span: Span) {
        let end = self.now + span;
        while let Some(next) = self.queue.first_entry().filter(|next| next.key().0 <= end) {
            let ((at, _), event) = next.remove_entry();
            self.now = self.now.max(at);
            self.happen(event);
        }
        self.now = end;
    }

    fn happen(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Frame { from, to, bytes } => {
                let frame = decode(&bytes).unwrap();
                self.input(to, In::Frame { from: node(from), frame });
            }
            Event::Tick { host, life } => {
                if self.hosts[host].life != life {
                    return;
                }
                let Some(machine) = self.hosts[host].machine.as_mut() else { return };
                if machine.deadline().is_none_or(|at| at > now) {
                    return;
                }
                let mut out = Vec::new();
                machine.tick(now, &mut out);
                assert!(machine.deadline().is_none_or(|at| at > now), "it comes to rest");
                self.perform(host, out);
            }
            Event::Disk { host, life, op } => {
                let fails = self.hosts[host].disk_fails;
                let at = &mut self.hosts[host];
                if at.machine.is_none() || at.life != life {
                    return;
                }
                match op {
                    DiskOp::Write { write, record } => {
                        if !fails {
                            at.written.insert(record.id, now);
                            at.disk.insert(record.id, record);
                        }
                        self.input(host, In::Written { write, durable: !fails });
                    }
                    DiskOp::Erase { write, id } => {
                        if !fails {
                            at.disk.remove(&id);
                        }
                        self.input(host, In::Written { write, durable: !fails });
                    }
                }
            }
        }
    }

    pub(crate) fn call(&mut self, h: usize, make: impl FnOnce(u64) -> In) -> u64 {
        self.calls += 1;
        let call = self.calls;
        self.input(h, make(call));
        call
    }

    pub(crate) fn begin_put(&mut self, h: usize, id: RecordId, value: &[u8]) -> u64 {
        let value = value.to_vec();
        self.call(h, |call| In::Put { call, id, value, ttl: DAY })
    }

    pub(crate) fn stats(&self, h: usize) -> state::Stats {
        self.hosts[h].machine.as_ref().unwrap().stats()
    }

    pub(crate) fn counters(&self, h: usize) -> state::Counters {
        *self.hosts[h].machine.as_ref().unwrap().counters()
    }

    fn wait(&mut self, call: u64) -> Answer {
        for _ in 0..10_000 {
            if let Some(answer) = self.answers.remove(&call) {
                return answer;
            }
            self.pass(Span::millis(1));
        }
        panic!("call {call} has no answer");
    }

    pub(crate) fn put(&mut self, h: usize, id: RecordId, value: &[u8]) -> Result<Kept, StateError> {
        self.put_for(h, id, value, DAY)
    }

    pub(crate) fn put_for(
        &mut self,
        h: usize,
        id: RecordId,
        value: &[u8],
        ttl: Span,
    ) -> Result<Kept, StateError> {
        let value = value.to_vec();
        let call = self.call(h, |call| In::Put { call, id, value, ttl });
        match self.wait(call) {
            Answer::Put(result) => result,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn get(&mut self, h: usize, id: RecordId) -> Result<Found, StateError> {
        let call = self.call(h, |call| In::Get { call, id });
        match self.wait(call) {
            Answer::Got(result) => result,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn delete(&mut self, h: usize, id: RecordId) -> Result<Deleted, StateError> {
        let call = self.call(h, |call| In::Delete { call, id });
        match self.wait(call) {
            Answer::Deleted(result) => result,
            other => panic!("{other:?}"),
        }
    }

    /// Hosts whose disk has a record of this name, and whether it is a deletion.
    pub(crate) fn on_disk(&self, id: &RecordId) -> Vec<(usize, bool)> {
        let with = |(h, host): (usize, &Host)| host.disk.get(id).map(|held| (h, held.deleted));
        self.hosts.iter().enumerate().filter_map(with).collect()
    }

    /// The owners of a place among the hosts that run.
    pub(crate) fn owners(&self, id: &RecordId) -> Vec<usize> {
        let running = (0..self.hosts.len()).filter(|h| self.hosts[*h].machine.is_some());
        let weigh = |h: usize| (protocol::state::weight(&id.key.place, &node(h)), h);
        let mut ranked: Vec<(u64, usize)> = running.map(weigh).collect();
        ranked.sort_unstable_by(|a, b| b.cmp(a));
        ranked.into_iter().take(3).map(|(_, h)| h).collect()
    }
}

pub(crate) fn value(found: Result<Found, StateError>) -> Option<Vec<u8>> {
    found.unwrap().value
}
