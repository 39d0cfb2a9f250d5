//! Agents as a load: what they say, when, and how their histories grow.
//!
//! A *session* is a lead agent with several turns and sub-agents that the lead waits for in the
//! middle of its work. All agents of a run begin with the same preamble (system prompt and
//! tools). A turn adds to the history what a tool returned, in varied sizes, after an
//! exponentially distributed pause; the model's own answers are appended as they came. When a
//! history comes near the context limit the agent compacts it, as real harnesses do.
//!
//! Everything but the model's answers follows from the seed. This module does no I/O: see
//! [`crate::drive`] for who calls the nodes.

pub(crate) mod words;

use crate::client::{Dialect, Outcome};
use crate::talk::{Conversation, Message, Preamble, Tool, ToolCall};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use words::Words;

/// At least so many characters of sentences: a function of the seed and the number of the stream.
pub(crate) fn plain_words(seed: u64, stream: u64, characters: usize) -> String {
    let mut words = Words::new(seed, stream);
    // A word and its space have at least two characters.
    words.sentences(u32::try_from(characters / 2 + 1).unwrap_or(u32::MAX))
}

/// Tools of the harness, with what they are good for and their arguments.
const TOOLS: [(&str, &str, [&str; 2]); 4] = [
    ("read_file", "Read a part of a file", ["path", "lines"]),
    ("search_code", "Find a pattern in all files", ["pattern", "folder"]),
    ("run_tests", "Run the tests of a module", ["module", "filter"]),
    ("ask_agent", "Give a task to another agent and wait for its report", ["name", "task"]),
];
/// Tokens of one of our words, from above: a guard for the context limit, not a measurement.
const TOKENS_PER_WORD: f64 = 1.5;
/// Tokens that roles and markers add to a turn, from above.
const TOKENS_PER_TURN: u64 = 24;
/// A pause is cut at this many times its mean, so that a run's length is bounded.
const PAUSE_MAX_MEANS: f64 = 4.0;

/// Shape of the load. The defaults fit a model with a context of 2,048 tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentOptions {
    /// Seed of words, sizes and pauses.
    pub seed: u64,
    /// Turns of a lead.
    pub turns: u32,
    /// Sub-agents of a lead.
    pub sub_agents: u32,
    /// Turns of a sub-agent.
    pub sub_turns: u32,
    /// Words of the system prompt.
    pub system_words: u32,
    /// Words of a tool result, smallest and largest.
    pub result_words: (u32, u32),
    /// Most tokens generated in a turn, smallest and largest.
    pub output_tokens: (u32, u32),
    /// Mean pause before a turn.
    pub pause_mean: Duration,
    /// Prompt length that is not exceeded; the history is compacted before.
    pub context_tokens: u64,
    /// API of the leads.
    pub lead_dialect: Dialect,
    /// API of the sub-agents.
    pub sub_dialect: Dialect,
}

impl Default for AgentOptions {
    fn default() -> Self {
        Self {
            seed: 1,
            turns: 4,
            sub_agents: 2,
            sub_turns: 2,
            system_words: 150,
            result_words: (20, 90),
            output_tokens: (16, 48),
            pause_mean: Duration::from_millis(400),
            context_tokens: 1_700,
            lead_dialect: Dialect::Chat,
            sub_dialect: Dialect::Messages,
        }
    }
}

impl AgentOptions {
    /// Calls of one session.
    pub fn calls_per_session(&self) -> u32 {
        self.turns + self.sub_agents * self.sub_turns
    }

    /// The preamble of all agents: a function of the seed and the number of words.
    pub fn preamble(&self) -> Arc<Preamble> {
        let mut words = Words::new(self.seed, u64::MAX);
        let system = format!(
            "You are one of several agents that work on a program together. {}",
            words.sentences(self.system_words)
        );
        let tools = TOOLS.iter().map(|(name, purpose, arguments)| {
            let argument =
                |words: &mut Words| json!({ "type": "string", "description": words.sentence(6) });
            Tool {
                name: (*name).to_owned(),
                description: format!("{purpose}. {}", words.sentence(8)),
                parameters: json!({
                    "type": "object",
                    "properties": {
                        arguments[0]: argument(&mut words),
                        arguments[1]: argument(&mut words),
                    },
                    "required": [arguments[0]],
                }),
            }
        });
        Arc::new(Preamble { tools: tools.collect(), system })
    }

