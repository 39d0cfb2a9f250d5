//! The world: virtual time, all nodes, what lies between them.
//!
//! Everything that happens is an [`Event`] in one queue. A node's parts handle their messages one at
//! a time and in the order in which they were sent, each after a small random delay: so the parts of
//! one node race with each other as actors on threads do, and the mailboxes stay the queues that they
//! really are.

use crate::check::Watch;
use crate::clerks::Clerks;
use crate::clients::Clients;
use crate::dice::{Dice, Fates};
use crate::digest::Digest;
use crate::host::{Host, Live, Role, WALL_START};
use crate::mail::{Event, Mail, Part, Timer};
use crate::net::Net;
use crate::plant::Planted;
use crate::queue::Queue;
use crate::scenario::Scenario;
use protocol::event::{BlockEvent, Heartbeat};
use protocol::hash::{RoutingKey, tenant_salt};
use protocol::machine::Machine;
use protocol::time::{Span, Time};
use std::collections::VecDeque;
use wiring::{Delivery, Effect, Input};

/// Events kept for the report of a failure.
const RING: usize = 60;
/// Between two reports of load.
pub(crate) const REPORT_EVERY: Span = Span::millis(200);
/// Between two looks at the wall clock.
pub(crate) const WALL_EVERY: Span = Span::secs(20);

/// An event of a host in one of its lives; the world's own events have neither.
pub(crate) struct Planned {
    pub(crate) host: Option<(usize, u64)>,
    pub(crate) event: Event,
}

/// The simulated world of one run.
pub(crate) struct World {
    pub(crate) scenario: Scenario,
    pub(crate) seed: u64,
    pub(crate) now: Time,
    pub(crate) queue: Queue<Planned>,
    pub(crate) hosts: Vec<Host>,
    pub(crate) net: Net,
    pub(crate) clients: Clients,
    pub(crate) clerks: Clerks,
    pub(crate) watch: Watch,
    pub(crate) planted: Planted,
    /// Delays inside nodes.
    pub(crate) local: Dice,
    /// Faults of the network, of nodes, of bytes.
    pub(crate) fates: Fates,
    /// Seeds and nonces of processes.
    pub(crate) boots: Dice,
    pub(crate) key: RoutingKey,
    pub(crate) digest: Digest,
    pub(crate) events: u64,
    /// False once the faults are over.
    pub(crate) stormy: bool,
    /// Blocks of honest nodes, for liars; and a heartbeat, for forgers.
    pub(crate) rumours: VecDeque<BlockEvent>,
    pub(crate) last_beat: Option<(usize, Box<Heartbeat>)>,
    ring: VecDeque<(Time, Option<usize>, String)>,
    /// Whether the last events are written down, which costs time.
    pub(crate) keep_ring: bool,
    deliveries: Vec<Delivery>,
}

impl World {
    /// An empty world.
    pub(crate) fn new(scenario: &Scenario, seed: u64, planted: Planted) -> Self {
        let salt = tenant_salt(&[9; 32], "local", None);
        let key = RoutingKey::derive(&crate::host::routing(), &salt);
        Self {
            seed,
            now: Time(1),
            queue: Queue::new(),
            hosts: Vec::new(),
            net: Net::new(scenario.network.clone(), seed),
            clients: Clients::new(scenario, seed),
            clerks: Clerks::new(scenario, seed),
            watch: Watch::new(scenario),
            planted,
            local: Dice::new(seed, "local delays"),
            fates: Fates::new(seed),
            boots: Dice::new(seed, "boots"),
            key,
            digest: Digest::new(seed),
            events: 0,
            stormy: true,
            rumours: VecDeque::new(),
            last_beat: None,
            ring: VecDeque::new(),
            keep_ring: false,
            deliveries: Vec::new(),
            scenario: scenario.clone(),
        }
    }

    /// Plans an event of the world itself.
    pub(crate) fn plan(&mut self, at: Time, event: Event) {
        self.queue.push(at.max(self.now), Planned { host: None, event });
    }

    /// Plans an event of a host's present life.
    pub(crate) fn plan_for(&mut self, h: usize, at: Time, event: Event) {
        let Some(host) = self.hosts.get(h) else { return };
        let host = Some((h, host.life));
        self.queue.push(at.max(self.now), Planned { host, event });
    }

    /// Plans a timer of a host's tasks.
    pub(crate) fn timer(&mut self, h: usize, after: Span, timer: Timer) {
        self.plan_for(h, self.now + after, Event::Timer(timer));
    }

    /// A process that runs.
    pub(crate) fn live(&mut self, h: usize) -> Option<&mut Live> {
        self.hosts.get_mut(h)?.live.as_mut()
    }

