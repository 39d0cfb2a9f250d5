//! Choosing a target: pure functions over index and loads.

use crate::cost::{Ask, Choice, Pricing, Speed};
use crate::index::{IndexReader, granules};
use crate::loads::{Loads, Node};
use crate::mix::{fold, mix, pick};
use crate::policy::Policy;
use crate::runs::Board;
use protocol::event::{EngineReport, MemberState};
use protocol::hash::{GRANULE, PrefixHash};
use protocol::id::{NodeId, SessionId, Target};
use protocol::plan::{Estimate, Placed, Plan, Source};
use protocol::prompt::Refusal;
use protocol::time::Time;
use serde::Serialize;
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// A prompt to be placed.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// Routing namespace ([`EngineReport::routing`]): only engines with the same one can serve it.
    pub routing: [u8; 32],
    /// Served model name, for the refusal.
    pub model: &'a str,
    /// Names of the prompt's 16-token granules.
    pub prefix: &'a [PrefixHash],
    /// Length of the prompt; at least 1.
    pub tokens: u32,
    /// Expected answer length, tokens.
    pub osl: Option<u32>,
    /// The session, when named (for [`Policy::Session`]).
    pub session: Option<&'a SessionId>,
    /// The node that asks.
    pub me: NodeId,
    /// Nodes not to choose: those that bounced the request or failed it.
    pub avoid: &'a [NodeId],
}

/// Chooses where a prompt runs. Equal inputs, loads and seed give equal choices.
///
/// Refuses with [`Refusal::NoTarget`] when no usable node serves the model and with
/// [`Refusal::TooLong`] when those that do have shorter contexts. Tell [`Loads::placed`] of the
/// choice at once, before the next one is made.
pub fn place(
    index: &IndexReader,
    loads: &Loads,
    query: &Query<'_>,
    policy: Policy,
    seed: u64,
    now: Time,
) -> Result<Placed, Refusal> {
    let decision = decide(index, loads, query, policy, seed, now);
    let (priced, why) = decision.winner(query)?;
    let plan = Plan {
        prefill: priced.target,
        decode: priced.target,
        sources: priced.choice.sources.clone(),
        estimate: priced.choice.estimate,
    };
    Ok(Placed { plan, outcome: why })
}

/// Why a target would be chosen: every candidate with its costs, for people and `--json`.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct Explanation {
    /// The policy asked.
    pub policy: &'static str,
    /// Served model name.
    pub model: String,
    /// Prompt length in tokens.
    pub tokens: u32,
    /// Index granules that were looked up.
    pub granules: usize,
    /// The seed of the choice among equals.
    pub seed: u64,
    /// The prompt would run here: index into [`Self::candidates`].
    pub winner: Option<usize>,
    /// Why, or why nowhere.
    pub why: String,
    /// Every engine of every member that is known.
    pub candidates: Vec<Candidate>,
}

/// One engine in an [`Explanation`].
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct Candidate {
    /// The node, in hexadecimal.
    pub node: String,
    /// Its engine.
    pub engine: u16,
    /// Why it cannot be chosen; `None` when it can.
    pub excluded: Option<&'static str>,
    /// Tokens from caches: the split of the prompt.
    pub split: u32,
    /// The parts of its cost.
    pub estimate: Estimate,
    /// What would be fetched for it.
    pub sources: Vec<Fetch>,
}

/// One source in an [`Explanation`].
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct Fetch {
    /// From this node, in hexadecimal.
    pub node: String,
    /// First token.
    pub start: u32,
    /// One past the last token.
    pub end: u32,
    /// Given up after so many milliseconds.
    pub deadline_ms: f64,
}

impl From<&Source> for Fetch {
    fn from(source: &Source) -> Self {
        Self {
            node: source.node.to_string(),
            start: source.start,
            end: source.end,
            deadline_ms: source.deadline.as_ms(),
        }
    }
}