    /// The sessions of a run.
    pub fn sessions(&self, count: u32) -> Vec<SessionPlan> {
        let preamble = self.preamble();
        (0..count).map(|session| self.session(session, &preamble)).collect()
    }

    fn session(&self, session: u32, preamble: &Arc<Preamble>) -> SessionPlan {
        let lead = self.agent(session, 0, preamble);
        let subs = (1..=self.sub_agents).map(|agent| self.agent(session, agent, preamble));
        SessionPlan { session, lead, subs: subs.collect(), delegates_at: self.turns / 2 }
    }

    fn agent(&self, session: u32, agent: u32, preamble: &Arc<Preamble>) -> AgentPlan {
        let mut words = Words::new(self.seed, (u64::from(session) << 16) | u64::from(agent));
        let turns = if agent == 0 { self.turns } else { self.sub_turns };
        let steps = (0..turns)
            .map(|turn| {
                let size = words.between(self.result_words);
                Step {
                    tool: TOOLS[words.below(3) as usize].0,
                    text: if turn == 0 {
                        format!("Task {session}.{agent}: {}", words.sentences(size))
                    } else {
                        words.sentences(size)
                    },
                    max_tokens: words.between(self.output_tokens),
                    pause: words.pause(self.pause_mean, PAUSE_MAX_MEANS),
                }
            })
            .collect();
        let dialect = if agent == 0 { self.lead_dialect } else { self.sub_dialect };
        AgentPlan {
            session,
            agent,
            dialect,
            preamble: preamble.clone(),
            steps,
            context_tokens: self.context_tokens,
        }
    }
}

/// One turn as planned.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Tool that the text comes from, in every turn but the first.
    pub tool: &'static str,
    /// The task (first turn) or the tool's output.
    pub text: String,
    /// Most tokens to generate.
    pub max_tokens: u32,
    /// Pause before the turn: thinking and the tool's own time.
    pub pause: Duration,
}

/// One agent as planned.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentPlan {
    /// Session.
    pub session: u32,
    /// Position in the session; 0 is the lead.
    pub agent: u32,
    /// API that it speaks.
    pub dialect: Dialect,
    /// System prompt and tools.
    pub preamble: Arc<Preamble>,
    /// Its turns.
    pub steps: Vec<Step>,
    /// Prompt length that is not exceeded.
    pub context_tokens: u64,
}

/// A lead and its sub-agents.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionPlan {
    /// Number of the session.
    pub session: u32,
    /// The lead.
    pub lead: AgentPlan,
    /// Its sub-agents.
    pub subs: Vec<AgentPlan>,
    /// The lead's turn whose input are the reports of the sub-agents, which run before it.
    pub delegates_at: u32,
}

/// An agent at work: its history so far.
#[derive(Debug, Clone)]
pub struct AgentRun {
    plan: AgentPlan,
    history: Vec<Message>,
    /// Calls of the last answer that want a result.
    open_calls: Vec<ToolCall>,
    last_answer: String,
    /// Length of the history as a prompt, as far as the answers told.
    tokens: u64,
    turn: u32,
}

/// The next call of an agent.
#[derive(Debug, Clone)]
pub struct Turn {
    /// Number of the turn, from 0.
    pub turn: u32,
    /// The input.
    pub conversation: Conversation,
    /// Most tokens to generate.
    pub max_tokens: u32,
    /// True when the history begins anew: the first turn, and after a compaction.
    pub fresh: bool,
}

impl AgentRun {
    /// An agent before its first turn.
    pub fn new(plan: AgentPlan) -> Self {
        Self {
            plan,
            history: Vec::new(),
            open_calls: Vec::new(),
            last_answer: String::new(),
            tokens: 0,
            turn: 0,
        }
    }