    pub(crate) fn is_up(&self, h: usize) -> bool {
        self.hosts.get(h).is_some_and(|host| host.live.is_some())
    }

    /// Sends a message to a part of the same node.
    pub(crate) fn mail(&mut self, h: usize, mail: Mail) {
        let busy = self.stormy && self.local.share(self.scenario.faults.busy_actors);
        let delay = if busy { self.local.below(5_000_000) } else { self.local.below(20_000) };
        self.mail_after(h, Span(delay), mail);
    }

    /// Sends a message that takes at least so long.
    pub(crate) fn mail_after(&mut self, h: usize, delay: Span, mail: Mail) {
        let now = self.now;
        let Some(live) = self.live(h) else { return };
        let last = live.mail_at.entry(mail.part()).or_default();
        let at = (now + delay).max(*last);
        *last = at;
        self.plan_for(h, at, Event::Mail(mail));
    }

    /// Lets everything happen up to a time; false when a checker has found something.
    pub(crate) fn run_until(&mut self, end: Time) -> bool {
        while self.watch.is_fine() {
            let Some((at, planned)) = self.queue.pop(end) else {
                self.now = end;
                return true;
            };
            self.now = self.now.max(at);
            self.step(planned);
        }
        false
    }

    fn step(&mut self, planned: Planned) {
        let Planned { host, event } = planned;
        if let Some((h, life)) = host {
            let Some(host) = self.hosts.get(h) else { return };
            if host.life != life || host.live.is_none() {
                return;
            }
            if host.asleep_until > self.now {
                // What comes to a machine that stands still waits, in order.
                let later = host.asleep_until;
                self.queue.push(later, Planned { host: Some((h, life)), event });
                return;
            }
        }
        self.events += 1;
        self.digest.word(self.now.0);
        self.digest.word(host.map_or(u64::MAX, |(h, _)| h as u64) ^ (event.number() << 16));
        if self.keep_ring {
            if self.ring.len() >= RING {
                self.ring.pop_front();
            }
            self.ring.push_back((self.now, host.map(|(h, _)| h), event.words()));
        }
        match host {
            Some((h, _)) => self.happen_to(h, event),
            None => self.happen(event),
        }
    }

