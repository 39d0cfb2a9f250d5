//! The engines from outside: jobs and operations in, items and events out.

// Tests: they panic when they fail, wait with deadlines, and read the environment.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]
#![allow(clippy::disallowed_methods)]

mod blocks;
mod constraints;
mod ends;
mod house;
mod limits;
mod mock;
mod reference;
