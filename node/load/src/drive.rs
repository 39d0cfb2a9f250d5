//! Runs sessions of agents against nodes: who calls whom, and when.
//!
//! Every call goes through another entry node, by session, agent and turn, so that the same seed
//! asks the same nodes. Sub-agents of a lead run at the same time; the lead waits for them.

use crate::agents::{AgentPlan, AgentRun, SessionPlan, Turn};
use crate::ceiling::{AgentKey, Ledger};
use crate::client::{Call, Client, Outcome};
use crate::error::LoadError;
use crate::talk::{Conversation, Message, Preamble};
use futures::future::join_all;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;

/// One finished call.
#[derive(Debug, Clone)]
pub struct Record {
    /// Session and position of the agent.
    pub agent: AgentKey,
    /// Turn, from 0.
    pub turn: u32,
    /// Position of the entry node.
    pub entry: usize,
    /// What came of it.
    pub outcome: Outcome,
    /// Prompt tokens that a perfect cache would have held; 0 for a failed call.
    pub ceiling_tokens: u64,
}

/// Drives agents against one cluster.
#[derive(Debug)]
pub struct Driver {
    client: Client,
    entries: Vec<String>,
    model: String,
    ledger: Mutex<Ledger>,
}

impl Driver {
    /// A driver for nodes with these base addresses. Asks one of them how long the preamble is.
    pub async fn new(
        client: Client,
        entries: Vec<String>,
        model: String,
        preamble: &Arc<Preamble>,
    ) -> Result<Self, LoadError> {
        let first = entries.first().cloned().unwrap_or_default();
        let tokens = preamble_tokens(&client, &first, &model, preamble).await?;
        Ok(Self { client, entries, model, ledger: Mutex::new(Ledger::new(tokens)) })
    }

    /// The client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The model asked for.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Runs a session to its end and sends each finished call to `sink`.
    pub async fn session(&self, plan: SessionPlan, sink: &mpsc::Sender<Record>) {
        let delegates_at = plan.delegates_at;
        let mut subs = plan.subs;
        let mut lead = AgentRun::new(plan.lead);
        let offset = lead.plan().session as usize;
        while let Some(turn) = lead.upcoming() {
            let mut reports = Vec::new();
            if turn == delegates_at {
                let team = std::mem::take(&mut subs);
                reports = join_all(team.into_iter().map(|sub| self.agent(sub, sink))).await;
            }
            self.turn(&mut lead, &reports, offset + turn as usize, sink).await;
        }
    }

    /// Runs a sub-agent to its end; returns its name and report.
    async fn agent(&self, plan: AgentPlan, sink: &mpsc::Sender<Record>) -> (String, String) {
        let mut agent = AgentRun::new(plan);
        let offset = (agent.plan().session + agent.plan().agent) as usize;
        while let Some(turn) = agent.upcoming() {
            self.turn(&mut agent, &[], offset + turn as usize, sink).await;
        }
        (format!("agent {}", agent.plan().agent), agent.report().to_owned())
    }

    /// Pauses, makes one call through the entry of that number (modulo their count), and sends
    /// it to `sink`.
    pub async fn turn(
        &self,
        agent: &mut AgentRun,
        reports: &[(String, String)],
        entry: usize,
        sink: &mpsc::Sender<Record>,
    ) {
        tokio::time::sleep(agent.pause()).await;
        let Some(turn) = agent.next(reports) else {
            return;
        };
        let record = self.call(agent, turn, entry % self.entries.len().max(1)).await;
        agent.answered(&record.outcome);
        // Nobody listens any more when the arm's time is over.
        let _ = sink.send(record).await;
    }

    /// Makes an agent's call through an entry, without pause.
    pub async fn call(&self, agent: &AgentRun, turn: Turn, entry: usize) -> Record {
        let key = (agent.plan().session, agent.plan().agent);
        let base = self.entries.get(entry).map_or("", String::as_str);
        let mut call = Call::new(base, agent.plan().dialect, &self.model, turn.conversation);
        call.max_tokens = turn.max_tokens;
        let lead = format!("s{}", key.0);
        call.session = Some(match key.1 {
            0 => (lead, None),
            position => (format!("{lead}-a{position}"), Some(lead)),
        });
        let reusable = self.with_ledger(|ledger| ledger.sent(key, turn.fresh));
        let outcome = self.client.call(&call).await;
        let ceiling_tokens = if outcome.ok() {
            let (prompt, generated) = (outcome.prompt_tokens, outcome.completion_tokens);
            self.with_ledger(|ledger| ledger.answered(key, reusable, prompt, generated))
        } else {
            0
        };
        Record { agent: key, turn: turn.turn, entry, outcome, ceiling_tokens }
    }

    fn with_ledger<T>(&self, act: impl FnOnce(&mut Ledger) -> T) -> T {
        act(&mut self.ledger.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Tokens that two conversations with this preamble share when their first messages differ from
/// the first word on. With one-word messages, one more message costs its markers and the word;
/// as much follows the shared part in the shortest conversation: the word, the end of the user's
/// message and the beginning of the answer.
async fn preamble_tokens(
    client: &Client,
    entry: &str,
    model: &str,
    preamble: &Arc<Preamble>,
) -> Result<u64, LoadError> {
    let word = || Message::User("x".into());
    let answer = Message::Assistant { text: "x".into(), calls: Vec::new() };
    let with = |messages| Conversation { preamble: preamble.clone(), messages };
    let short = client.count_tokens(entry, model, &with(vec![word()])).await?;
    let long = client.count_tokens(entry, model, &with(vec![word(), answer, word()])).await?;
    Ok(short.saturating_sub(long.saturating_sub(short).div_ceil(2)))
}

#[cfg(test)]
mod tests;