/// Makes the choice of [`place`] and tells all about it; changes nothing.
pub fn explain(
    index: &IndexReader,
    loads: &Loads,
    query: &Query<'_>,
    policy: Policy,
    seed: u64,
    now: Time,
) -> Explanation {
    let decision = decide(index, loads, query, policy, seed, now);
    let (winner, why) = match decision.winner(query) {
        Ok((_, why)) => (decision.winner, why),
        Err(refusal) => (None, refusal.to_string()),
    };
    let priced = decision.priced.iter().map(|priced| Candidate {
        node: priced.target.node.to_string(),
        engine: priced.target.engine.0,
        excluded: None,
        split: query.tokens.saturating_sub(priced.choice.estimate.computed_tokens),
        estimate: priced.choice.estimate,
        sources: priced.choice.sources.iter().map(Fetch::from).collect(),
    });
    let excluded = decision.excluded.iter().map(|excluded| Candidate {
        node: excluded.target.node.to_string(),
        engine: excluded.target.engine.0,
        excluded: Some(excluded.why.text()),
        split: 0,
        estimate: Estimate::default(),
        sources: Vec::new(),
    });
    Explanation {
        policy: policy.name(),
        model: query.model.to_owned(),
        tokens: query.tokens,
        granules: decision.granules,
        seed,
        winner,
        why,
        candidates: priced.chain(excluded).collect(),
    }
}

/// Why an engine is no candidate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Why {
    State(MemberState),
    Unreachable,
    Model,
    Avoided,
    Context(u32),
}

impl Why {
    fn text(self) -> &'static str {
        match self {
            Self::State(MemberState::Suspect) => "not heard lately",
            Self::State(MemberState::Draining) => "draining",
            Self::State(MemberState::Left) => "left",
            Self::State(_) => "dead",
            Self::Unreachable => "no path from here",
            Self::Model => "serves another model",
            Self::Avoided => "was tried already",
            Self::Context(_) => "prompt exceeds its context",
        }
    }
}

struct Excluded {
    target: Target,
    why: Why,
}

struct Priced {
    target: Target,
    choice: Choice,
}

struct Decision {
    policy: Policy,
    granules: usize,
    priced: Vec<Priced>,
    excluded: Vec<Excluded>,
    winner: Option<usize>,
}

fn exclusion(node: &Node, report: &EngineReport, query: &Query<'_>) -> Option<Why> {
    if report.routing != query.routing {
        return Some(Why::Model);
    }
    if node.view.state != MemberState::Alive {
        return Some(Why::State(node.view.state));
    }
    if node.view.node != query.me && !node.reachable() {
        return Some(Why::Unreachable);
    }
    if query.avoid.contains(&node.view.node) {
        return Some(Why::Avoided);
    }
    // The answer needs at least one token of room; an engine that reports 0 did not say.
    let fits = report.context == 0 || query.tokens < report.context;
    (!fits).then_some(Why::Context(report.context))
}

fn decide(
    index: &IndexReader,
    loads: &Loads,
    query: &Query<'_>,
    policy: Policy,
    seed: u64,
    now: Time,
) -> Decision {
    let params = loads.params();
    let named = query.prefix.get(..query.tokens as usize / GRANULE).unwrap_or(query.prefix);
    let prompt = granules(named);
    let board = Board::new(index, loads, &prompt, now);
    let nodes: Vec<Arc<Node>> = loads.nodes().values().cloned().collect();
    let peers = if policy.fetches() { nodes.as_slice() } else { &[] };
    let ask = Ask { tokens: query.tokens, osl: query.osl.unwrap_or(params.osl), me: query.me, now };
    let (mut open, mut excluded) = (Vec::new(), Vec::new());
    for (node, report) in nodes.iter().flat_map(|n| n.view.engines.iter().map(move |e| (n, e))) {
        match exclusion(node, report, query) {
            None => open.push((node, report)),
            Some(why) => excluded.push(Excluded { target: node.view.target(report.engine), why }),
        }
    }
    let unmeasured = Speed::best(open.iter().map(|(_, report)| *report), params);
    let priced: Vec<Priced> = open
        .into_iter()
        .map(|(node, report)| {
            let speed = Speed::of(report, unmeasured, params);
            let pricing = Pricing { ask, loads, board: &board, node, report, speed };
            Priced { target: node.view.target(report.engine), choice: pricing.choose(peers) }
        })
        .collect();
    let winner = choose(policy, &priced, loads, query, seed);
    Decision { policy, granules: prompt.len(), priced, excluded, winner }
}

