//! Faults of nodes and of the ways between them, drawn from the seed; and how nodes start and stop.

use crate::disk::Medium;
use crate::host::{Host, boot};
use crate::mail::{Event, Mail, Timer};
use crate::net::Side;
use crate::scenario::ScenarioError;
use crate::world::{REPORT_EVERY, WALL_EVERY, World};
use protocol::event::BlockEvent;
use protocol::id::{EngineId, Incarnation};
use protocol::time::{Span, Time};
use protocol::trust::UnixTime;
use protocol::wire::gossip::{Direct, Published};

/// How often faults are drawn.
const WEATHER_EVERY: Span = Span::millis(50);
/// Blocks of others that a liar knows of.
const RUMOURS: usize = 64;

impl World {
    /// Builds the hosts and starts them, one after the other within a second.
    ///
    /// # Errors
    /// The machines do not take the scenario.
    pub(crate) fn populate(&mut self) -> Result<(), ScenarioError> {
        let nodes = self.scenario.nodes as usize;
        for h in 0..nodes {
            let medium = Medium::new(&self.scenario, self.boots.any())?;
            self.hosts.push(Host::new(crate::host::keypair(h), medium));
        }
        let faults = self.scenario.faults.clone();
        for (h, host) in self.hosts.iter_mut().enumerate() {
            host.is_liar = h < faults.liars as usize;
            host.is_newer = h >= nodes.saturating_sub(faults.newer_nodes as usize);
        }
        // A scenario that no host can start with is an error, not a violation.
        let keypair = crate::host::keypair(0);
        boot(&self.scenario, &keypair, 0, Incarnation::default(), (self.now, 0), Vec::new())?;
        for h in 0..nodes {
            let at = self.now + Span(self.boots.below(1_000_000_000));
            self.plan(at, Event::Start(h));
        }
        self.plan(self.now + WEATHER_EVERY, Event::Weather);
        Ok(())
    }

    /// Starts a process on a host.
    pub(crate) fn start(&mut self, h: usize) {
        let (nonce, seed, now) = (self.boots.any(), self.boots.any(), self.now);
        let keeps = self.planted.keeps_incarnation();
        let Some(host) = self.hosts.get_mut(h) else { return };
        if host.live.is_some() || host.is_gone {
            return;
        }
        let before = host.incarnation;
        host.counter += 1;
        host.incarnation = Incarnation { counter: host.counter, nonce };
        if keeps && before.counter > 0 {
            (host.incarnation, host.counter) = (before, before.counter);
        }
        host.life += 1;
        host.asleep_until = Time::ZERO;
        let (id, incarnation, keypair) = (host.id, host.incarnation, host.keypair.clone());
        let records = self.load_records(h);
        let booted = boot(&self.scenario, &keypair, h, incarnation, (now, seed), records);
        let Ok(mut live) = booted else {
            return self.watch.found("wire", h, "the machines could not be built again");
        };
        live.dram.careless = self.planted.is_careless();
        if let Some(host) = self.hosts.get_mut(h) {
            host.live = Some(live);
        }
        self.watch.members.begins(now, (id, incarnation));
        let wall = gossip::In::WallClock(UnixTime(self.wall(h)));
        self.mail(h, Mail::Gossip(Box::new(wall)));
        self.introduce(h);
        self.open_disk(h);
        let phase = Span(self.boots.below(REPORT_EVERY.0));
        self.timer(h, phase, Timer::Report);
        self.timer(h, WALL_EVERY, Timer::Wall);
        let engines: Vec<EngineId> = (0..self.scenario.cluster.engines).map(EngineId).collect();
        engines.into_iter().for_each(|engine| self.arm_engine(h, engine));
        self.members_changed();
    }

    /// Ends a host's process at once. Its peers notice when their connections have been silent for
    /// too long, or sooner.
    pub(crate) fn stop(&mut self, h: usize) {
        let now = self.now;
        let Some(host) = self.hosts.get_mut(h) else { return };
        if host.live.take().is_none() {
            return;
        }
        host.down_since = now;
        let (life, gone) = (host.life, (host.id, host.incarnation));
        self.watch.members.ends(now, gone);
        self.watch.host_gone(h);
        for id in self.net.streams_of(h, Some(life)) {
            let Some(stream) = self.net.remove(id) else { continue };
            let Some(side) = stream.side_of(h).map(Side::other) else { continue };
            let (peer, peer_life) = stream.host(side);
            if self.hosts.get(peer).is_some_and(|host| host.life == peer_life) {
                let at = now + self.fates.of("noticed").span(Span::millis(1), self.net.idle());
                self.plan_for(peer, at, Event::Closed { stream: id, peer: h });
            }
        }
        self.clients_cut_off(h);
        self.clerks_cut_off(h);
        self.members_changed();
    }

