//! The actors of a node: one shell serves every pure machine; engines and the transfer agent have
//! shells that pass their answers on to the block manager.

pub(crate) mod engine;
pub(crate) mod fetch;
pub(crate) mod shell;
