//! Where a request should run, and when.
//!
//! * [`index`]: who holds which prefix. Request tasks read it without locks; the [`Router`]
//!   machine is its only writer.
//! * [`Router`]: learns batches, snapshots, members and paths; cuts snapshots for newcomers.
//! * [`Loads`]: members, engines, paths and the placements in flight.
//! * [`place`] and [`explain`]: pure functions over index and loads; cost is time in milliseconds.
//! * [`admission`]: the queue of a target's own node.
//!
//! The crate never sees tokens, text, slots, addresses or dialects; it never reads a clock and
//! draws nothing at random: time and seeds are handed in. The index is a hint: a wrong entry costs
//! time, never a wrong token.

pub mod admission;
mod bounce;
mod buckets;
mod buggify;
mod cost;
pub mod index;
mod loads;
mod machine;
mod mix;
mod origin;
mod own;
mod params;
mod place;
mod policy;
mod runs;
mod snapshot;
mod words;

#[cfg(test)]
mod testing;

pub use bounce::should_bounce;
pub use index::{IndexReader, IndexStats, Lane, Run};
pub use loads::{InFlight, Loads, Node, Path};
pub use machine::{Config, In, Out, Router, Stats};
pub use params::Params;
pub use place::{Candidate, Explanation, Query, explain, place};
pub use policy::{Policy, UnknownPolicy};
