//! The entry node's side of a request: place, run here or there, relay; place again elsewhere when
//! the place failed before the first item. The same decisions as a real node's, with the same pure
//! parts.

use crate::host::{MODEL, Role, routing_id};
use crate::mail::Timer;
use crate::net::{Kind, StreamId};
use crate::rim::CONNECT_WITHIN;
use crate::run::Sink;
use crate::world::World;
use protocol::hash::PrefixHash;
use protocol::id::{NodeId, RequestId};
use protocol::plan::Placed;
use protocol::prompt::{Prompt, Refusal, StreamItem};
use protocol::time::Span;
use protocol::wire::serve::{ServeAnswer, ServeRequest};
use protocol::wire::{decode, encode};
use router::{InFlight, Query};
use std::sync::Arc;

/// Places tried for one request.
const TRIES: usize = 3;

/// How a request gets its items.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Path {
    /// From a run on this node.
    Here(u64),
    /// Over a stream.
    There(StreamId),
    /// From a node that does not answer.
    Nowhere,
}

/// A request at its entry node.
pub(crate) struct Ask {
    prompt: Prompt,
    avoid: Vec<NodeId>,
    bounced: Option<NodeId>,
    last: Option<Refusal>,
    tries: usize,
    /// Where it is now, and how it gets its items.
    place: Option<(NodeId, Path)>,
    flight: Option<InFlight>,
    started: bool,
}

impl Ask {
    fn new(prompt: Prompt) -> Self {
        Self {
            prompt,
            avoid: Vec::new(),
            bounced: None,
            last: None,
            tries: 0,
            place: None,
            flight: None,
            started: false,
        }
    }

    /// For the report of a failure.
    pub(crate) fn words(&self) -> String {
        let (place, tries, started) = (self.place, self.tries, self.started);
        format!("at {place:?} after {tries} tries, started: {started}")
    }

    /// Names of the prompt's granules, and its length.
    pub(crate) fn prefix(&self) -> (Arc<Vec<PrefixHash>>, u32) {
        let tokens = u32::try_from(self.prompt.tokens.len()).unwrap_or(u32::MAX);
        (self.prompt.prefix.clone(), tokens)
    }

    pub(crate) fn path(&self) -> Option<Path> {
        self.place.map(|(_, path)| path)
    }
}

/// How one try ended before its stream began.
enum Setback {
    /// Placed by a stale view: the target is busier than the chooser believed.
    Bounced,
    /// The target could not be reached, or died.
    Lost,
    /// It refused.
    Refused(Refusal),
}

impl World {
    /// A prompt arrives at its entry node.
    pub(crate) fn serve(&mut self, h: usize, prompt: Prompt) {
        let id = prompt.id;
        let Some(live) = self.live(h) else { return };
        live.asks.insert(id, Ask::new(prompt));
        self.place_ask(h, id);
    }

    /// Tries places until one takes the request, or none is left.
    fn place_ask(&mut self, h: usize, id: RequestId) {
        loop {
            let placed = match self.choose(h, id) {
                Some(Ok(placed)) => placed,
                Some(Err(refusal)) => return self.ask_refused(h, id, refusal),
                None => return,
            };
            let now = self.now;
            let me = self.hosts.get(h).map(|host| host.id);
            self.watch_placed(h, id, &placed);
            let Some(live) = self.live(h) else { return };
            let Some(ask) = live.asks.get_mut(&id) else { return };
            ask.flight = Some(live.loads.placed(&placed, &ask.prompt.prefix, now));
            let target = placed.plan.prefill.node;
            let (prompt, bounced) = (ask.prompt.clone(), ask.bounced.is_some());
            let begun = match Some(target) == me {
                true => self.start_run(h, prompt, placed, Sink::Ask(id)).map(Path::Here),
                false => Ok(self.hand_over(h, target, prompt, placed, bounced)),
            };
            match begun {
                Ok(path) => {
                    if let Some(ask) = self.live(h).and_then(|live| live.asks.get_mut(&id)) {
                        ask.place = Some((target, path));
                    }
                    return;
                }
                Err(refusal) => {
                    if !self.set_back(h, id, target, Setback::Refused(refusal)) {
                        return;
                    }
                }
            }
        }
    }

    /// Chooses a place; the node that bounced the prompt is the last resort.
    fn choose(&mut self, h: usize, id: RequestId) -> Option<Result<Placed, Refusal>> {
        let (now, policy) = (self.now, self.scenario.policy());
        let me = self.hosts.get(h)?.id;
        let live = self.live(h)?;
        live.seeds = live.seeds.wrapping_add(1);
        let seed = live.seeds;
        let ask = live.asks.get_mut(&id)?;
        ask.tries += 1;
        if ask.tries > TRIES {
            let last = ask.last.clone();
            return Some(Err(last.unwrap_or(Refusal::NoTarget { model: MODEL.into() })));
        }
        let ask = &*ask;
        let place = |avoid: &[NodeId]| {
            let query = Query {
                routing: routing_id(),
                model: MODEL,
                prefix: &ask.prompt.prefix,
                tokens: u32::try_from(ask.prompt.tokens.len()).unwrap_or(u32::MAX),
                osl: ask.prompt.hints.osl,
                session: ask.prompt.session.as_ref(),
                me,
                avoid,
            };
            router::place(&live.index, &live.loads, &query, policy, seed, now)
        };
        let wider: Vec<NodeId> = ask.avoid.iter().copied().chain(ask.bounced).collect();
        let placed = place(&wider);
        let placed =
            if ask.bounced.is_some() { placed.or_else(|_| place(&ask.avoid)) } else { placed };
        // What an earlier place said is more telling than that no other is left.
        Some(placed.map_err(|refusal| ask.last.clone().unwrap_or(refusal)))
    }

