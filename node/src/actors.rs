//! The actors of a node: one shell serves every pure machine; engines and the transfer agent have
//! shells that pass their answers on to the block manager, and so has the NVMe tier; a thread writes
//! replicated records.

pub(crate) mod disk;
pub(crate) mod engine;
pub(crate) mod fetch;
pub(crate) mod records;
pub(crate) mod shell;
