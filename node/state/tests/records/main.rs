#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)] // a test
//! Machines of several nodes with their disks, on a network that delays, loses and repeats.

mod after;
mod basics;
mod full;
mod hostile;
mod members;
mod model;
mod world;