    fn hand_over(
        &mut self,
        h: usize,
        target: NodeId,
        prompt: Prompt,
        placed: Placed,
        bounced: bool,
    ) -> Path {
        let id = prompt.id;
        let bytes = encode(&ServeRequest { prompt, placed, bounced }).unwrap_or_default();
        match self.open(h, Kind::Serve, &target, bytes) {
            Some(stream) => {
                if let Some(live) = self.live(h) {
                    live.roles.insert(stream, Role::Ask(id));
                }
                Path::There(stream)
            }
            None => {
                // A host that runs refuses at once; one that does not is waited for.
                let after = self.fates.of("unreached").span(Span::millis(1), CONNECT_WITHIN);
                self.timer(h, after, Timer::Unreached(id));
                Path::Nowhere
            }
        }
    }

    /// Notes why a try failed; whether another one makes sense.
    fn set_back(&mut self, h: usize, id: RequestId, target: NodeId, setback: Setback) -> bool {
        let Some(live) = self.live(h) else { return false };
        let Some(ask) = live.asks.get_mut(&id) else { return false };
        ask.flight = None;
        ask.place = None;
        match setback {
            Setback::Bounced => ask.bounced = Some(target),
            Setback::Lost => {
                ask.avoid.push(target);
                ask.last = Some(Refusal::Gone);
                self.lost(h, target);
            }
            Setback::Refused(refusal @ (Refusal::Gone | Refusal::Failed(_))) => {
                ask.avoid.push(target);
                ask.last = Some(refusal);
            }
            Setback::Refused(refusal) => {
                self.ask_refused(h, id, refusal);
                return false;
            }
        }
        self.watch.figures.replaced += 1;
        true
    }

    fn ask_refused(&mut self, h: usize, id: RequestId, refusal: Refusal) {
        if self.live(h).and_then(|live| live.asks.remove(&id)).is_some() {
            self.client_refused(id, refusal);
        }
    }

    /// A frame of the serving node.
    pub(crate) fn answer_arrives(&mut self, h: usize, id: RequestId, bytes: &[u8]) {
        match decode(bytes) {
            Ok(ServeAnswer::Item(item)) => self.ask_item(h, id, item),
            Ok(ServeAnswer::Refused(refusal)) => {
                self.ask_item(h, id, StreamItem::Failed(refusal));
            }
            Ok(ServeAnswer::Bounced(_)) => {
                if let Some(target) = self.leave_place(h, id)
                    && self.set_back(h, id, target, Setback::Bounced)
                {
                    self.place_ask(h, id);
                }
            }
            // Prompts are sent whole here.
            Ok(ServeAnswer::Unknown) | Err(_) => self.ask_lost(h, id),
        }
    }

    /// The request is at its present place no more; where that was.
    fn leave_place(&mut self, h: usize, id: RequestId) -> Option<NodeId> {
        let live = self.live(h)?;
        let (target, path) = live.asks.get_mut(&id)?.place.take()?;
        match path {
            Path::There(stream) => self.reset_stream(h, stream),
            Path::Here(run) => self.abandon_run(h, run),
            Path::Nowhere => {}
        }
        Some(target)
    }

    /// An item for the client. Until the first one the request can go elsewhere.
    pub(crate) fn ask_item(&mut self, h: usize, id: RequestId, item: StreamItem) {
        let now = self.now;
        let Some(live) = self.live(h) else { return };
        let Some(ask) = live.asks.get_mut(&id) else { return };
        if !ask.started {
            if let StreamItem::Failed(refusal) = item {
                if let Some(target) = self.leave_place(h, id)
                    && self.set_back(h, id, target, Setback::Refused(refusal))
                {
                    self.place_ask(h, id);
                }
                return;
            }
            ask.started = true;
            if let Some(flight) = ask.flight.take() {
                flight.started(now);
            }
        }
        let last = matches!(item, StreamItem::Finished(_) | StreamItem::Failed(_));
        if last {
            live.asks.remove(&id);
        }
        for item in self.plant_item(item) {
            self.client_item(id, item);
        }
    }

    /// The serving node went away.
    pub(crate) fn ask_lost(&mut self, h: usize, id: RequestId) {
        let Some(live) = self.live(h) else { return };
        let Some(ask) = live.asks.get(&id) else { return };
        let started = ask.started;
        let Some(target) = self.leave_place(h, id) else { return };
        if started {
            self.lost(h, target);
            if let Some(live) = self.live(h) {
                live.asks.remove(&id);
            }
            self.client_item(id, StreamItem::Failed(Refusal::Gone));
        } else if self.set_back(h, id, target, Setback::Lost) {
            self.place_ask(h, id);
        }
    }

    /// The client went away.
    pub(crate) fn drop_ask(&mut self, h: usize, id: RequestId) {
        self.leave_place(h, id);
        if let Some(live) = self.live(h) {
            live.asks.remove(&id);
        }
    }

    /// A slow client's buffer is full, or has room again.
    pub(crate) fn hold_back(&mut self, h: usize, id: RequestId, held: bool) {
        let Some(live) = self.live(h) else { return };
        match live.asks.get(&id).and_then(Ask::path) {
            Some(Path::Here(run)) => self.block_run(h, run, held),
            Some(Path::There(stream)) => {
                let Some(side) = self.net.stream(stream).and_then(|s| s.side_of(h)) else { return };
                for _ in 0..self.net.pause(stream, side, held) {
                    let event = crate::mail::Event::Frame { stream, side };
                    self.plan_for(h, self.now, event);
                }
            }
            Some(Path::Nowhere) | None => {}
        }
    }
}
