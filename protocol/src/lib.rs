//! The words of dynamo-node.
//!
//! Everything that two crates must agree on is named here: who ([`id`]), when ([`time`]), what
//! ([`hash`], [`block`], [`card`], [`prompt`], [`constraint`], [`state`]), what is told ([`event`], [`wire`]),
//! what is to be done ([`op`], [`disk`], [`plan`]) and who may belong ([`sign`], [`trust`]). Knows no
//! sockets, clocks or policy.
//!
//! Start at [`prompt::Prompt`] and follow the path Request → Prompt → Placed → Lease → Stream.

pub mod block;
pub mod card;
pub mod constraint;
pub mod disk;
pub mod event;
pub mod hash;
pub mod id;
pub mod machine;
pub mod op;
pub mod plan;
pub mod prompt;
pub mod sign;
pub mod state;
pub mod time;
pub mod trust;
pub mod wire;
