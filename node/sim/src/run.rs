//! A placed request on the node that serves it: admission, lease, engine. The same steps as a real
//! node's.

use crate::host::Role;
use crate::mail::{Mail, Timer};
use crate::net::{Frame, Side, StreamId};
use crate::world::World;
use kvstore::{In, Prepare};
use protocol::id::{EngineId, RequestId};
use protocol::machine::Machine;
use protocol::op::{Grant, LeaseId};
use protocol::plan::Placed;
use protocol::prompt::{FinishReason, Prompt, PromptSources, Refusal, StreamItem};
use protocol::time::{Span, Time};
use protocol::wire::serve::{ServeAnswer, ServeRequest};
use protocol::wire::{decode, encode};
use router::admission;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Longest wait for slots of a request that was admitted.
const SLOTS_WITHIN: Span = Span::secs(600);
/// Items on their way before the engine pauses a sequence, and when it goes on.
const STREAM_ITEMS: usize = 64;

/// Where a run's items go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sink {
    /// To a request that came in here.
    Ask(RequestId),
    /// To the entry node.
    Stream(StreamId),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// In the queue.
    Waiting,
    /// Asks for slots, since then.
    Leasing(Time),
    /// The engine has it.
    Running,
    /// All is said, or nobody listens; the engine may still let go of its slots.
    Over,
}

/// See the module's text.
pub(crate) struct Run {
    prompt: Prompt,
    placed: Placed,
    sink: Sink,
    state: State,
    arrived: Time,
    /// The lease that it asks for or has.
    lease: Option<LeaseId>,
    /// Leases whose guard has not dropped: they keep its place in the running window.
    guards: BTreeSet<LeaseId>,
    /// Length of the prompt as it came, and the most tokens that were asked for.
    asked: usize,
    max_tokens: u32,
    first: Option<PromptSources>,
    before: u32,
    blocked: bool,
}

impl Run {
    pub(crate) fn engine(&self) -> EngineId {
        self.placed.plan.prefill.engine
    }

    /// For the report of a failure.
    pub(crate) fn words(&self) -> String {
        let (state, lease, guards) = (self.state, self.lease, &self.guards);
        format!(
            "{:?} {state:?} {lease:?} guards {guards:?}, blocked: {}",
            self.prompt.id, self.blocked
        )
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.state == State::Waiting
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state == State::Over
    }

    pub(crate) fn uncached(&self) -> u32 {
        self.placed.plan.estimate.computed_tokens
    }
}

impl World {
    /// A stream brings a prompt that was placed here.
    pub(crate) fn serve_arrives(&mut self, h: usize, stream: StreamId, bytes: &[u8]) {
        let Ok(request) = decode::<ServeRequest>(bytes) else {
            return self.reset_stream(h, stream);
        };
        let Some(live) = self.live(h) else { return };
        live.roles.insert(stream, Role::Run(None));
        if !request.bounced
            && let Some(load) = self.overloaded(h, &request.placed)
        {
            return self.answer(h, stream, &ServeAnswer::Bounced(load));
        }
        match self.start_run(h, request.prompt, request.placed, Sink::Stream(stream)) {
            Ok(run) => {
                if let Some(live) = self.live(h) {
                    live.roles.insert(stream, Role::Run(Some(run)));
                }
            }
            Err(refusal) => self.answer(h, stream, &ServeAnswer::Refused(refusal)),
        }
    }

    /// The load of the placed engine when it is much busier than the chooser believed.
    fn overloaded(&mut self, h: usize, placed: &Placed) -> Option<protocol::event::EngineLoad> {
        let engine = placed.plan.prefill.engine;
        let report = self.engine_reports(h).into_iter().find(|report| report.engine == engine)?;
        router::should_bounce(&placed.plan.estimate, &report.load).then_some(report.load)
    }

    fn answer(&mut self, h: usize, stream: StreamId, answer: &ServeAnswer) {
        let head = encode(answer).unwrap_or_default();
        let last = !matches!(answer, ServeAnswer::Item(item) if !is_last(item));
        self.send(h, stream, Frame::Data { head, body: Vec::new() });
        if last {
            self.send(h, stream, Frame::Fin);
            if let Some(live) = self.live(h) {
                live.roles.insert(stream, Role::Run(None));
            }
        }
    }