    /// Its plan.
    pub fn plan(&self) -> &AgentPlan {
        &self.plan
    }

    /// Its last answer: what it reports to its lead.
    pub fn report(&self) -> &str {
        &self.last_answer
    }

    /// The history so far: it ends with the model's last answer.
    pub fn history(&self) -> &[Message] {
        &self.history
    }

    /// Number of the next turn; none when its work is done.
    pub fn upcoming(&self) -> Option<u32> {
        self.step().map(|_| self.turn)
    }

    /// Pause before the next turn.
    pub fn pause(&self) -> Duration {
        self.step().map_or(Duration::ZERO, |step| step.pause)
    }

    fn step(&self) -> Option<&Step> {
        self.plan.steps.get(self.turn as usize)
    }

    /// The next call, or none when its work is done. `reports` (name and text) take the place of
    /// the planned tool output. [`Self::answered`] must follow.
    pub fn next(&mut self, reports: &[(String, String)]) -> Option<Turn> {
        let step = self.step()?.clone();
        let input = if reports.is_empty() { step.text.clone() } else { joined(reports) };
        let tool = if reports.is_empty() { step.tool } else { TOOLS[3].0 };
        let first = self.history.is_empty();
        let fresh = first || self.would_exceed(&input, step.max_tokens);
        if first {
            self.history.push(Message::User(input));
        } else if fresh {
            self.compact(&input);
        } else {
            self.append_result(tool, input);
        }
        let messages = self.history.clone();
        Some(Turn {
            turn: self.turn,
            conversation: Conversation { preamble: self.plan.preamble.clone(), messages },
            max_tokens: step.max_tokens,
            fresh,
        })
    }

    fn would_exceed(&self, input: &str, max_tokens: u32) -> bool {
        let words = input.split_whitespace().count() as f64;
        let added = (words * TOKENS_PER_WORD) as u64 + TOKENS_PER_TURN + u64::from(max_tokens);
        self.tokens + added > self.plan.context_tokens
    }

    fn compact(&mut self, input: &str) {
        let summary = format!("Summary of the work so far: {}. Go on. {input}", self.last_answer);
        self.history = vec![Message::User(summary)];
        self.open_calls.clear();
    }

    /// The model's calls get the output as their result. A small model often makes none; then
    /// the harness hands the output over as the user, and the history stays append-only.
    fn append_result(&mut self, tool: &str, input: String) {
        let calls = std::mem::take(&mut self.open_calls);
        if calls.is_empty() {
            self.history.push(Message::User(format!("Result of {tool}: {input}")));
        }
        for (position, call) in calls.into_iter().enumerate() {
            let text = if position == 0 { input.clone() } else { "done".to_owned() };
            self.history.push(Message::ToolResult { call: call.id, text });
        }
    }

    /// Takes the answer. After a failed call the question is withdrawn and the work goes on with
    /// the next turn.
    pub fn answered(&mut self, outcome: &Outcome) {
        self.turn += 1;
        if !outcome.ok() {
            while matches!(self.history.last(), Some(Message::User(_) | Message::ToolResult { .. }))
            {
                self.history.pop();
            }
            if let Some(Message::Assistant { calls, .. }) = self.history.last() {
                self.open_calls.clone_from(calls);
            }
            return;
        }
        // Dialects refuse an empty answer in a history.
        let silent = outcome.text.is_empty() && outcome.calls.is_empty();
        let text = if silent { "(no answer)".to_owned() } else { outcome.text.clone() };
        self.last_answer.clone_from(&text);
        self.open_calls.clone_from(&outcome.calls);
        self.history.push(Message::Assistant { text, calls: outcome.calls.clone() });
        self.tokens = outcome.prompt_tokens + outcome.completion_tokens;
    }
}

fn joined(reports: &[(String, String)]) -> String {
    let lines: Vec<String> =
        reports.iter().map(|(name, text)| format!("Report of {name}: {text}")).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests;