    /// A host dies at once; with it perhaps what its disk had not made durable. It comes back.
    pub(crate) fn crash(&mut self, h: usize, power: bool) {
        if !self.is_up(h) {
            return;
        }
        self.stop(h);
        self.watch.figures.crashes += 1;
        let lost = self.fates.of("disk lost").share(self.scenario.faults.disk_lost);
        let seed = self.boots.any();
        let fresh = if lost { Medium::new(&self.scenario, seed).ok() } else { None };
        if fresh.is_some() {
            self.watch.disk_lost(h);
            self.lose_records(h);
        }
        let Some(host) = self.hosts.get_mut(h) else { return };
        match fresh {
            Some(fresh) => host.medium = fresh,
            None if power => host.medium.lose_power(),
            None => host.medium.close(),
        }
        let after = self.fates.of("restarts").span(Span::millis(50), Span::secs(6));
        self.plan(self.now + after, Event::Start(h));
    }

    /// Another live process has this identity: the process stops.
    pub(crate) fn twin_noticed(&mut self, h: usize) {
        self.watch.figures.twins_stopped += 1;
        self.stop(h);
        let after = self.fates.of("restarts").span(Span::secs(1), Span::secs(4));
        let Some(host) = self.hosts.get_mut(h) else { return };
        host.medium.close();
        if host.is_twin {
            host.is_gone = true;
            self.lose_records(h);
        } else {
            self.plan(self.now + after, Event::Start(h));
        }
    }

    /// The folder is an older copy: the process begins again beyond what others remember of it.
    pub(crate) fn jump_past(&mut self, h: usize, counter: u64) {
        self.watch.figures.reborn += 1;
        self.stop(h);
        let Some(host) = self.hosts.get_mut(h) else { return };
        host.counter = host.counter.max(counter);
        host.medium.close();
        self.plan(self.now + Span::millis(200), Event::Start(h));
    }

    /// Tells the gossip machine what the next heartbeat says; and the router what the ways measure.
    pub(crate) fn report(&mut self, h: usize) {
        let engines = self.engine_reports(h);
        let Some(live) = self.live(h) else { return };
        let mut blocks = [0; 3];
        for tier in live.store.stats().tiers {
            let place = match tier.tier {
                protocol::block::Tier::Engine(_) => blocks.first_mut(),
                protocol::block::Tier::Dram => blocks.get_mut(1),
                protocol::block::Tier::Nvme => blocks.get_mut(2),
            };
            place.into_iter().for_each(|count| *count += u64::from(tier.blocks));
        }
        let owed_bytes = live.owed_bytes;
        self.gossip_in(h, gossip::In::Report { engines, owed_bytes, blocks, draining: false });
        self.tell_ways(h);
        self.flush_disk(h);
        self.timer(h, REPORT_EVERY, Timer::Report);
    }

    pub(crate) fn look_at_wall(&mut self, h: usize) {
        let wall = UnixTime(self.wall(h));
        self.gossip_in(h, gossip::In::WallClock(wall));
        self.timer(h, WALL_EVERY, Timer::Wall);
    }

    /// Whether something that happens so often per minute happens now.
    fn strikes(&mut self, kind: &'static str, per_minute: f64) -> bool {
        self.fates.of(kind).share(per_minute * WEATHER_EVERY.as_ms() / 60_000.0)
    }

    /// A host for a fault of this kind, if it runs.
    fn victim(&mut self, kind: &'static str) -> Option<usize> {
        let h = self.fates.of(kind).index(self.scenario.nodes as usize);
        self.is_up(h).then_some(h)
    }

    fn two_victims(&mut self, kind: &'static str) -> Option<(usize, usize)> {
        let (a, b) = (self.victim(kind), self.victim(kind));
        a.zip(b).filter(|(a, b)| a != b)
    }

    /// Draws faults.
    pub(crate) fn weather(&mut self) {
        self.check_now();
        self.plant_in_weather();
        if !self.stormy {
            return;
        }
        self.plan(self.now + WEATHER_EVERY, Event::Weather);
        self.network_weather();
        self.node_weather();
    }

