//! The conversation of the demo, call by call.

use super::screen::Screen;
use crate::agents::AgentRun;
use crate::drive::{Driver, Record};
use crate::error::LoadError;
use crate::fleet::Fleet;
use futures::future::join_all;
use std::collections::BTreeSet;

/// Calls made so far and what was wrong with them.
pub(super) struct Talk<'a> {
    driver: &'a Driver,
    calls: usize,
    records: Vec<Record>,
    /// Checks that failed.
    pub(super) failures: Vec<String>,
    /// Positions of killed nodes: no call goes through them.
    pub(super) dead: BTreeSet<usize>,
}

impl<'a> Talk<'a> {
    pub(super) fn new(driver: &'a Driver) -> Self {
        Self { driver, calls: 0, records: Vec::new(), failures: Vec::new(), dead: BTreeSet::new() }
    }

    /// Notes a failed check.
    pub(super) fn fail(&mut self, why: String) {
        self.failures.push(why);
    }

    /// The table's head.
    pub(super) fn head(&self, screen: &mut Screen<'_>) -> Result<(), LoadError> {
        screen.line(
            "call  agent  turn api      entry served prompt    gpu   dram  nvme   peer computed \
             ttft ms  tok/s",
        )
    }

    /// One turn of an agent.
    pub(super) async fn turn(
        &mut self,
        agent: &mut AgentRun,
        reports: &[(String, String)],
        fleet: &Fleet,
        screen: &mut Screen<'_>,
    ) -> Result<(), LoadError> {
        let entry = self.entry(fleet);
        tokio::time::sleep(agent.pause()).await;
        let Some(turn) = agent.next(reports) else {
            return Ok(());
        };
        let record = self.driver.call(agent, turn, entry).await;
        agent.answered(&record.outcome);
        self.note(record, fleet, screen)
    }

    /// All turns of the sub-agents, who work at the same time; returns their reports.
    pub(super) async fn team(
        &mut self,
        subs: &mut [AgentRun],
        fleet: &Fleet,
        screen: &mut Screen<'_>,
    ) -> Result<Vec<(String, String)>, LoadError> {
        while subs.iter().any(|sub| sub.upcoming().is_some()) {
            let driver = self.driver;
            let round = subs.iter_mut().map(|sub| (sub, self.entry(fleet))).collect::<Vec<_>>();
            let calls = round.into_iter().map(|(sub, entry)| async move {
                tokio::time::sleep(sub.pause()).await;
                let turn = sub.next(&[])?;
                let record = driver.call(sub, turn, entry).await;
                sub.answered(&record.outcome);
                Some(record)
            });
            for record in join_all(calls).await.into_iter().flatten() {
                self.note(record, fleet, screen)?;
            }
        }
        let report =
            |sub: &AgentRun| (format!("agent {}", sub.plan().agent), sub.report().to_owned());
        Ok(subs.iter().map(report).collect())
    }

    /// The next entry node: all living ones in turn.
    fn entry(&mut self, fleet: &Fleet) -> usize {
        let nodes = fleet.nodes().len();
        let mut entry = self.calls % nodes;
        while self.dead.contains(&entry) && self.dead.len() < nodes {
            self.calls += 1;
            entry = self.calls % nodes;
        }
        self.calls += 1;
        entry
    }

    fn note(
        &mut self,
        record: Record,
        fleet: &Fleet,
        screen: &mut Screen<'_>,
    ) -> Result<(), LoadError> {
        let number = self.records.len() + 1;
        screen.line(&row(number, &record, fleet))?;
        let o = &record.outcome;
        if let Some(error) = &o.error {
            self.fail(format!("call {number} failed: {error}"));
        } else if o.cached.sum() + o.computed != o.prompt_tokens {
            self.fail(format!(
                "call {number} has {} prompt tokens, but {} cached and {} computed",
                o.prompt_tokens,
                o.cached.sum(),
                o.computed
            ));
        }
        self.records.push(record);
        Ok(())
    }

    /// Id of the node that served an agent last.
    pub(super) fn last_server(&self, agent: u32) -> Option<String> {
        let mut records = self.records.iter().rev();
        let last = records.find(|record| record.agent.1 == agent && record.outcome.ok())?;
        Some(last.outcome.serving_node.clone())
    }

    /// From turn to turn, more of the lead's history must come from a cache.
    pub(super) fn check_growth(&mut self) {
        let lead = self.records.iter().filter(|record| record.agent.1 == 0 && record.outcome.ok());
        let cached: Vec<u64> = lead.map(|record| record.outcome.cached.sum()).collect();
        if cached.len() < 2 || cached.windows(2).any(|pair| pair[1] <= pair[0]) {
            self.fail(format!("the lead's cached tokens do not grow with its turns: {cached:?}"));
        }
    }

    /// One line about all calls.
    pub(super) fn summary(&self, screen: &mut Screen<'_>) -> Result<(), LoadError> {
        let sum = |of: fn(&Record) -> u64| self.records.iter().map(of).sum::<u64>();
        let prompt = sum(|record| record.outcome.prompt_tokens);
        let share = |tokens: u64| 100.0 * tokens as f64 / prompt.max(1) as f64;
        screen.phase(&format!(
            "{} calls, {prompt} prompt tokens: {:.1} % cached ({} from peers), {:.1} % reachable",
            self.records.len(),
            share(sum(|record| record.outcome.cached.sum())),
            sum(|record| record.outcome.cached.peer),
            share(sum(|record| record.ceiling_tokens)),
        ))
    }
}

fn row(number: usize, record: &Record, fleet: &Fleet) -> String {
    let o = &record.outcome;
    let agent = match record.agent.1 {
        0 => "lead".to_owned(),
        position => format!("sub {position}"),
    };
    let served = fleet.position(&o.serving_node).map_or("?".to_owned(), |node| format!("n{node}"));
    let optional = |value: Option<f64>| value.map_or("-".to_owned(), |v| format!("{v:.0}"));
    let ttft = optional(o.ttft.map(|time| time.as_secs_f64() * 1000.0));
    let rate = o.tokens_per_second().map_or("-".to_owned(), |rate| format!("{rate:.1}"));
    // The lead speaks Chat, its sub-agents Messages: the same preamble is shared by both.
    let api = if record.agent.1 == 0 { "chat" } else { "messages" };
    if !o.ok() {
        return format!(
            "{number:>4}  {agent:<6} {:>4} {api:<8} n{:<4} {served:<6} failed",
            record.turn + 1,
            record.entry
        );
    }
    format!(
        "{number:>4}  {agent:<6} {:>4} {api:<8} n{:<4} {served:<6} {:>6} {:>6} {:>6} {:>5} {:>6} \
         {:>8} {ttft:>7} {rate:>6}",
        record.turn + 1,
        record.entry,
        o.prompt_tokens,
        o.cached.gpu,
        o.cached.dram,
        o.cached.nvme,
        o.cached.peer,
        o.computed
    )
}
