//! Why a prompt was not cached as far as one would expect: where it left the earlier prompts of its
//! session, and what was found of the rest.
//!
//! Bounded on all sides; names of granules are kept, not text. The text around a divergence is
//! decoded from the prompt that diverged and shown to its own tenant only.

use model::Tokenizer;
use protocol::hash::{GRANULE, PrefixHash, Token};
use protocol::id::{RequestId, SessionId, TenantId};
use protocol::prompt::{Prompt, PromptSources};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Earlier prompts of a session that a new one is compared with: harnesses mix prompts of several
/// kinds (turns, titles, summaries) in one session.
const LAST: usize = 4;
/// Memory for names of earlier prompts, in bytes.
const NAMES: u64 = 32 << 20;
/// Requests that can be asked about.
const REQUESTS: u64 = 4096;
/// How long.
const REMEMBERED: Duration = Duration::from_secs(3600);
/// Tokens shown on either side of a divergence.
const AROUND: usize = 16;

/// An earlier prompt.
struct Earlier {
    request: RequestId,
    prefix: Arc<Vec<PrefixHash>>,
}

type Session = Arc<Mutex<Vec<Earlier>>>;

/// What is known of the latest requests.
#[derive(Clone)]
pub(crate) struct Misses {
    sessions: moka::sync::Cache<(TenantId, SessionId), Session>,
    requests: moka::sync::Cache<RequestId, (TenantId, Arc<Miss>)>,
}

/// What is known of one request.
pub(crate) struct Miss {
    request: RequestId,
    session: Option<SessionId>,
    tokens: usize,
    compared: Option<Compared>,
    found: OnceLock<Found>,
}

/// The earlier prompt that shares most.
struct Compared {
    with: RequestId,
    /// Whole granules of it, in tokens.
    length: usize,
    /// Whole granules that both begin with, in tokens.
    shared: usize,
    /// Text before and after the place where they part; `None` where one only goes on.
    parting: Option<(String, String)>,
}

/// What serving it found.
struct Found {
    sources: PromptSources,
    serving_node: String,
    outcome: String,
}

impl Misses {
    pub(crate) fn new() -> Self {
        let sessions = moka::sync::Cache::builder()
            .weigher(|_, session: &Session| {
                let earlier = session.lock().unwrap_or_else(PoisonError::into_inner);
                let names: usize = earlier.iter().map(|earlier| earlier.prefix.len()).sum();
                u32::try_from(names * size_of::<PrefixHash>() + 256).unwrap_or(u32::MAX)
            })
            .max_capacity(NAMES)
            .time_to_live(REMEMBERED)
            .build();
        let requests =
            moka::sync::Cache::builder().max_capacity(REQUESTS).time_to_live(REMEMBERED).build();
        Self { sessions, requests }
    }

    /// Takes down a prompt that is about to be served.
    pub(crate) fn note(&self, prompt: &Prompt, tokenizer: &Tokenizer) -> Arc<Miss> {
        let compared = prompt.session.as_ref().and_then(|session| {
            let key = (prompt.tenant.clone(), session.clone());
            let earlier: Session = self.sessions.get(&key).unwrap_or_default();
            let compared = {
                let mut earlier = earlier.lock().unwrap_or_else(PoisonError::into_inner);
                let compared = compare(&earlier, prompt, tokenizer);
                if earlier.len() == LAST {
                    earlier.remove(0);
                }
                let prefix = prompt.prefix.clone();
                earlier.push(Earlier { request: prompt.id, prefix });
                compared
            };
            // Weighed anew.
            self.sessions.insert(key, earlier);
            compared
        });
        let miss = Arc::new(Miss {
            request: prompt.id,
            session: prompt.session.clone(),
            tokens: prompt.tokens.len(),
            compared,
            found: OnceLock::new(),
        });
        self.requests.insert(prompt.id, (prompt.tenant.clone(), miss.clone()));
        miss
    }

    /// What is known of a tenant's request.
    pub(crate) fn of(&self, tenant: &TenantId, request: &RequestId) -> Option<Arc<Miss>> {
        let (owner, miss) = self.requests.get(request)?;
        (owner == *tenant).then_some(miss)
    }
}