    /// The last events, for a report.
    pub(crate) fn last_events(&self) -> Vec<String> {
        let line = |(at, host, words): &(Time, Option<usize>, String)| {
            let who = host.map_or_else(|| "world".into(), |h| format!("node {h}"));
            format!("{:>12.6} s  {who:<8} {words}", at.0 as f64 / 1e9)
        };
        self.ring.iter().map(line).collect()
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Agent(agent) => self.agent_acts(agent),
            Event::Reader(request) => self.reader_acts(request),
            Event::Clerk(clerk) => self.clerk_acts(clerk),
            Event::Trace => self.trace_asks(),
            Event::Weather => self.weather(),
            Event::Heal { from, to, cut } => self.net.heal(from, to, cut),
            Event::Idle { from, to, cut } => self.cut_outlasts(from, to, cut),
            Event::Start(host) => self.start(host),
            _ => {}
        }
    }

    fn happen_to(&mut self, h: usize, event: Event) {
        match event {
            Event::Mail(mail) => self.handle_mail(h, mail),
            Event::Tick(part) => self.tick(h, part),
            Event::Frame { stream, side } => self.frame_arrives(h, stream, side),
            Event::Closed { stream, peer } => self.stream_closed(h, stream, peer),
            Event::Topic { from, bytes } => self.topic_arrives(h, from, &bytes),
            Event::Dialled { by } => self.connect(by, h),
            Event::Asked(prompt) => self.serve(h, *prompt),
            Event::Left(request) => self.drop_ask(h, request),
            Event::Timer(timer) => self.timer_ends(h, timer),
            _ => {}
        }
    }

    fn handle_mail(&mut self, h: usize, mail: Mail) {
        match mail {
            Mail::Gossip(input) => self.gossip_in(h, *input),
            Mail::Router(input) => self.router_in(h, *input),
            Mail::Store(input) => self.store_in(h, *input),
            Mail::State(input) => self.state_in(h, *input),
            Mail::Record(op) => self.record_done(h, *op),
            Mail::Admission(input) => self.admission_in(h, input),
            Mail::Engine(engine, life, input) => self.engine_in(h, engine, life, *input),
            Mail::Copy(engine, life, copy) => self.copy(h, engine, life, *copy),
            Mail::Fetch(op) => self.fetch(h, *op),
            Mail::CancelFetch(op) => self.end_fetch(h, op),
            Mail::Disk(op) => self.disk_op(h, *op),
            Mail::DiskAnswer(event, bytes) => self.disk_answers(h, *event, bytes),
            Mail::Granted(grant, life) => self.lease_granted(h, *grant, life),
            Mail::Refused(lease, refusal) => self.lease_refused(h, lease, refusal),
            Mail::Admitted(request, answer) => self.admitted(h, request, answer),
            Mail::ReadGranted(read, blocks) => self.read_granted(h, read, blocks),
        }
    }

    fn timer_ends(&mut self, h: usize, timer: Timer) {
        match timer {
            Timer::Lease(run) => self.ask_for_slots(h, run),
            Timer::Fetch(op) => self.fetch_times_out(h, op),
            Timer::Lend(read) => self.end_lending(h, read),
            Timer::Unreached(request) => self.ask_lost(h, request),
            Timer::Unfetched(op) => self.fetch_lost(h, op),
            Timer::EngineUp(engine, life) => self.engine_up(h, engine, life),
            Timer::Revive => self.open_disk(h),
            Timer::Report => self.report(h),
            Timer::Wall => self.look_at_wall(h),
        }
    }

    /// Plans a machine's next deadline, unless an earlier look is planned.
    fn arm(&mut self, h: usize, part: Part, deadline: Option<Time>) {
        let Some(at) = deadline else { return };
        let now = self.now;
        let Some(live) = self.live(h) else { return };
        if live.ticks.get(&part).is_some_and(|armed| *armed <= at) {
            return;
        }
        live.ticks.insert(part, at);
        self.plan_for(h, at.max(now), Event::Tick(part));
    }

    fn tick(&mut self, h: usize, part: Part) {
        let now = self.now;
        let Some(live) = self.live(h) else { return };
        if live.ticks.get(&part).is_some_and(|armed| *armed <= now) {
            live.ticks.remove(&part);
        }
        let is_due = |deadline: Option<Time>| deadline.is_some_and(|at| at <= now);
        match part {
            Part::Gossip => {
                let mut out = Vec::new();
                if is_due(live.gossip.deadline()) {
                    live.gossip.tick(now, &mut out);
                }
                self.gossip_out(h, out);
            }
            Part::Router => {
                let mut out = Vec::new();
                if is_due(live.router.deadline()) {
                    live.router.tick(now, &mut out);
                }
                self.router_out(h, out);
            }
            Part::Store => {
                let mut out = Vec::new();
                if is_due(live.store.deadline()) {
                    live.store.tick(now, &mut out);
                }
                self.store_out(h, out);
            }
            Part::State => {
                let mut out = Vec::new();
                if is_due(live.state.deadline()) {
                    live.state.tick(now, &mut out);
                }
                self.state_out(h, out);
            }
            Part::Engine(engine) => self.engine_tick(h, engine),
            Part::Admission | Part::Fetcher | Part::Disk | Part::Tasks | Part::Records => {}
        }
    }

    pub(crate) fn arm_engine(&mut self, h: usize, engine: protocol::id::EngineId) {
        let deadline = self.live(h).and_then(|live| live.engines.get(&engine)?.machine.deadline());
        self.arm(h, Part::Engine(engine), deadline);
    }

    pub(crate) fn gossip_in(&mut self, h: usize, input: gossip::In) {
        let now = self.now;
        let Some(live) = self.live(h) else { return };
        let mut out = Vec::new();
        live.gossip.handle(now, input, &mut out);
        self.gossip_out(h, out);
    }

    fn gossip_out(&mut self, h: usize, out: Vec<gossip::Out>) {
        let before = self.hosts.get(h).map(|host| host.life);
        for effect in out {
            for effect in self.plant_gossip(h, effect) {
                self.watch_gossip(h, &effect);
                self.deliver(h, Effect::Gossip(effect));
            }
        }
        if self.hosts.get(h).map(|host| host.life) != before {
            return; // an effect stopped the process
        }
        let deadline = self.live(h).and_then(|live| live.gossip.deadline());
        self.arm(h, Part::Gossip, deadline);
    }

    pub(crate) fn router_in(&mut self, h: usize, input: router::In) {
        let now = self.now;
        let Some(live) = self.live(h) else { return };
        let mut out = Vec::new();
        live.router.handle(now, input, &mut out);
        self.router_out(h, out);
    }

    fn router_out(&mut self, h: usize, out: Vec<router::Out>) {
        for effect in out {
            self.deliver(h, Effect::Router(effect));
        }
        let deadline = self.live(h).and_then(|live| live.router.deadline());
        self.arm(h, Part::Router, deadline);
    }

    pub(crate) fn store_in(&mut self, h: usize, input: kvstore::In) {
        let now = self.now;
        let Some(input) = self.plant_store_in(h, input) else { return };
        self.watch_store_in(h, &input);
        let Some(live) = self.live(h) else { return };
        let mut out = Vec::new();
        live.store.handle(now, input, &mut out);
        self.store_out(h, out);
    }

    fn store_out(&mut self, h: usize, out: Vec<kvstore::Out>) {
        for effect in out {
            for effect in self.plant_store_out(h, effect) {
                self.watch_store_out(h, &effect);
                self.deliver(h, Effect::Store(effect));
            }
        }
        let deadline = self.live(h).and_then(|live| live.store.deadline());
        self.arm(h, Part::Store, deadline);
    }

    pub(crate) fn state_in(&mut self, h: usize, input: state::In) {
        let now = self.now;
        if let Some(answer) = self.plant_state_answer(&input) {
            return self.deliver(h, Effect::State(answer));
        }
        let input = self.plant_state_in(input);
        let Some(live) = self.live(h) else { return };
        let mut out = Vec::new();
        live.state.handle(now, input, &mut out);
        self.state_out(h, out);
    }

    fn state_out(&mut self, h: usize, out: Vec<state::Out>) {
        for effect in out {
            let effect = self.plant_state_out(effect);
            self.deliver(h, Effect::State(effect));
        }
        let deadline = self.live(h).and_then(|live| live.state.deadline());
        self.arm(h, Part::State, deadline);
    }

    /// Sends an effect where the wiring says that it goes.
    fn deliver(&mut self, h: usize, effect: Effect) {
        let mut deliveries = std::mem::take(&mut self.deliveries);
        wiring::deliver(effect, &mut deliveries);
        for delivery in deliveries.drain(..) {
            self.dispatch(h, delivery);
        }
        self.deliveries = deliveries;
    }

    fn dispatch(&mut self, h: usize, delivery: Delivery) {
        match delivery {
            Delivery::Local(Input::Gossip(input)) => self.mail(h, Mail::Gossip(Box::new(input))),
            Delivery::Local(Input::Router(input)) => self.mail(h, Mail::Router(Box::new(input))),
            Delivery::Local(Input::Store(input)) => self.mail(h, Mail::Store(Box::new(input))),
            Delivery::Local(Input::State(input)) => self.mail(h, Mail::State(Box::new(input))),
            Delivery::Record(op) => self.record_op(h, op),
            Delivery::Answered { call, answer } => self.record_answered(h, call, answer),
            Delivery::HandedOver => {}
            Delivery::Direct { to, frame } => self.send_direct(h, &to, frame),
            Delivery::Publish(message) => self.publish(h, &message),
            Delivery::Dial { node, contact } => self.dial(h, node, &contact),
            Delivery::Hangup(node) | Delivery::Disallow(node) => self.hang_up(h, &node),
            Delivery::Allow(_) => {}
            Delivery::Incompatible { node, reason } => self.watch.incompatible(h, node, reason),
            Delivery::Member(view) => self.member_changed(h, &view),
            Delivery::Twin { .. } => self.twin_noticed(h),
            Delivery::JumpPast(counter) => self.jump_past(h, counter),
            Delivery::Engine(engine, op) => self.engine_op(h, engine, op),
            Delivery::Fetch(op) => self.mail(h, Mail::Fetch(Box::new(op))),
            Delivery::CancelFetch(op) => self.mail(h, Mail::CancelFetch(op)),
            Delivery::Disk(op) => self.mail(h, Mail::Disk(Box::new(op))),
            Delivery::Granted(grant) => {
                let life = self.engine_life_of(h, &grant);
                self.mail(h, Mail::Granted(Box::new(grant), life));
            }
            Delivery::Refused(lease, refusal) => self.mail(h, Mail::Refused(lease, refusal)),
            Delivery::ReadGranted { read, blocks } => self.mail(h, Mail::ReadGranted(read, blocks)),
        }
    }

    /// Numbers of the hosts that run.
    pub(crate) fn up(&self) -> Vec<usize> {
        (0..self.hosts.len()).filter(|h| self.is_up(*h)).collect()
    }

    /// A node's wall clock.
    pub(crate) fn wall(&self, h: usize) -> u64 {
        let error = self.hosts.get(h).map_or(0, |host| host.clock_error);
        (WALL_START + self.now.0 / 1_000_000_000).saturating_add_signed(error)
    }

    /// What the stream means to the host.
    pub(crate) fn role(&mut self, h: usize, stream: u64) -> Option<Role> {
        self.live(h)?.roles.get(&stream).copied()
    }
}