/// The candidate that the policy takes: an index into `priced`.
fn choose(
    policy: Policy,
    priced: &[Priced],
    loads: &Loads,
    query: &Query<'_>,
    seed: u64,
) -> Option<usize> {
    let n = priced.len();
    if n == 0 {
        return None;
    }
    let busy =
        |one: &Priced| f64::from(one.choice.estimate.queue_ms + one.choice.estimate.decode_ms);
    match policy {
        Policy::Kv => least(priced, |one| one.choice.cost_ms, loads, seed),
        Policy::LeastLoaded => least(priced, busy, loads, seed),
        Policy::Random => Some(pick(seed, n)),
        Policy::RoundRobin => {
            // Entry nodes begin at different places, or all would send their first to one node.
            let first = fold(0, &query.me.0) as usize % n;
            Some((first + loads.turns() as usize % n) % n)
        }
        Policy::PowerOfTwo => {
            let one = pick(seed, n);
            let other = (one + 1 + pick(mix(seed), n.max(2) - 1)) % n;
            let (a, b) = (priced.get(one)?, priced.get(other)?);
            Some(if busy(b) < busy(a) { other } else { one })
        }
        Policy::Session => {
            let key = match (query.session, query.prefix.first()) {
                (Some(session), _) => fold(1, session.as_str().as_bytes()),
                (None, Some(hash)) => fold(2, &hash.0.to_le_bytes()),
                (None, None) => mix(seed),
            };
            let weight = |target: &Target| fold(key ^ u64::from(target.engine.0), &target.node.0);
            (0..n).max_by_key(|at| priced.get(*at).map(|one| weight(&one.target)))
        }
    }
}

/// The least by `value`; among nearly equal ones the seed decides.
fn least(
    priced: &[Priced],
    value: impl Fn(&Priced) -> f64,
    loads: &Loads,
    seed: u64,
) -> Option<usize> {
    let params = loads.params();
    let best = priced.iter().map(&value).min_by(f64::total_cmp)?;
    let limit = best + params.tie_ms.max(best * params.tie_share);
    let near: Vec<usize> = priced
        .iter()
        .enumerate()
        .filter(|(_, one)| value(one) <= limit)
        .map(|(at, _)| at)
        .collect();
    near.get(pick(seed, near.len())).copied()
}

impl Decision {
    /// The winner and why, in words; or why there is none.
    fn winner(&self, query: &Query<'_>) -> Result<(&Priced, String), Refusal> {
        let Some(priced) = self.winner.and_then(|at| self.priced.get(at)) else {
            return Err(self.refusal(query));
        };
        let Estimate { cost_ms, local_tokens, peer_tokens, .. } = priced.choice.estimate;
        let (policy, n, tokens) = (self.policy, self.priced.len(), query.tokens);
        Ok((
            priced,
            format!(
                "{policy}: {cost_ms:.1} ms, one of {n}; of {tokens} tokens {local_tokens} local, \
                 {peer_tokens} from peers"
            ),
        ))
    }

    fn refusal(&self, query: &Query<'_>) -> Refusal {
        let limit = |excluded: &Excluded| match excluded.why {
            Why::Context(limit) => Some(limit),
            _ => None,
        };
        match self.excluded.iter().filter_map(limit).max() {
            Some(limit) => Refusal::TooLong { tokens: query.tokens, limit },
            None => Refusal::NoTarget { model: query.model.to_owned() },
        }
    }
}
