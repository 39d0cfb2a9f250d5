//! Every request is answered exactly once, and its tokens are those that a lone engine with nothing
//! cached gives: so no wrong byte was used.

use crate::host::engine_config;
use crate::scenario::Scenario;
use protocol::block::{Generation, SlotId, SlotRef};
use protocol::hash::Token;
use protocol::id::{EngineId, RequestId};
use protocol::machine::Machine;
use protocol::op::{Grant, LeaseId};
use protocol::prompt::{FinishReason, Prompt, StreamItem};
use protocol::time::Time;
use std::collections::BTreeMap;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Open,
    Answered,
    /// Its client or its entry node went away.
    Excused,
}

#[derive(Debug)]
struct Request {
    prompt: Prompt,
    tokens: Vec<Token>,
    started: bool,
    end: End,
}

/// All requests of a run.
pub(super) struct Answers {
    config: mock::Config,
    requests: BTreeMap<RequestId, Request>,
    /// Requests that are over; only their ids are kept.
    over: BTreeMap<RequestId, Vec<Token>>,
}

impl Answers {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let config = engine_config(scenario, EngineId(0));
        Self { config, requests: BTreeMap::new(), over: BTreeMap::new() }
    }

    pub(super) fn asked(&mut self, prompt: &Prompt) {
        let request =
            Request { prompt: prompt.clone(), tokens: Vec::new(), started: false, end: End::Open };
        self.requests.insert(prompt.id, request);
    }

    /// Its client or its entry node went away: nothing is owed any more.
    pub(super) fn excused(&mut self, id: &RequestId) {
        if let Some(request) = self.requests.get_mut(id) {
            request.end = End::Excused;
        }
    }

    pub(super) fn refused(&mut self, id: &RequestId) -> Result<(), String> {
        let request = self.requests.get_mut(id).ok_or("an unknown request is refused")?;
        if request.end == End::Answered || request.started {
            return Err(format!("{id:?} is refused after it was answered"));
        }
        if request.end == End::Open {
            request.end = End::Answered;
        }
        Ok(())
    }

    /// An item for a client.
    pub(super) fn item(&mut self, id: &RequestId, item: &StreamItem) -> Result<(), String> {
        if self.over.contains_key(id) {
            return Err(format!("{id:?} is answered twice"));
        }
        let request = self.requests.get_mut(id).ok_or("an item of an unknown request")?;
        match request.end {
            End::Excused => return Ok(()),
            End::Answered => return Err(format!("{id:?} is answered twice")),
            End::Open => {}
        }
        match item {
            StreamItem::Started(started) => {
                let again = std::mem::replace(&mut request.started, true);
                let (told, asked) = (started.prompt.total() as usize, request.prompt.tokens.len());
                if again {
                    return Err(format!("{id:?} starts twice"));
                }
                if told != asked {
                    return Err(format!(
                        "{id:?} has {asked} prompt tokens, its sources add up to {told}"
                    ));
                }
            }
            StreamItem::Tokens(tokens) => {
                if !request.started {
                    return Err(format!("{id:?} has tokens before its start"));
                }
                request.tokens.extend(tokens);
            }
            StreamItem::Failed(_) => request.end = End::Answered,
            StreamItem::Finished(finish) => {
                request.end = End::Answered;
                if finish.output_tokens as usize != request.tokens.len() {
                    let (told, got) = (finish.output_tokens, request.tokens.len());
                    return Err(format!("{id:?} says {told} tokens and sent {got}"));
                }
                return self.verify(id, finish.reason);
            }
        }
        Ok(())
    }

    fn verify(&mut self, id: &RequestId, reason: FinishReason) -> Result<(), String> {
        let Some(request) = self.requests.remove(id) else { return Ok(()) };
        let (expected, why) = reference(&self.config, &request.prompt)?;
        let wrong = expected.iter().zip(&request.tokens).position(|(a, b)| a != b);
        let verdict = match wrong {
            Some(at) => Err(format!("{id:?}: token {at} of its answer is wrong")),
            None if expected.len() != request.tokens.len() => {
                let (want, got) = (expected.len(), request.tokens.len());
                Err(format!("{id:?} ends after {got} tokens instead of {want}"))
            }
            None if why != reason => Err(format!("{id:?} ends with {reason:?} instead of {why:?}")),
            None => Ok(()),
        };
        self.over.insert(*id, request.tokens);
        verdict
    }

    /// The answer of a request that is over; can be taken once.
    pub(super) fn take(&mut self, id: &RequestId) -> Vec<Token> {
        self.over.get_mut(id).map(std::mem::take).unwrap_or_default()
    }

    /// Requests without an end.
    pub(super) fn open(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.requests.iter().filter(|(_, r)| r.end == End::Open).map(|(id, _)| *id)
    }
}

/// What a lone engine with an empty pool answers.
fn reference(config: &mock::Config, prompt: &Prompt) -> Result<(Vec<Token>, FinishReason), String> {
    let block = config.spec.storage.block_tokens as usize;
    let most = prompt.tokens.len() + prompt.limits.max_tokens as usize;
    let slots = u32::try_from(most.div_ceil(block) + 1).unwrap_or(u32::MAX);
    let mut config = config.clone();
    config.spec.slots = slots;
    let mut engine = mock::Engine::new(config).map_err(|error| error.to_string())?;
    let slot = |slot| SlotRef { slot: SlotId(slot), generation: Generation(1) };
    let lease = LeaseId(1);
    let grant =
        Grant { lease, slots: (0..slots).map(slot).collect(), ready: 0, arriving: Vec::new() };
    let job = mock::Job {
        request: prompt.id,
        grant,
        prompt: prompt.tokens.clone(),
        sampling: prompt.sampling,
        limits: prompt.limits.clone(),
        priority: 0,
        arrived: Time::ZERO,
        serving_node: protocol::id::NodeId([0; 32]),
        script: None,
        resumed: 0,
    };
    let (mut tokens, mut out) = (Vec::new(), Vec::new());
    engine.handle(Time(1), mock::In::Submit(Box::new(job)), &mut out);
    loop {
        for effect in out.drain(..) {
            match effect {
                mock::Out::Item(_, StreamItem::Tokens(more)) => tokens.extend(more),
                mock::Out::Item(_, StreamItem::Finished(finish)) => {
                    return Ok((tokens, finish.reason));
                }
                mock::Out::Refused(_, refusal) => return Err(refusal.to_string()),
                _ => {}
            }
        }
        let Some(next) = engine.deadline() else {
            return Err("the reference engine stands still".into());
        };
        engine.tick(next, &mut out);
    }
}
