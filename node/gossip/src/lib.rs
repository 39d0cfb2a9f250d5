//! Pure: who is alive, who has told what, what to repair.
//!
//! [`Gossip`] is one machine per node. It decides what to say to whom; libp2p at the rim carries
//! it over reliable ordered direct streams and one lossy topic per site. It never looks into the
//! batches of others: it checks that their origin signed them and hands them on, in order.
//!
//! Invariants:
//! - [`Out::Learn`] gives an origin's batches of one life in order, without a gap, each verified;
//!   [`Out::LearnSnapshot`] is the only thing that moves the place from which they continue;
//!   [`Out::LearnBuckets`] mends the set at a place and leaves it there.
//! - A silent member is suspect before it is dead, and dead long before its entries go; a node that
//!   is itself unwell accuses nobody.
//! - A life of a node only gives way to a newer one, and [`Out::Forget`] names the old one first.
//! - What a frame claims about a third party counts only under that party's signature. Snapshots
//!   carry none: they are hints until the next signed batch or heartbeat fits or contradicts them.
//! - Every collection has a limit (see [`config`]).

mod buckets;
mod buggify;
pub mod config;
mod counters;
mod detect;
mod donate;
mod door;
mod health;
mod machine;
mod members;
mod own;
mod peers;
mod probe;
mod repair;
mod replica;
mod ring;
mod runs;
mod snapshots;
mod suspect;
mod twin;

pub use config::{Config, Keep};
pub use counters::Counters;
pub use door::{In, Out, Refused};
pub use machine::Gossip;
