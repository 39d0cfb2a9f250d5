//! Clients: what they ask, of which node, how they read, and what they do when it fails.

mod agents;
mod pauses;
mod reader;

pub(crate) use agents::Agent;

use crate::dice::Dice;
use crate::host::{MODEL, VOCABULARY};
use crate::mail::Event;
use crate::scenario::{Scenario, Workload};
use crate::trace::TraceRequest;
use crate::world::World;
use protocol::block::{BlockClass, Claim};
use protocol::hash::{PrefixHash, Token};
use protocol::id::{RequestId, SessionId, TenantId};
use protocol::prompt::{Hints, Limits, Prompt, RangeClaim, Refusal, Sampling, StreamItem};
use protocol::time::{Span, Time};
use reader::Reader;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Tries of one turn before its client gives up: many more than any fault should need.
pub(crate) const TRIES: u32 = 400;
/// Between a failure and the next try.
const RETRY_AFTER: Span = Span::millis(300);

/// A request that has no end yet.
pub(crate) struct Open {
    /// Whose turn it is; `None` for a trace's.
    pub(crate) agent: Option<usize>,
    /// Where it was asked, in which life.
    pub(crate) host: usize,
    pub(crate) life: u64,
    pub(crate) asked_at: Time,
    pub(crate) started: bool,
    reader: Reader,
}

/// All clients of a run.
pub(crate) struct Clients {
    pub(crate) workload: Workload,
    pub(crate) agents: Vec<Agent>,
    pub(crate) open: BTreeMap<RequestId, Open>,
    pub(crate) trace: Vec<TraceRequest>,
    pub(crate) trace_at: usize,
    dice: Dice,
    last: u64,
}

/// What a client is about to ask.
pub(crate) struct Question<'a> {
    pub(crate) session: Option<&'a str>,
    pub(crate) tokens: Vec<Token>,
    pub(crate) known: Vec<PrefixHash>,
    pub(crate) max_tokens: u32,
    /// The first so many tokens are pinned.
    pub(crate) pinned: Option<u32>,
}

impl Clients {
    pub(crate) fn new(scenario: &Scenario, seed: u64) -> Self {
        Self {
            workload: scenario.workload.clone(),
            agents: Vec::new(),
            open: BTreeMap::new(),
            trace: Vec::new(),
            trace_at: 0,
            dice: Dice::new(seed, "clients"),
            last: 0,
        }
    }

    /// Fresh tokens.
    fn tokens(&mut self, count: u64) -> Vec<Token> {
        (0..count).map(|_| Token(1 + self.dice.below(u64::from(VOCABULARY) - 1) as u32)).collect()
    }
}

/// From a client to its entry node, the prompt read and tokenised.
fn way_in(dice: &mut Dice) -> Span {
    dice.span(Span(50_000), Span(500_000))
}

impl World {
    /// Asks a node that runs; `None` when none does, or the client cannot reach it.
    pub(crate) fn ask(
        &mut self,
        agent: Option<usize>,
        at: Option<usize>,
        question: Question<'_>,
    ) -> Option<RequestId> {
        let up: Vec<usize> = self.up().into_iter().filter(|h| !self.is_second(*h)).collect();
        let h = at.filter(|h| up.contains(h)).or_else(|| self.clients.dice.pick(&up))?;
        let life = self.hosts.get(h)?.life;
        let now = self.now;
        self.clients.last += 1;
        let id =
            RequestId(u128::from(self.clients.last) << 96 | u128::from(self.clients.dice.any()));
        let prefix = self.key.chain(&question.known, &question.tokens);
        let w = &self.clients.workload;
        let (priorities, slow, vanishing) = (w.priorities, w.slow_readers, w.vanishing);
        let dice = &mut self.clients.dice;
        let priority = match dice.share(priorities) {
            true => i32::try_from(dice.between(0, 10)).unwrap_or(5) - 5,
            false => 0,
        };
        let reader = Reader::drawn(dice, slow, vanishing, question.max_tokens);
        let claims = question.pinned.map(|end| RangeClaim {
            start: 0,
            end,
            claim: Claim {
                session: None,
                tenant: TenantId::local(),
                class: BlockClass::System,
                priority: 0,
                ttl: Some(dice.span(Span::secs(2), Span::secs(10))),
                max_age: None,
            },
        });
        let prompt = Prompt {
            id,
            model: MODEL.into(),
            tenant: TenantId::local(),
            session: question.session.and_then(SessionId::new),
            tokens: Arc::new(question.tokens),
            prefix: Arc::new(prefix),
            salt: None,
            sampling: Sampling { temperature: 1.0, seed: dice.below(3), ..Sampling::GREEDY },
            limits: Limits { max_tokens: question.max_tokens, stop_tokens: Vec::new() },
            constraint: None,
            hints: Hints {
                priority,
                osl: Some(question.max_tokens),
                claims: claims.into_iter().collect(),
                ..Hints::default()
            },
        };
        self.watch.asked(now, &prompt);
        if let Some(after) = reader.leaves_after() {
            self.plan(now + after, Event::Reader(id));
        }
        let open = Open { agent, host: h, life, asked_at: now, started: false, reader };
        self.clients.open.insert(id, open);
        let at = now + way_in(&mut self.clients.dice);
        self.plan_for(h, at, Event::Asked(Box::new(prompt)));
        Some(id)
    }

