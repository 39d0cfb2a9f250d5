//! The store in a small world of fake engines, memories and peers.

use super::*;

mod audit;
mod disk;
mod endings;
mod flights;
mod leases;
mod nvme;
mod offloading;
mod onboarding;
mod parts;
mod prefetch;
mod random;
mod staging;
mod world;
