//! Generated agents: leads and sub-agents that share system prompt and tools, whose histories grow by
//! answers and tool results, with pauses while tools run.

use super::{Question, TRIES, pauses};
use crate::mail::Event;
use crate::world::World;
use protocol::hash::{PrefixHash, Token};
use protocol::time::Span;

/// What an agent is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// It pauses, or its request is under way.
    Working,
    /// It waits for its sub-agents.
    Waiting,
    /// It has nothing more to do.
    Idle,
}

/// An agent and its conversation.
pub(crate) struct Agent {
    family: u64,
    /// Names its session.
    name: String,
    state: State,
    /// The lead that waits for it.
    lead: Option<usize>,
    subs_left: u32,
    has_delegated: bool,
    turn: u32,
    turns: u32,
    history: Vec<Token>,
    prefix: Vec<PrefixHash>,
    max_tokens: u32,
    pins: bool,
    tries: u32,
    asks: bool,
}

impl Agent {
    /// Whether a turn of it is under way or due.
    pub(crate) fn is_asking(&self) -> bool {
        self.asks
    }

    pub(crate) fn tries(&self) -> u32 {
        self.tries
    }
}

impl World {
    /// Sends the first agents to work, not all at once.
    pub(crate) fn start_agents(&mut self) {
        for lead in 0..self.clients.workload.sessions {
            let agent = self.hire(u64::from(lead), None);
            let half = Span(u64::from(self.scenario.seconds) * 300_000_000);
            let at = self.now + Span(self.clients.dice.below(half.0 + 1));
            self.plan(at, Event::Agent(agent));
        }
    }

    /// A new agent with a new task.
    fn hire(&mut self, number: u64, lead: Option<usize>) -> usize {
        let w = self.clients.workload.clone();
        let family = number % u64::from(w.families);
        let task = self.clients.dice.between(1, u64::from(w.turn_tokens) * 2);
        let mut history = system_prompt(family, w.system_tokens);
        history.extend(self.clients.tokens(task));
        let pins = lead.is_none() && self.clients.dice.share(w.pins);
        let id = self.clients.agents.len();
        self.clients.agents.push(Agent {
            family,
            name: format!("agent-{id}"),
            state: State::Working,
            lead,
            subs_left: 0,
            has_delegated: false,
            turn: 0,
            turns: if lead.is_some() { w.sub_turns } else { w.turns },
            history,
            prefix: Vec::new(),
            max_tokens: 0,
            pins,
            tries: 0,
            asks: false,
        });
        id
    }

    /// An agent's pause is over.
    pub(crate) fn agent_acts(&mut self, id: usize) {
        let (calm, most) = (!self.stormy, self.clients.workload.output_tokens);
        let context = self.scenario.cluster.context;
        let Some(agent) = self.clients.agents.get(id) else { return };
        if agent.state != State::Working {
            return;
        }
        // No new turns in the liveness phase; a turn that was asked for is asked until it is served.
        let (is_new, name) = (agent.tries == 0, agent.name.clone());
        if calm && is_new {
            return self.agent_stops(id);
        }
        let room = (context as usize).saturating_sub(agent.history.len() + 1);
        let max_tokens = match is_new {
            true => self.clients.dice.between(1, u64::from(most)) as u32,
            false => agent.max_tokens,
        };
        if room < max_tokens as usize {
            return self.agent_ends(id); // a real one would compact its history
        }
        let Some(agent) = self.clients.agents.get_mut(id) else { return };
        agent.max_tokens = max_tokens;
        agent.tries += 1;
        agent.asks = true;
        let pinned = agent.pins.then_some(self.scenario.workload.system_tokens);
        let question = Question {
            session: Some(&name),
            tokens: agent.history.clone(),
            known: agent.prefix.clone(),
            max_tokens,
            pinned,
        };
        if self.ask(Some(id), None, question).is_none() {
            self.agent_failed(id, Span::millis(300), false);
        }
    }

    /// A turn failed: the same one again, after a while.
    pub(crate) fn agent_failed(&mut self, id: usize, after: Span, hopeless: bool) {
        let now = self.now;
        let Some(agent) = self.clients.agents.get(id) else { return };
        if hopeless || agent.tries > TRIES {
            if !hopeless {
                self.watch.found("liveness", 0, "a turn was not served in hundreds of tries");
            }
            return self.agent_ends(id);
        }
        self.plan(now + after, Event::Agent(id));
    }

    /// A turn is served: the answer joins the history, tools run, the next turn follows.
    pub(crate) fn agent_served(&mut self, id: usize, answer: Vec<Token>) {
        let now = self.now;
        let w = &self.clients.workload;
        let (scale, most) = (w.pause_scale, Span::millis(w.pause_max_ms));
        let (result, subs) = (u64::from(w.turn_tokens) * 2, w.sub_agents);
        let count = self.clients.dice.between(1, result);
        let result = self.clients.tokens(count);
        let pause = pauses::pause(&mut self.clients.dice, scale, most);
        let Some(agent) = self.clients.agents.get_mut(id) else { return };
        agent.tries = 0;
        agent.asks = false;
        agent.turn += 1;
        agent.history.extend(answer);
        agent.prefix = self.key.chain(&agent.prefix, &agent.history);
        agent.history.extend(result);
        if agent.turn >= agent.turns {
            return self.agent_ends(id);
        }
        let delegates = agent.lead.is_none() && subs > 0 && agent.turn * 2 >= agent.turns;
        if delegates && !agent.has_delegated {
            agent.has_delegated = true;
            agent.state = State::Waiting;
            agent.subs_left = subs;
            let family = agent.family;
            for _ in 0..subs {
                let sub = self.hire(family, Some(id));
                let pause = pauses::pause(&mut self.clients.dice, scale, most);
                self.plan(now + pause, Event::Agent(sub));
            }
            return;
        }
        self.plan(now + pause, Event::Agent(id));
    }

    /// An agent is done: its lead may go on, or the next session begins.
    fn agent_ends(&mut self, id: usize) {
        let now = self.now;
        let Some(agent) = self.clients.agents.get_mut(id) else { return };
        agent.state = State::Idle;
        agent.asks = false;
        agent.history = Vec::new();
        agent.prefix = Vec::new();
        let (lead, family) = (agent.lead, agent.family);
        match lead {
            Some(lead) => self.sub_returned(lead),
            None if self.stormy => {
                let next = self.hire(family, None);
                let pause = self.clients.dice.span(Span::millis(1), Span::millis(500));
                self.plan(now + pause, Event::Agent(next));
            }
            None => {}
        }
    }

    fn agent_stops(&mut self, id: usize) {
        let Some(agent) = self.clients.agents.get_mut(id) else { return };
        agent.state = State::Idle;
        agent.asks = false;
    }

    fn sub_returned(&mut self, lead: usize) {
        let now = self.now;
        let report = self.clients.dice.between(1, 64);
        let report = self.clients.tokens(report);
        let Some(agent) = self.clients.agents.get_mut(lead) else { return };
        agent.history.extend(report);
        agent.subs_left = agent.subs_left.saturating_sub(1);
        if agent.subs_left == 0 && agent.state == State::Waiting {
            agent.state = State::Working;
            self.plan(now + Span::millis(50), Event::Agent(lead));
        }
    }
}

/// System prompt and tools of a family: the same in every run.
fn system_prompt(family: u64, tokens: u32) -> Vec<Token> {
    let mut dice = crate::dice::Dice::new(family, "system prompt");
    (0..tokens)
        .map(|_| Token(1 + dice.below(u64::from(crate::host::VOCABULARY) - 1) as u32))
        .collect()
}