    fn network_weather(&mut self) {
        let f = self.scenario.faults.clone();
        if self.strikes("breaks", f.breaks_per_minute)
            && let Some((a, b)) = self.two_victims("breaks")
        {
            let all = self.net.streams_between(a, b);
            all.into_iter().for_each(|id| self.break_stream(id, Span::millis(50)));
        }
        if self.strikes("cuts", f.cuts_per_minute) {
            let sides: Vec<bool> =
                self.hosts.iter().map(|_| self.fates.of("cuts").share(0.5)).collect();
            let of = |side: bool| {
                let each = sides.iter().enumerate().filter(move |(_, s)| **s == side);
                each.map(|(h, _)| h).collect::<Vec<usize>>()
            };
            let (ones, others) = (of(true), of(false));
            for a in &ones {
                for b in &others {
                    self.cut_both("cuts", (*a, *b), f.cut_max_s);
                }
            }
        }
        if self.strikes("one way", f.one_way_cuts_per_minute)
            && let Some((a, b)) = self.two_victims("one way")
        {
            let lasts = self.cut_lasts("one way", f.cut_max_s);
            self.cut(a, b, lasts);
        }
        if self.strikes("pairs", f.pair_cuts_per_minute)
            && let Some((a, b)) = self.two_victims("pairs")
        {
            self.cut_both("pairs", (a, b), f.cut_max_s);
        }
        if self.strikes("forgeries", f.forgeries_per_minute) {
            self.forge();
        }
    }

    fn cut_lasts(&mut self, kind: &'static str, most: u64) -> Span {
        self.fates.of(kind).span(Span::millis(100), Span::secs(most.max(1)))
    }

    fn cut_both(&mut self, kind: &'static str, (a, b): (usize, usize), most: u64) {
        let lasts = self.cut_lasts(kind, most);
        self.cut(a, b, lasts);
        self.cut(b, a, lasts);
    }

    fn cut(&mut self, from: usize, to: usize, lasts: Span) {
        self.watch.figures.cuts += 1;
        let cut = self.net.cut(from, to);
        self.plan(self.now + lasts, Event::Heal { from, to, cut });
        self.plan(self.now + self.net.idle(), Event::Idle { from, to, cut });
    }

    /// A cut has lasted for the idle time of the connections under it.
    pub(crate) fn cut_outlasts(&mut self, from: usize, to: usize, cut: u64) {
        if self.net.cut_is(from, to, cut) {
            let all = self.net.streams_between(from, to);
            all.into_iter().for_each(|id| self.break_stream(id, Span::millis(500)));
        }
    }

    fn node_weather(&mut self) {
        let f = self.scenario.faults.clone();
        if self.strikes("freezes", f.freezes_per_minute)
            && let Some(h) = self.victim("freezes")
        {
            let most = if f.freeze_max_ms == 0 { 10_000 } else { f.freeze_max_ms };
            let until = self.now
                + self.fates.of("freezes").span(Span::millis(100), Span::millis(most.max(100)));
            self.watch.figures.freezes += 1;
            if let Some(host) = self.hosts.get_mut(h) {
                host.asleep_until = host.asleep_until.max(until);
            }
        }
        if self.strikes("clocks", f.clock_jumps_per_minute)
            && let Some(h) = self.victim("clocks")
        {
            let jump = i64::try_from(self.fates.of("clocks").below(7200)).unwrap_or(0) - 3600;
            if let Some(host) = self.hosts.get_mut(h) {
                host.clock_error += jump;
            }
        }
        if self.strikes("crashes", f.crashes_per_minute)
            && let Some(h) = self.victim("crashes")
        {
            let in_a_write =
                self.scenario.cluster.nvme_slots > 0 && self.fates.of("crashes").share(0.4);
            match self.hosts.get_mut(h) {
                Some(host) if in_a_write => host.medium.is_doomed = true,
                _ => {
                    let power = self.fates.of("crashes").share(0.6);
                    self.crash(h, power);
                }
            }
        }
        if self.strikes("engines", f.engine_deaths_per_minute)
            && let Some(h) = self.victim("engines")
        {
            self.watch.figures.engine_deaths += 1;
            let engine = self.fates.of("engines").below(u64::from(self.scenario.cluster.engines));
            self.kill_engine(h, EngineId(u16::try_from(engine).unwrap_or(0)));
        }
        let flips = f.disk_flips_per_minute * self.hosts.len() as f64;
        if self.strikes("flips", flips)
            && let Some(h) = self.victim("flips")
        {
            self.hosts.get(h).map(|host| host.medium.flip_bit());
        }
        let flips = f.dram_flips_per_minute * self.hosts.len() as f64;
        if self.strikes("dram flips", flips)
            && let Some(h) = self.victim("dram flips")
        {
            let mut any = || self.fates.of("dram flips").below(1 << 20) as usize;
            let (slot, bit) = (any(), any());
            self.live(h).map(|live| live.dram.flip(slot, bit));
        }
        self.identity_weather();
    }