fn compare(earlier: &[Earlier], prompt: &Prompt, tokenizer: &Tokenizer) -> Option<Compared> {
    // The latest of those that share most: one that is shorter than what another shares is not looked
    // at, which is most of them in a session that grows.
    let mut best: Option<(usize, &Earlier)> = None;
    for earlier in earlier.iter().rev() {
        if best.is_none_or(|(most, _)| earlier.prefix.len() > most) {
            let both = earlier.prefix.iter().zip(prompt.prefix.iter());
            let shared = both.take_while(|(a, b)| a == b).count();
            if best.is_none_or(|(most, _)| shared > most) {
                best = Some((shared, earlier));
            }
        }
    }
    let (granules, with) = best?;
    let shared = granules * GRANULE;
    let goes_on = granules == with.prefix.len() || granules == prompt.prefix.len();
    let parting = (!goes_on).then(|| {
        let text = |from: usize, to: usize| {
            let to = to.min(prompt.tokens.len());
            let tokens: &[Token] = prompt.tokens.get(from..to).unwrap_or_default();
            tokenizer.decode(tokens)
        };
        (text(shared.saturating_sub(AROUND), shared), text(shared, shared + GRANULE + AROUND))
    });
    Some(Compared { with: with.request, length: with.prefix.len() * GRANULE, shared, parting })
}

impl Miss {
    /// Takes down what serving it found; only the first time counts.
    pub(crate) fn found(&self, sources: PromptSources, serving_node: &str, outcome: &str) {
        let (serving_node, outcome) = (serving_node.to_owned(), outcome.to_owned());
        let _ = self.found.set(Found { sources, serving_node, outcome });
    }

    /// The answer to the question.
    pub(crate) fn to_json(&self) -> Value {
        let compared = self.compared.as_ref().map(|compared| {
            json!({
                "request": compared.with.to_string(),
                "prompt_tokens": compared.length,
                "shared_tokens": compared.shared,
            })
        });
        let parting = self.compared.as_ref().and_then(|compared| {
            let (before, after) = compared.parting.as_ref()?;
            Some(json!({
                "token": compared.shared,
                "within": GRANULE,
                "before": before,
                "after": after,
            }))
        });
        let found = self.found.get().map(|found| {
            let PromptSources { gpu, dram, nvme, peer, computed } = found.sources;
            json!({
                "cached_tokens": { "gpu": gpu, "dram": dram, "nvme": nvme, "peer": peer },
                "computed_tokens": computed,
                "serving_node": found.serving_node,
                "outcome": found.outcome,
            })
        });
        json!({
            "request": self.request.to_string(),
            "session": self.session.as_ref().map(SessionId::as_str),
            "prompt_tokens": self.tokens,
            "compared_with": compared,
            "first_divergence": parting,
            "found": found,
            "verdict": self.verdict(),
        })
    }

    /// In one sentence.
    fn verdict(&self) -> String {
        let Some(found) = self.found.get() else {
            return "It has not been served yet.".into();
        };
        let cached = found.sources.cached() as usize;
        let Some(compared) = &self.compared else {
            let why = match &self.session {
                Some(_) => "It is the first of its session that came through this node",
                None => "It names no session (header x-dynamo-session-id)",
            };
            return format!(
                "{why}, so there is nothing to compare it with; {cached} tokens were cached."
            );
        };
        let shared = compared.shared;
        // The last granule is computed anyway where the prompt ends with it.
        if cached + GRANULE < shared {
            return format!(
                "{shared} tokens begin like request {}, but only {cached} were cached for {}: the \
                 others were evicted, or that node did not know yet who holds them.",
                compared.with, found.serving_node,
            );
        }
        match &compared.parting {
            None => format!(
                "No miss: it goes on from request {}, and {cached} tokens were cached.",
                compared.with
            ),
            Some(_) => format!(
                "It parts from request {} within the {GRANULE} tokens from {shared} on: from there on \
                 everything had to be computed (of {} tokens that were shared until then {cached} were \
                 cached).",
                compared.with, shared,
            ),
        }
    }
}

#[cfg(test)]
mod tests;
