//! The shell of a mock engine: its steps in virtual time, its bytes in the node's DRAM.

use crate::mail::{Mail, Timer};
use crate::world::World;
use mock::{In, Out, Pattern};
use protocol::block::ContentDigest;
use protocol::card::BlobDigest;
use protocol::event::EngineReport;
use protocol::id::EngineId;
use protocol::machine::Machine;
use protocol::op::{EngineEvent, EngineOp, Grant};
use protocol::time::Span;

/// How long a supervisor waits before it starts a dead engine again.
const RESTART_AFTER: Span = Span::millis(500);

impl World {
    /// The life of the engine whose slots a grant names.
    pub(crate) fn engine_life_of(&mut self, h: usize, grant: &Grant) -> u32 {
        let Some(live) = self.live(h) else { return 0 };
        let run = live.run_of_lease.get(&grant.lease).and_then(|run| live.runs.get(run));
        let engine = run.map(|run| run.engine());
        engine.and_then(|engine| live.engines.get(&engine)).map_or(0, |engine| engine.life)
    }

    /// An operation of the block manager goes into the engine's inbox.
    pub(crate) fn engine_op(&mut self, h: usize, engine: EngineId, op: EngineOp) {
        let Some(live) = self.live(h) else { return };
        let Some(life) = live.engines.get(&engine).map(|engine| engine.life) else { return };
        self.mail(h, Mail::Engine(engine, life, Box::new(In::Op(op))));
    }

    pub(crate) fn engine_in(&mut self, h: usize, engine: EngineId, life: u32, input: In) {
        let now = self.now;
        let Some(live) = self.live(h) else { return };
        let Some(found) = live.engines.get_mut(&engine) else { return };
        if found.life != life {
            // The process it was meant for has died, with what was in its inbox.
            if let In::Submit(job) = input {
                self.job_died(h, job.grant.lease);
            }
            return;
        }
        let mut out = Vec::new();
        found.machine.handle(now, input, &mut out);
        self.engine_out(h, engine, out);
    }

    pub(crate) fn engine_tick(&mut self, h: usize, engine: EngineId) {
        let now = self.now;
        let Some(live) = self.live(h) else { return };
        let Some(found) = live.engines.get_mut(&engine) else { return };
        let mut out = Vec::new();
        if found.machine.deadline().is_some_and(|at| at <= now) {
            found.machine.tick(now, &mut out);
        }
        self.engine_out(h, engine, out);
    }

    fn engine_out(&mut self, h: usize, engine: EngineId, out: Vec<Out>) {
        for effect in out {
            match effect {
                Out::Item(lease, item) => self.item_of_lease(h, lease, item),
                Out::Refused(lease, refusal) => self.job_refused(h, lease, refusal),
                Out::Event(event) => self.engine_event(h, engine, event),
                Out::Done(lease) => self.lease_done(h, lease),
                copy @ (Out::Write { .. } | Out::Read { .. }) => self.begin_copy(h, engine, copy),
            }
        }
        self.watch_engine(h, engine);
        self.arm_engine(h, engine);
    }

    fn engine_event(&mut self, h: usize, engine: EngineId, event: EngineEvent) {
        let Some(live) = self.live(h) else { return };
        let Some(found) = live.engines.get_mut(&engine) else { return };
        match &event {
            EngineEvent::Load(load) => {
                found.load = *load;
                return; // the block manager ignores it
            }
            EngineEvent::Died(_) => {
                found.alive = false;
                found.life += 1;
                let life = found.life;
                self.timer(h, RESTART_AFTER, Timer::EngineUp(engine, life));
            }
            _ => {}
        }
        self.mail(h, Mail::Store(Box::new(kvstore::In::Engine(engine, event))));
    }

    pub(crate) fn engine_up(&mut self, h: usize, engine: EngineId, life: u32) {
        let Some(live) = self.live(h) else { return };
        let Some(found) = live.engines.get_mut(&engine) else { return };
        if found.life == life {
            found.alive = true;
            found.load = found.machine.load();
            self.mail(h, Mail::Store(Box::new(kvstore::In::EngineUp(engine))));
        }
    }

    /// Kills an engine's process.
    pub(crate) fn kill_engine(&mut self, h: usize, engine: EngineId) {
        let Some(live) = self.live(h) else { return };
        if let Some(found) = live.engines.get(&engine).filter(|found| found.alive) {
            let life = found.life;
            self.engine_in(h, engine, life, In::Restart);
        }
    }

    fn begin_copy(&mut self, h: usize, engine: EngineId, copy: Out) {
        let Some(live) = self.live(h) else { return };
        let Some(life) = live.engines.get(&engine).map(|engine| engine.life) else { return };
        let late = if self.stormy { self.scenario.faults.late_writes_ms } else { 0 };
        let most = if self.fates.of("late").share(if late > 0 { 0.1 } else { 0.0 }) {
            Span::millis(late)
        } else {
            Span(200_000)
        };
        self.plant_late_copy(h, engine, life, &copy);
        let takes = self.fates.of("copies").span(Span(10_000), most.max(Span(10_000)));
        self.mail_after(h, takes, Mail::Copy(engine, life, Box::new(copy)));
    }

    /// Copies bytes between an engine and DRAM.
    pub(crate) fn copy(&mut self, h: usize, engine: EngineId, life: u32, copy: Out) {
        let trusting = self.plant_trusts_dram();
        let Some(live) = self.live(h) else { return };
        if live.engines.get(&engine).is_none_or(|found| found.life != life) {
            return; // it died with the process
        }
        let answer = match copy {
            Out::Write { op, pattern, to } => {
                let digest = live.dram.writer(to).ok().map(|bytes| {
                    pattern.fill(bytes);
                    ContentDigest::of(bytes)
                });
                if digest.is_some() {
                    self.watch_write(h, to);
                }
                In::Written { op, digest }
            }
            Out::Read { op, from, digest } => match live.dram.reader(from) {
                Ok(bytes) if !trusting && ContentDigest::of(bytes) != digest => In::Corrupt(op),
                Ok(bytes) => In::Read { op, pattern: Pattern::recognise(bytes) },
                Err(_) => In::Unreadable(op),
            },
            _ => return,
        };
        self.engine_in(h, engine, life, answer);
    }

    /// What the heartbeat says of the engines: their own load, and what waits for them here.
    pub(crate) fn engine_reports(&mut self, h: usize) -> Vec<EngineReport> {
        let Some(live) = self.live(h) else { return Vec::new() };
        let waiting = live.runs.values().filter(|run| run.is_waiting());
        let (requests, tokens) = waiting.fold((0u32, 0u32), |(requests, tokens), run| {
            (requests + 1, tokens.saturating_add(run.uncached()))
        });
        let report = |(id, engine): (&EngineId, &crate::host::EngineBox)| {
            let mut load = engine.load;
            load.waiting = load.waiting.saturating_add(requests);
            load.prefill_tokens = load.prefill_tokens.saturating_add(tokens);
            let spec = engine.machine.spec();
            load.total_blocks = spec.slots;
            EngineReport {
                engine: *id,
                kind: spec.kind.clone(),
                model: spec.model.clone(),
                routing: crate::host::routing_id(),
                card: BlobDigest([0; 32]),
                storage: spec.storage.id(),
                block_bytes: spec.storage.block_bytes,
                block_tokens: spec.storage.block_tokens,
                context: spec.context,
                load,
            }
        };
        live.engines.iter().filter(|(_, engine)| engine.alive).map(report).collect()
    }
}