    /// Starts a placed prompt on this node: it enters the queue.
    pub(crate) fn start_run(
        &mut self,
        h: usize,
        prompt: Prompt,
        placed: Placed,
        sink: Sink,
    ) -> Result<u64, Refusal> {
        let now = self.now;
        let context = self.scenario.cluster.context;
        let me = self.hosts.get(h).map(|host| host.id);
        let target = placed.plan.prefill;
        let Some(live) = self.live(h) else { return Err(Refusal::Gone) };
        if me != Some(target.node) || target.incarnation != live.incarnation {
            return Err(Refusal::Gone);
        }
        if !live.engines.contains_key(&target.engine) {
            return Err(Refusal::Gone);
        }
        let tokens = u32::try_from(prompt.tokens.len()).unwrap_or(u32::MAX);
        if tokens >= context || tokens == 0 {
            return Err(Refusal::TooLong { tokens, limit: context.saturating_sub(1) });
        }
        let arrival = admission::Arrival {
            id: prompt.id,
            strict: prompt.hints.strict_priority,
            priority: prompt.hints.priority,
            uncached: placed.plan.estimate.computed_tokens,
        };
        let id = live.next();
        live.run_of_request.insert(prompt.id, id);
        let run = Run {
            asked: prompt.tokens.len(),
            max_tokens: prompt.limits.max_tokens,
            prompt,
            placed,
            sink,
            state: State::Waiting,
            arrived: now,
            lease: None,
            guards: BTreeSet::new(),
            first: None,
            before: 0,
            blocked: false,
        };
        live.runs.insert(id, run);
        self.mail(h, Mail::Admission(admission::In::Arrive(arrival)));
        Ok(id)
    }

    pub(crate) fn admission_in(&mut self, h: usize, input: admission::In) {
        let now = self.now;
        self.watch_admission_in(h, &input);
        let Some(live) = self.live(h) else { return };
        let mut out = Vec::new();
        live.admission.handle(now, input, &mut out);
        let out = self.plant_admission(h, out);
        for effect in out {
            self.watch_admission_out(h, &effect);
            let (request, answer) = match effect {
                admission::Out::Admit(request) => (request, Ok(())),
                admission::Out::Refuse(request, refusal) => (request, Err(refusal)),
            };
            self.mail(h, Mail::Admitted(request, answer));
        }
    }

    /// The queue has an answer.
    pub(crate) fn admitted(&mut self, h: usize, request: RequestId, answer: Result<(), Refusal>) {
        let now = self.now;
        let Some(live) = self.live(h) else { return };
        let Some(id) = live.run_of_request.get(&request).copied() else { return };
        let Some(run) = live.runs.get_mut(&id).filter(|run| run.is_waiting()) else { return };
        match answer {
            Ok(()) => {
                run.state = State::Leasing(now);
                self.ask_for_slots(h, id);
            }
            Err(refusal) => self.run_failed(h, id, refusal),
        }
    }

    /// Asks the block manager for slots.
    pub(crate) fn ask_for_slots(&mut self, h: usize, id: u64) {
        let key = self.key.clone();
        let Some(live) = self.live(h) else { return };
        let lease = LeaseId(live.next());
        let Some(run) = live.runs.get_mut(&id) else { return };
        if !matches!(run.state, State::Leasing(_)) {
            return;
        }
        run.lease = Some(lease);
        run.guards.insert(lease);
        let prompt = &run.prompt;
        let prepare = Prepare {
            lease,
            engine: run.engine(),
            tenant: prompt.tenant.clone(),
            session: prompt.session.clone(),
            key,
            prefix: prompt.prefix.clone(),
            prompt_tokens: u32::try_from(prompt.tokens.len()).unwrap_or(u32::MAX),
            max_tokens: prompt.limits.max_tokens,
            sources: run.placed.plan.sources.clone(),
            claims: prompt.hints.claims.clone(),
            priority: prompt.hints.priority,
        };
        live.run_of_lease.insert(lease, id);
        self.mail(h, Mail::Store(Box::new(In::Prepare(Box::new(prepare)))));
    }

    pub(crate) fn lease_granted(&mut self, h: usize, grant: Grant, engine_life: u32) {
        let lease = grant.lease;
        let me = self.hosts.get(h).map(|host| host.id);
        let Some(live) = self.live(h) else { return };
        let id = live.run_of_lease.get(&lease).copied();
        let waits = |run: &&mut Run| run.lease == Some(lease) && !run.is_over();
        let Some(run) = id.and_then(|id| live.runs.get_mut(&id)).filter(waits) else {
            // The request went away between asking and answer.
            return self.mail(h, Mail::Store(Box::new(In::Released(lease))));
        };
        let Some(me) = me else { return };
        run.state = State::Running;
        let engine = run.engine();
        let resumed = run.prompt.tokens.len() - run.asked;
        let job = mock::Job {
            request: run.prompt.id,
            grant,
            prompt: run.prompt.tokens.clone(),
            sampling: run.prompt.sampling,
            limits: run.prompt.limits.clone(),
            priority: run.prompt.hints.priority,
            arrived: run.arrived,
            serving_node: me,
            script: None,
            resumed: u32::try_from(resumed).unwrap_or(u32::MAX),
        };
        let now_life = live.engines.get(&engine).filter(|found| found.alive).map(|f| f.life);
        if now_life != Some(engine_life) {
            return self.job_died(h, lease); // a submission to it fails
        }
        self.mail(h, Mail::Engine(engine, engine_life, Box::new(mock::In::Submit(Box::new(job)))));
        self.mail(h, Mail::Store(Box::new(In::Submitted(lease))));
    }

