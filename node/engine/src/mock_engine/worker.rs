//! The mock engine's thread: gives the machine what came in and the time, and does what it wants.

use super::{Scripts, bytes};
use crate::api::Job;
use crate::inbox::{Command, Inbox};
use crate::outlet::Outlet;
use crate::worker::{Pulse, message};
use kernels::Pool;
use mock::{In, Out};
use protocol::machine::Machine;
use protocol::op::{EngineEvent, LeaseId};
use protocol::prompt::{Refusal, StreamItem};
use protocol::time::Time;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::Sender;

/// How often channels are looked at while there are any: readers and their leaving send no message.
const POLL: Duration = Duration::from_millis(5);

/// A sequence's way out, and its hold on its slots.
struct Stream {
    outlet: Outlet,
    /// The machine knows that the reader is slow.
    blocked: bool,
    /// The machine knows that the reader left.
    gone: bool,
    /// It counts among the jobs that wait.
    waits: bool,
    _guard: Box<dyn Send>,
}

/// Everything the thread owns.
pub(super) struct Worker {
    machine: mock::Engine,
    block_bytes: usize,
    dram: Arc<Pool>,
    inbox: Arc<Inbox>,
    pulse: Arc<Pulse>,
    events: Sender<EngineEvent>,
    scripts: Option<Arc<Scripts>>,
    epoch: Instant,
    streams: BTreeMap<LeaseId, Stream>,
    /// Ways out of ended sequences that still hold items.
    drains: Vec<Outlet>,
    /// Bad bytes that were told in the log.
    wrong_told: u64,
}

impl Worker {
    pub(super) fn new(
        machine: mock::Engine,
        dram: Arc<Pool>,
        inbox: Arc<Inbox>,
        pulse: Arc<Pulse>,
        events: Sender<EngineEvent>,
        scripts: Option<Arc<Scripts>>,
        epoch: Instant,
    ) -> Self {
        Self {
            block_bytes: usize::try_from(machine.spec().storage.block_bytes).unwrap_or(usize::MAX),
            machine,
            dram,
            inbox,
            pulse,
            events,
            scripts,
            epoch,
            streams: BTreeMap::new(),
            drains: Vec::new(),
            wrong_told: 0,
        }
    }

    /// Runs until the owner leaves or something panics; then fails what is left.
    pub(super) fn run_to_end(&mut self) {
        match catch_unwind(AssertUnwindSafe(|| self.run())) {
            Ok(()) => self.fail_all(&Refusal::Gone),
            Err(panic) => {
                let reason = format!("the mock engine's thread panicked: {}", message(&*panic));
                tracing::error!(%reason, "engine died");
                self.pulse.die(reason.clone());
                self.fail_all(&Refusal::Failed(reason.clone()));
                self.tell(EngineEvent::Died(reason));
            }
        }
        while !self.drains.is_empty() {
            self.drains.retain_mut(|outlet| !outlet.flush());
            std::thread::sleep(POLL);
        }
    }

    fn run(&mut self) {
        let mut commands = VecDeque::new();
        while self.inbox.take(&mut commands) {
            while let Some(command) = commands.pop_front() {
                match command {
                    Command::Job(job) => self.submit(*job),
                    Command::Op(op) => self.give(In::Op(op)),
                }
            }
            self.sweep();
            self.tick();
            self.tell_wrong();
            let deadline = self.machine.deadline().map(|time| self.instant(time));
            let nobody = self.streams.is_empty() && self.drains.is_empty();
            let poll = (!nobody).then(|| Instant::now() + POLL);
            self.inbox.wait([deadline, poll].into_iter().flatten().min());
        }
        self.drains.extend(Command::refuse_all(commands, &Refusal::Gone));
    }

