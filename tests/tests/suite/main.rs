//! One binary for all end-to-end tests.
//!
//! Everything is real: processes of the binary, sockets on loopback, models on disk. [`kit`] starts
//! clusters and waits for what they show; [`command`] runs the command line; [`stream`] reads an
//! answer event by event; [`models`] finds models or makes them; [`prompts`] makes texts.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::expect_used)] // tests on real processes
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod backups;
mod cards;
mod command;
mod kit;
mod models;
mod prompts;
mod stream;

mod configuration;
mod cost;
mod crashes;
mod deaths;
mod departures;
mod equal_tokens;
mod fetches;
mod garbage;
mod gone_clients;
mod house;
mod hub;
mod joins;
mod kept;
mod keys;
mod mock;
mod netns;
mod nvme;
mod pressure;
mod requests;
mod silence;
mod sim;
mod starts;
mod strangers;
mod structure;
mod surface;
mod tls;