    pub(crate) fn lease_refused(&mut self, h: usize, lease: LeaseId, refusal: Refusal) {
        let now = self.now;
        let Some(live) = self.live(h) else { return };
        let Some(id) = live.run_of_lease.get(&lease).copied() else { return };
        let Some(run) = live.runs.get_mut(&id).filter(|run| run.lease == Some(lease)) else {
            return;
        };
        let State::Leasing(since) = run.state else { return };
        run.lease = None;
        self.drop_guard(h, lease);
        match refusal {
            Refusal::Busy { retry_after } if now.since(since) < SLOTS_WITHIN => {
                self.timer(h, retry_after, Timer::Lease(id));
            }
            refusal => self.run_failed(h, id, refusal),
        }
    }

    /// The lease's guard drops: its release follows what the engine has told before.
    fn drop_guard(&mut self, h: usize, lease: LeaseId) {
        let Some(live) = self.live(h) else { return };
        let id = live.run_of_lease.remove(&lease);
        if let Some(run) = id.and_then(|id| live.runs.get_mut(&id)) {
            run.guards.remove(&lease);
        }
        self.mail(h, Mail::Store(Box::new(In::Released(lease))));
        if let Some(id) = id {
            self.maybe_leave_window(h, id);
        }
    }

    /// The engine can write to no slot of the lease any more.
    pub(crate) fn lease_done(&mut self, h: usize, lease: LeaseId) {
        self.drop_guard(h, lease);
    }

    /// The engine does not take the job.
    pub(crate) fn job_refused(&mut self, h: usize, lease: LeaseId, refusal: Refusal) {
        self.job_failed(h, lease, refusal);
    }

    /// The engine died before it took the job.
    pub(crate) fn job_died(&mut self, h: usize, lease: LeaseId) {
        self.drop_guard(h, lease);
        self.job_failed(h, lease, Refusal::Failed("the engine died".into()));
    }

    fn job_failed(&mut self, h: usize, lease: LeaseId, refusal: Refusal) {
        let Some(live) = self.live(h) else { return };
        let run = live.runs.iter().find(|(_, run)| run.lease == Some(lease));
        let Some(id) = run.map(|(id, _)| *id) else { return };
        self.run_failed(h, id, refusal);
    }

    /// An engine's item for the stream of a lease.
    pub(crate) fn item_of_lease(&mut self, h: usize, lease: LeaseId, item: StreamItem) {
        let Some(live) = self.live(h) else { return };
        let Some(id) = live.run_of_lease.get(&lease).copied() else { return };
        let Some(run) = live.runs.get_mut(&id) else { return };
        if run.lease == Some(lease) && run.state == State::Running {
            self.follow(h, id, item);
        }
    }

    /// Passes an item on. A sequence that the engine gave up for want of room goes on from its tokens
    /// so far as soon as there is room again.
    fn follow(&mut self, h: usize, id: u64, item: StreamItem) {
        let (now, key) = (self.now, self.key.clone());
        let context = self.scenario.cluster.context as usize;
        let Some(run) = self.live(h).and_then(|live| live.runs.get_mut(&id)) else { return };
        let pass = match item {
            StreamItem::Started(_) if run.first.is_some() => return,
            StreamItem::Started(started) => {
                run.first = Some(started.prompt);
                StreamItem::Started(started)
            }
            StreamItem::Tokens(tokens) => {
                Arc::make_mut(&mut run.prompt.tokens).extend(&tokens);
                StreamItem::Tokens(tokens)
            }
            StreamItem::Finished(finish)
                if finish.reason == FinishReason::ContextFull
                    && run.prompt.tokens.len() + 1 < context =>
            {
                let so_far = run.prompt.tokens.len() - run.asked;
                run.before = u32::try_from(so_far).unwrap_or(u32::MAX);
                run.prompt.limits.max_tokens = run.max_tokens.saturating_sub(run.before).max(1);
                let prefix = key.chain(&run.prompt.prefix, &run.prompt.tokens);
                run.prompt.prefix = Arc::new(prefix);
                run.lease = None;
                run.state = State::Leasing(now);
                self.watch.figures.resumed += 1;
                return self.ask_for_slots(h, id);
            }
            StreamItem::Finished(mut finish) => {
                finish.output_tokens = finish.output_tokens.saturating_add(run.before);
                finish.prompt = run.first.unwrap_or(finish.prompt);
                StreamItem::Finished(finish)
            }
            StreamItem::Failed(refusal) => StreamItem::Failed(refusal),
        };
        self.emit(h, id, pass);
    }

