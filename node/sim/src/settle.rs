//! A run from beginning to end: safety, then liveness.

use crate::clients::Question;
use crate::plant::{Plant, Planted};
use crate::report::Report;
use crate::scenario::{Scenario, ScenarioError};
use crate::trace::Trace;
use crate::world::World;
use protocol::hash::Token;
use protocol::time::{Span, Time};

/// How often the cluster is asked whether it has come to rest.
const LOOK_EVERY: Span = Span::millis(250);

/// What a run may have besides a scenario and a seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// A recorded load, instead of generated agents.
    pub trace: Option<&'a Trace>,
    /// A bug on purpose.
    pub plant: Option<Plant>,
    /// Keep the last events for the report; costs time.
    pub keep_events: bool,
}

/// Runs a scenario.
///
/// # Errors
/// The scenario is none that can be run.
pub fn run(scenario: &Scenario, seed: u64, options: &Options<'_>) -> Result<Report, ScenarioError> {
    scenario.check()?;
    let mut world = World::new(scenario, seed, Planted::new(options.plant, seed));
    world.keep_ring = options.keep_events;
    world.populate()?;
    match options.trace {
        Some(trace) => world.start_trace(trace),
        None => world.start_agents(),
    }
    world.start_clerks();
    let calm_at = world.now + Span::secs(scenario.seconds.into());
    if world.run_until(calm_at) {
        world.heal_everything();
        let until = world.now + Span::secs(scenario.heal_seconds.into());
        if world.come_to_rest(until) {
            world.watch.figures.converged_in = Some(world.now.since(calm_at));
            world.check_rest();
            world.probe();
            if world.come_to_rest(until + Span::secs(scenario.heal_seconds.into())) {
                world.check_rest();
            }
        }
    }
    Ok(Report::of(&world))
}

impl World {
    /// Runs until everything is at rest; false when a checker found something, or the time is over.
    fn come_to_rest(&mut self, until: Time) -> bool {
        loop {
            let next = self.now + LOOK_EVERY;
            if !self.run_until(next) {
                return false;
            }
            let everybody = self.hosts.iter().all(|host| host.live.is_some() || host.is_gone);
            let unrest = match everybody {
                true => self.unrest(),
                false => Some(("liveness", 0, "a node is down".into())),
            };
            let Some((checker, node, text)) = unrest else { return true };
            if self.now >= until {
                self.watch.at(self.now);
                self.watch.found(checker, node, text);
                return false;
            }
        }
    }

    /// Every node must serve a request now.
    fn probe(&mut self) {
        for h in self.up() {
            let tokens = (0..50).map(|n| Token(1 + (h as u32 * 100 + n) % 40_000)).collect();
            let question =
                Question { session: None, tokens, known: Vec::new(), max_tokens: 4, pinned: None };
            self.ask(None, Some(h), question);
        }
        self.probe_records();
    }
}