    fn identity_weather(&mut self) {
        let f = self.scenario.faults.clone();
        if self.strikes("twins", f.twins_per_minute)
            && let Some(h) = self.victim("twins")
        {
            let seed = self.boots.any();
            let Some(host) = self.hosts.get(h).filter(|host| !host.is_twin) else { return };
            let Ok(medium) = Medium::new(&self.scenario, seed) else { return };
            let mut twin = Host::new(host.keypair.clone(), medium);
            twin.counter = host.counter.saturating_sub(1);
            twin.is_twin = true;
            self.watch.records.there_are_twins();
            self.hosts.push(twin);
            self.start(self.hosts.len() - 1);
        }
        if self.strikes("rollbacks", f.rollbacks_per_minute)
            && let Some(h) = self.victim("rollbacks")
        {
            self.stop(h);
            let back = self.fates.of("rollbacks").between(1, 3);
            if let Some(host) = self.hosts.get_mut(h) {
                host.medium.close();
                host.counter = host.counter.saturating_sub(back);
            }
            let after = self.fates.of("rollbacks").span(Span::millis(100), Span::secs(2));
            self.plan(self.now + after, Event::Start(h));
        }
    }

    /// The faults are over: everything that was broken works again, and stays so.
    pub(crate) fn heal_everything(&mut self) {
        self.stormy = false;
        self.net.heal_all();
        for h in 0..self.hosts.len() {
            let Some(host) = self.hosts.get_mut(h) else { continue };
            // Who stands still sleeps on: what waits for it would come behind what comes now.
            host.medium.is_doomed = false;
            if host.is_twin {
                host.is_gone = true;
                self.stop(h);
                self.lose_records(h);
            } else if host.live.is_none() {
                self.plan(self.now + Span::millis(1), Event::Start(h));
            }
        }
    }

    /// A member puts another's heartbeat on the topic, changed: whoever believes it drops the other
    /// node's entries.
    fn forge(&mut self) {
        let Some(h) = self.victim("rollbacks") else { return };
        let Some((_, beat)) = self.last_beat.clone().filter(|(of, _)| *of != h) else { return };
        let mut beat = beat;
        beat.beat += 1000;
        beat.draining = true;
        beat.incarnation.counter += self.fates.of("forgeries").below(2);
        let forged = Published::Heartbeat(beat);
        self.publish(h, &forged);
    }

    /// Keeps a genuine heartbeat for forgers.
    pub(crate) fn remember_beat(&mut self, h: usize, message: &Published) {
        if self.scenario.faults.forgeries_per_minute > 0.0
            && let Published::Heartbeat(beat) = message
            && self.hosts.get(h).is_some_and(|host| host.id == beat.node)
        {
            self.last_beat = Some((h, beat.clone()));
        }
    }

    /// A liar tells of blocks that it does not hold.
    pub(crate) fn remember_rumour(&mut self, h: usize, output: &kvstore::Out) {
        if self.scenario.faults.liars == 0 || !self.stormy {
            return;
        }
        let kvstore::Out::Event(event @ BlockEvent::Stored { .. }) = output else { return };
        if !self.hosts.get(h).is_some_and(|host| host.is_liar) {
            if self.rumours.len() >= RUMOURS {
                self.rumours.pop_front();
            }
            self.rumours.push_back(event.clone());
        } else if self.fates.of("liars").share(0.3)
            && let Some(BlockEvent::Stored { prefix, tokens, storage, .. }) =
                self.rumours.get(self.fates.of("liars").index(self.rumours.len())).cloned()
        {
            let holder = protocol::event::Holder::Dram;
            let lie = BlockEvent::Stored { prefix, tokens, storage, holder };
            self.mail(h, Mail::Gossip(Box::new(gossip::In::Event(lie))));
        }
    }

    /// A node of a newer release says so.
    pub(crate) fn dress(&self, h: usize, mut frame: Direct) -> Direct {
        if let Direct::Hello(hello) = &mut frame
            && self.hosts.get(h).is_some_and(|host| host.is_newer)
        {
            hello.version = protocol::wire::handshake::VERSION + 1;
        }
        frame
    }
}
