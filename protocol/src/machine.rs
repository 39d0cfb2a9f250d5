//! The one door of every pure machine.

use crate::time::Time;

/// Pure state: time and input in, effects out.
///
/// A machine owns its seeded random generator. It never awaits, spawns, reads a clock, entropy
/// or the environment, and never iterates over a randomly seeded map; so equal inputs give equal
/// effects, and thousands of machines run in one deterministic process.
pub trait Machine {
    /// What can happen to it.
    type In;
    /// What it wants done.
    type Out;

    /// Takes one input at `now` and appends its effects to `outbox`. `now` never goes back.
    fn handle(&mut self, now: Time, input: Self::In, outbox: &mut Vec<Self::Out>);

    /// Lets time-driven work happen; called at or after [`Machine::deadline`].
    fn tick(&mut self, now: Time, outbox: &mut Vec<Self::Out>);

    /// When [`Machine::tick`] wants to be called next, if at all.
    fn deadline(&self) -> Option<Time>;
}