    /// Sends an item to whoever waits for it.
    fn emit(&mut self, h: usize, id: u64, item: StreamItem) {
        let Some(run) = self.live(h).and_then(|live| live.runs.get_mut(&id)) else { return };
        let (sink, last) = (run.sink, is_last(&item));
        if last {
            run.state = State::Over;
        }
        match sink {
            Sink::Ask(request) => self.ask_item(h, request, item),
            Sink::Stream(stream) => {
                self.answer(h, stream, &ServeAnswer::Item(item));
                let waiting = self
                    .net
                    .stream(stream)
                    .and_then(|s| Some(s.waiting(s.side_of(h)?.other())))
                    .unwrap_or(0);
                if waiting >= STREAM_ITEMS && !last {
                    self.block_run(h, id, true);
                }
            }
        }
        if last {
            self.maybe_leave_window(h, id);
        }
    }

    /// Ends a run in failure: before its first item as a refusal, else in the stream.
    fn run_failed(&mut self, h: usize, id: u64, refusal: Refusal) {
        let Some(run) = self.live(h).and_then(|live| live.runs.get_mut(&id)) else { return };
        if run.is_over() {
            return;
        }
        if let (None, Sink::Stream(stream)) = (run.first, run.sink) {
            run.state = State::Over;
            self.answer(h, stream, &ServeAnswer::Refused(refusal));
            return self.maybe_leave_window(h, id);
        }
        self.emit(h, id, StreamItem::Failed(refusal));
    }

    /// Nobody listens any more.
    pub(crate) fn abandon_run(&mut self, h: usize, id: u64) {
        let Some(live) = self.live(h) else { return };
        let Some(run) = live.runs.get_mut(&id).filter(|run| !run.is_over()) else { return };
        let before = run.state;
        run.state = State::Over;
        let (engine, lease) = (run.engine(), run.lease);
        match (before, lease) {
            (State::Running, Some(lease)) => self.tell_engine(h, engine, mock::In::Gone(lease)),
            (State::Leasing(_), Some(lease)) => self.drop_guard(h, lease),
            _ => {}
        }
        self.maybe_leave_window(h, id);
    }

    fn tell_engine(&mut self, h: usize, engine: EngineId, input: mock::In) {
        let Some(live) = self.live(h) else { return };
        if let Some(life) = live.engines.get(&engine).map(|engine| engine.life) {
            self.mail(h, Mail::Engine(engine, life, Box::new(input)));
        }
    }

    /// The ticket drops with the run and its last guard: its place in the window is free.
    fn maybe_leave_window(&mut self, h: usize, id: u64) {
        let Some(live) = self.live(h) else { return };
        let Some(run) = live.runs.get(&id).filter(|run| run.is_over() && run.guards.is_empty())
        else {
            return;
        };
        let request = run.prompt.id;
        live.runs.remove(&id);
        if live.run_of_request.get(&request) == Some(&id) {
            live.run_of_request.remove(&request);
        }
        self.mail(h, Mail::Admission(admission::In::Cancel(request)));
    }

    /// A run's reader is slow, or reads again.
    pub(crate) fn block_run(&mut self, h: usize, id: u64, blocked: bool) {
        let Some(run) = self.live(h).and_then(|live| live.runs.get_mut(&id)) else { return };
        if run.blocked == blocked || run.is_over() {
            return;
        }
        run.blocked = blocked;
        let (engine, lease) = (run.engine(), run.lease);
        if let Some(lease) = lease {
            self.tell_engine(h, engine, mock::In::Blocked(lease, blocked));
        }
    }

    /// A frame was taken from a stream: a run that waited for room may go on.
    pub(crate) fn let_sender_go_on(&mut self, stream: StreamId, side: Side) {
        let Some(found) = self.net.stream(stream) else { return };
        if found.kind != crate::net::Kind::Serve || found.waiting(side) != STREAM_ITEMS / 2 {
            return;
        }
        let (sender, _) = found.host(side.other());
        if let Some(Role::Run(Some(run))) = self.role(sender, stream) {
            self.block_run(sender, run, false);
        }
    }
}

fn is_last(item: &StreamItem) -> bool {
    matches!(item, StreamItem::Finished(_) | StreamItem::Failed(_))
}