    fn now(&self) -> Time {
        Time(u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn instant(&self, time: Time) -> Instant {
        self.epoch.checked_add(Duration::from_nanos(time.0)).unwrap_or_else(Instant::now)
    }

    fn submit(&mut self, job: Job) {
        let arrived = job.arrived.saturating_duration_since(self.epoch).as_nanos();
        let resumed = job.resumed as usize;
        let script = self.scripts.as_ref().and_then(|s| s.choose(&job.prompt, resumed));
        let stream = Stream {
            outlet: Outlet::new(job.sink),
            blocked: false,
            gone: false,
            waits: true,
            _guard: job.guard,
        };
        self.streams.insert(job.grant.lease, stream);
        self.give(In::Submit(Box::new(mock::Job {
            request: job.request,
            grant: job.grant,
            prompt: job.prompt,
            sampling: job.sampling,
            limits: job.limits,
            priority: job.priority,
            arrived: Time(u64::try_from(arrived).unwrap_or(u64::MAX)),
            serving_node: job.serving_node,
            script,
            resumed: job.resumed,
        })));
    }

    fn tick(&mut self) {
        let now = self.now();
        if self.machine.deadline().is_some_and(|deadline| deadline <= now) {
            let mut out = Vec::new();
            self.machine.tick(now, &mut out);
            self.do_all(out);
            self.beat();
        }
    }

    /// Tells whoever asks for health that a step ended, or that nothing runs.
    fn beat(&self) {
        let now = Instant::now();
        if self.machine.is_busy() {
            // A step that is meant to take long is no silence.
            let ends = self.machine.deadline().map(|time| self.instant(time));
            let takes = ends.map_or(Duration::ZERO, |ends| ends.saturating_duration_since(now));
            self.pulse.begin(now);
            self.pulse.beat(now, takes);
        } else {
            self.pulse.rest();
        }
    }

    fn give(&mut self, input: In) {
        let mut out = Vec::new();
        let was_busy = self.machine.is_busy();
        self.machine.handle(self.now(), input, &mut out);
        self.do_all(out);
        if !was_busy {
            self.beat();
        }
    }

    fn do_all(&mut self, out: Vec<Out>) {
        let mut answers = VecDeque::new();
        out.into_iter().for_each(|out| self.perform(out, &mut answers));
        while let Some(input) = answers.pop_front() {
            let mut out = Vec::new();
            self.machine.handle(self.now(), input, &mut out);
            out.into_iter().for_each(|out| self.perform(out, &mut answers));
        }
    }

    fn perform(&mut self, out: Out, answers: &mut VecDeque<In>) {
        match out {
            Out::Item(lease, item) => self.send(lease, item, answers),
            Out::Refused(lease, refusal) => self.send(lease, StreamItem::Failed(refusal), answers),
            Out::Event(event) => self.tell(event),
            Out::Done(lease) => {
                self.job_left(lease);
                if let Some(stream) = self.streams.remove(&lease)
                    && !stream.outlet.is_clear()
                {
                    self.drains.push(stream.outlet);
                }
            }
            Out::Write { op, pattern, to } => {
                let digest = bytes::write(&self.dram, to, pattern, self.block_bytes);
                answers.push_back(In::Written { op, digest });
            }
            Out::Read { op, from, digest } => {
                answers.push_back(bytes::read(&self.dram, op, from, &digest, self.block_bytes));
            }
        }
    }

    fn send(&mut self, lease: LeaseId, item: StreamItem, answers: &mut VecDeque<In>) {
        self.job_left(lease);
        let Some(stream) = self.streams.get_mut(&lease) else { return };
        stream.outlet.send(item);
        if !stream.outlet.is_clear() && !stream.blocked {
            stream.blocked = true;
            answers.push_back(In::Blocked(lease, true));
        }
    }

    fn job_left(&mut self, lease: LeaseId) {
        if let Some(stream) = self.streams.get_mut(&lease)
            && std::mem::take(&mut stream.waits)
        {
            self.inbox.job_left();
        }
    }

    /// Looks at the channels: who left, and who has room again.
    fn sweep(&mut self) {
        self.drains.retain_mut(|outlet| !outlet.flush());
        let mut inputs = Vec::new();
        for (lease, stream) in &mut self.streams {
            if stream.outlet.is_closed() && !std::mem::replace(&mut stream.gone, true) {
                inputs.push(In::Gone(*lease));
            } else if stream.blocked && stream.outlet.flush() {
                stream.blocked = false;
                inputs.push(In::Blocked(*lease, false));
            }
        }
        inputs.into_iter().for_each(|input| self.give(input));
    }

    fn tell_wrong(&mut self) {
        let stats = self.machine.stats();
        let wrong = stats.wrong_bytes + stats.wrong_slots + stats.overwritten + stats.violations;
        if wrong > self.wrong_told {
            self.wrong_told = wrong;
            tracing::error!(?stats, "blocks do not hold what their names say");
        }
    }

    fn fail_all(&mut self, refusal: &Refusal) {
        self.inbox.close();
        let mut commands = VecDeque::new();
        self.inbox.take(&mut commands);
        self.drains.extend(Command::refuse_all(commands, refusal));
        for (_, mut stream) in std::mem::take(&mut self.streams) {
            stream.outlet.send(StreamItem::Failed(refusal.clone()));
            let Stream { outlet, _guard: guard, .. } = stream;
            self.drains.push(outlet);
            // A guard is foreign code; one that panics must not keep the others.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(guard)));
        }
    }

    /// Tells the block manager, waiting while it is busy; a manager that left needs nothing.
    fn tell(&self, event: EngineEvent) {
        let _ = self.events.blocking_send(event);
    }
}
