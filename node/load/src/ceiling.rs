//! The load's own cache ceiling: how many prompt tokens a perfect cache would have held.
//!
//! Perfect means that everything that was sent or generated before a call is cached, in whole
//! granules of 16 tokens, and that at least one prompt token is computed. A call that continues a
//! conversation can reuse that conversation's last prompt and answer; one that begins a
//! conversation can reuse the preamble that all agents share. Both lengths come from token
//! counts that the nodes returned, so no tokenizer is needed here. What could be shared beyond
//! that by chance (equal first words of two tasks) is not counted: less than a granule.

use protocol::hash::GRANULE;
use std::collections::BTreeMap;

/// Names an agent of a run: session and position in the session.
pub type AgentKey = (u32, u32);

/// What could be reused by a call, in tokens; made when it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reusable(u64);

/// Keeps what was sent and generated.
#[derive(Debug)]
pub struct Ledger {
    preamble_tokens: u64,
    preamble_sent: bool,
    conversations: BTreeMap<AgentKey, u64>,
}

impl Ledger {
    /// A ledger before the first call; `preamble_tokens` is the length of the shared beginning.
    pub fn new(preamble_tokens: u64) -> Self {
        Self { preamble_tokens, preamble_sent: false, conversations: BTreeMap::new() }
    }

    /// Notes that an agent sends a call; `fresh` when its history begins anew.
    pub fn sent(&mut self, agent: AgentKey, fresh: bool) -> Reusable {
        let shared = if self.preamble_sent { self.preamble_tokens } else { 0 };
        self.preamble_sent = true;
        let own = if fresh { 0 } else { self.conversations.get(&agent).copied().unwrap_or(0) };
        Reusable(own.max(shared))
    }

    /// Notes the answer and returns the call's ceiling in tokens.
    pub fn answered(
        &mut self,
        agent: AgentKey,
        reusable: Reusable,
        prompt_tokens: u64,
        completion_tokens: u64,
    ) -> u64 {
        self.conversations.insert(agent, prompt_tokens + completion_tokens);
        let granule = GRANULE as u64;
        reusable.0.min(prompt_tokens.saturating_sub(1)) / granule * granule
    }
}

#[cfg(test)]
mod tests;
