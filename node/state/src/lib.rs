//! Pure: small versioned records with a time to live, on three owners.
//!
//! [`State`] is one machine per node. Writes and reads come in at any node, which asks the record's
//! owners: the three living members that want its place most (rendezvous hashing). There is no
//! consensus: the greater [`Version`](protocol::state::Version) of two writes counts, everywhere.
//!
//! Promises, under the faults that the simulator draws:
//! - [`Kept::Safe`](protocol::state::Kept) means durable on two owners (in a cluster of one, on it).
//!   From then on until its time to live is over the write, or a later one, can be read, as long as
//!   fewer than two of the disks that hold it are lost before it has been copied again. While owners
//!   cannot be reached the answer is [`Unavailable`](protocol::state::StateError), never "absent".
//! - What a deletion found and has acknowledged does not come back.
//! - A value that is read was written under that name.
//!
//! How:
//! - A write is refused by an owner that has a later one, and then made again above it; so of two
//!   writes one after the other the second is the greater.
//! - A read takes the newest of two owners' answers. "Absent" needs all living members near the
//!   place to say so, and all but one of those nearest whether they live or not. That it was deleted
//!   is said when two of the three nearest say so, living or not, and else as "absent" is.
//! - Owners compare digests of what they share, by the first byte of the place, all the time and at
//!   once when members change; what differs is pushed, at a bounded rate. Who holds a record and is
//!   no owner hands it over, and lets go of it when all owners have it and a while has passed.
//! - A deletion is a record of its own that outlives every copy of what it deletes. What it found is
//!   not all that it must outlive: a node that is down may hold an earlier write with a longer life.
//!   So it lives longer than any record can. A later write that takes its place leaves one again when
//!   it goes (see `floor.rs`).
//! - Calls that write one record at one node take turns, each within its own time.
//! - Every collection has a limit (see [`config`]); where a kind has no room the record goes that
//!   would expire first. Clients of a stored response that is old lose it before those of a new one
//!   cannot store theirs. Deletions have their own room, so that they take none from what lives; of
//!   too many the oldest is forgotten. What went for room counts as held when owners compare.
//! - The disk is told only so much before it has answered; the rest waits in the table, and what the
//!   disk did not take is tried again.

pub mod config;
mod copies;
mod counters;
mod disk;
mod door;
mod floor;
mod get;
mod handover;
mod machine;
mod owner;
mod put;
mod refused;
mod shared;
mod sync;
mod table;
mod turns;
mod view;

pub use config::Config;
pub use counters::{Counters, Held, Stats};
pub use door::{Answer, Deleted, DiskOp, Found, In, Out};
pub use machine::State;