    /// A second process under another node's identity takes no requests.
    fn is_second(&self, h: usize) -> bool {
        self.hosts.get(h).is_some_and(|host| host.is_twin)
    }

    /// The entry node refuses.
    pub(crate) fn client_refused(&mut self, id: RequestId, refusal: Refusal) {
        self.watch.refused(id, &refusal);
        let after = match refusal {
            Refusal::Busy { retry_after } => retry_after.max(RETRY_AFTER),
            Refusal::TooLong { .. } => Span::ZERO,
            _ => RETRY_AFTER,
        };
        self.client_failed(id, after, matches!(refusal, Refusal::TooLong { .. }));
    }

    /// The entry node died with everything it served.
    pub(crate) fn clients_cut_off(&mut self, h: usize) {
        let cut = self.clients.open.iter().filter(|(_, open)| open.host == h);
        let cut: Vec<RequestId> = cut.map(|(id, _)| *id).collect();
        for id in cut {
            self.watch.excused(id);
            self.client_failed(id, RETRY_AFTER, false);
        }
    }

    /// A request got no whole answer: its agent asks again later, or gives up.
    fn client_failed(&mut self, id: RequestId, after: Span, hopeless: bool) {
        let Some(open) = self.clients.open.remove(&id) else { return };
        self.watch.figures.failed += 1;
        if let Some(agent) = open.agent {
            self.agent_failed(agent, after, hopeless);
        }
    }

    /// An item of the answer.
    pub(crate) fn client_item(&mut self, id: RequestId, item: StreamItem) {
        let now = self.now;
        self.watch.item(now, id, &item);
        let Some(open) = self.clients.open.get_mut(&id) else { return };
        match &item {
            StreamItem::Started(started) => {
                open.started = true;
                let ttft = now.since(open.asked_at);
                self.watch.first_token(ttft, started);
            }
            StreamItem::Failed(_) => return self.client_failed(id, RETRY_AFTER, false),
            StreamItem::Tokens(_) | StreamItem::Finished(_) => {}
        }
        self.reader_gets(id, item);
    }

    /// The answer is whole and read.
    fn client_served(&mut self, id: RequestId) {
        let Some(open) = self.clients.open.remove(&id) else { return };
        self.watch.figures.served += 1;
        if let Some(agent) = open.agent {
            let answer = self.watch.answer(&id);
            self.agent_served(agent, answer);
        }
    }

    /// The client leaves; the request is cancelled through every hop.
    fn client_leaves(&mut self, id: RequestId) {
        let Some(open) = self.clients.open.get(&id) else { return };
        let (h, life) = (open.host, open.life);
        self.watch.excused(id);
        self.watch.figures.vanished += 1;
        if self.hosts.get(h).is_some_and(|host| host.life == life) {
            self.plan_for(h, self.now, Event::Left(id));
        }
        // Its agent comes back with the same turn: another client, as far as the cluster knows.
        self.client_failed(id, Span::millis(200), false);
    }
}
